// Reads and writes sums of squares and counts.
#include "compress/importance.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/printable.h"
#include "io/gguf.h"
#include "io/gguf_writer.h"
#include "quant/blocks.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kSums = ".in_sum2", kCounts = ".counts", kType = "imatrix";

std::span<const uint8_t> bytes_of(const std::vector<float>& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(float)};
}

}  // namespace

Result<ImportanceMatrix> read_importance(const std::string& path) {
  TRY_ASSIGN(const GgufFile file, GgufFile::open(path));
  TRY_ASSIGN(const std::string_view type, file.get_string_or("general.type", ""));
  if (type != kType)
    return bad_input(fmt::format("{}: general.type: found '{}', allowed is '{}' (an importance matrix)", path,
                                 printable(std::string(type)), kType));
  ImportanceMatrix matrix;
  for (const GgufTensor& sums : file.tensors()) {
    if (!sums.name.ends_with(kSums)) continue;
    const std::string name(sums.name.substr(0, sums.name.size() - kSums.size()));
    const GgufTensor* counts = file.find_tensor(name + std::string(kCounts));
    const auto fault = [&](std::string_view found, std::string_view allowed) {
      return bad_input(fmt::format("{}: tensor {}: found {}, allowed is {}", path,
                                   printable(std::string(sums.name)), found, allowed));
    };
    if (!counts) return fault(fmt::format("no {} beside it", kCounts), "both");
    const auto values = [](const GgufTensor& tensor) { return tensor.bytes.size() / sizeof(float); };
    if (sums.format != WeightFormat::f32 || counts->format != WeightFormat::f32)
      return fault(format_info(sums.format == WeightFormat::f32 ? counts->format : sums.format).name, "f32");
    if (values(*counts) != 1)
      return fault(fmt::format("{} counts", values(*counts)), "1: weights without experts");
    const float count = load_f32(counts->bytes.data());
    if (!(count >= 0) || !std::isfinite(count))
      return fault(fmt::format("a count of {}", count), "0 and more");
    if (count == 0) continue;
    std::vector<float> moments(values(sums));
    for (size_t i = 0; i < moments.size(); ++i) {
      const float sum = load_f32(sums.bytes.data() + 4 * i);
      if (!(sum >= 0) || !std::isfinite(sum))
        return fault(fmt::format("a sum of squares of {}", sum), "a finite one, 0 and more");
      moments[i] = sum / count;
      if (!std::isfinite(moments[i]))
        return fault(fmt::format("a sum of squares of {} over a count of {}", sum, count), "a finite quotient");
    }
    matrix.emplace(name, std::move(moments));
  }
  if (matrix.empty())
    return bad_input(fmt::format("{}: found no tensor NAME{}, allowed is one a weight", path, kSums));
  return matrix;
}

Status write_importance(const std::string& path, const ImportanceMatrix& matrix,
                        const ImportanceOrigin& origin) {
  GgufMetadata metadata;
  metadata.add("general.type", kType);
  metadata.add("imatrix.datasets", std::vector<std::string>{origin.text});
  metadata.add("imatrix.chunk_count", static_cast<uint32_t>(origin.samples));
  metadata.add("imatrix.chunk_size", static_cast<uint32_t>(origin.length));
  const std::vector<uint8_t> bytes = metadata.finish();
  TRY_ASSIGN(const GgufFile header, GgufFile::parse(bytes, path));
  std::vector<GgufTensorPlan> plans;
  for (const auto& [name, moments] : matrix) {
    plans.push_back(
        {name + std::string(kSums), {1, static_cast<int64_t>(moments.size())}, WeightFormat::f32});
    plans.push_back({name + std::string(kCounts), {1, 1}, WeightFormat::f32});
  }
  const std::string partial = fmt::format("{}.partial.{}", path, ::getpid());
  const auto count = static_cast<float>(origin.samples * origin.length);
  const auto write = [&]() -> Status {
    TRY_ASSIGN(GgufWriter writer, GgufWriter::create(partial, header, std::nullopt, plans));
    for (const auto& [name, moments] : matrix) {
      std::vector<float> sums = moments;
      for (float& sum : sums) sum *= count;
      TRY(writer.add(bytes_of(sums)));
      TRY(writer.add(bytes_of({count})));
    }
    return writer.finish();
  };
  const Status written = write();
  std::error_code error;
  if (written) fs::rename(partial, path, error);
  if (written && !error) return {};
  ::unlink(partial.c_str());
  return written ? Status(io_error(fmt::format("{}: {}", path, error.message()))) : written;
}

}  // namespace quintet
