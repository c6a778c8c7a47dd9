// Re-encodes the tensors of a folder, as a GGUF file has them, on their way into one.
#include "compress/convert_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>

#include "base/parallel.h"
#include "io/gguf_writer.h"
#include "model/config_reader.h"
#include "model/gguf_view.h"
#include "quant/encode.h"
#include "quant/quantize.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr float kLargestHalf = 65504;

/// general.file_type of the formats that are written.
uint32_t file_type_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::f16: return 1;
    case WeightFormat::q8_0: return 7;
    case WeightFormat::bf16: return 32;
    default: return 0;
  }
}

class Converter {
 public:
  Converter(const GgufView& view, const ModelConfig& config, const ConvertOptions& options,
            const ConvertHooks& hooks)
      : view_(view), files_(view.files()), config_(config), options_(options), hooks_(hooks) {}

  Result<ConvertReport> run(const std::string& destination) {
    std::vector<GgufTensorPlan> plans;
    for (const ModelTensor& tensor : files_.tensors()) {
      plans.push_back({std::string(tensor.weight.name), tensor.shape, format_of(tensor)});
      all_bytes_ += tensor.weight.stored_bytes();
    }
    const std::string partial = fmt::format("{}.partial.{}", destination, ::getpid());
    auto writer = GgufWriter::create(partial, *files_.gguf(), file_type_of(options_.format), plans);
    if (!writer) return bad_input(writer.error().message);
    Status written = write_all(*writer);
    std::error_code error;
    if (written && fs::exists(fs::symlink_status(destination, error)))
      written = bad_input(fmt::format(
          "{}: found something there that was not there before, allowed is a free name", destination));
    if (written) fs::rename(partial, destination, error);
    if (written && error) written = io_error(fmt::format("{}: {}", destination, error.message()));
    if (!written) {
      ::unlink(partial.c_str());
      return written.error();
    }
    return report(destination);
  }

 private:
  WeightFormat format_of(const ModelTensor& tensor) const {
    if (tensor.shape.size() < 2) return WeightFormat::f32;
    if (tensor.weight.k % format_info(options_.format).block_weights != 0) return WeightFormat::f16;
    return options_.format;
  }

  Status write_all(GgufWriter& writer) {
    uint64_t done = 0;
    for (size_t i = 0; i < files_.tensors().size(); ++i) {
      const ModelTensor& tensor = files_.tensors()[i];
      const HostWeight& weight = tensor.weight;
      const WeightFormat format = format_of(tensor);
      TRY_ASSIGN(const std::vector<uint8_t> bytes, encode(i, format));
      TRY(writer.add(bytes));
      if (hooks_.on_tensor)
        hooks_.on_tensor(
            {view_.source_name(i), std::string(weight.name), tensor.shape, view_.source_format(i), format});
      if (hooks_.on_warning && format == WeightFormat::f16 && options_.format == WeightFormat::q8_0)
        hooks_.on_warning(
            fmt::format("{}: {} inputs are no multiple of 32: it is written as f16", weight.name, weight.k));
      drop_pages(weight.bytes);
      done += weight.stored_bytes();
      if (hooks_.progress && !hooks_.progress(done, all_bytes_))
        return Error{ErrorKind::cancelled, "stopped by a signal"};
    }
    return writer.finish();
  }

  Result<std::vector<uint8_t>> encode(size_t index, WeightFormat format) const {
    const ModelTensor& tensor = files_.tensors()[index];
    QuantizedMatrix made;
    TRY_ASSIGN(const HostWeight weight, made_of(tensor.weight, made));
    TRY(check_side_data(weight));
    const auto row_bytes = static_cast<size_t>(format_bytes_of(format, static_cast<uint64_t>(weight.k)));
    std::vector<uint8_t> bytes(static_cast<size_t>(weight.n) * row_bytes);
    const float largest = format == WeightFormat::bf16 || tensor.shape.size() < 2 ? INFINITY : kLargestHalf;
    std::atomic<int64_t> bad = -1;
    parallel_for(weight.n, options_.threads, [&](int64_t row) {
      std::vector<float> values(static_cast<size_t>(weight.k));
      decode_row(weight, row, values.data());
      for (size_t i = 0; i < values.size(); ++i) {
        if (std::isfinite(values[i]) && std::abs(values[i]) <= largest) continue;
        int64_t none = -1;
        bad.compare_exchange_strong(none, row * weight.k + static_cast<int64_t>(i));
        return;
      }
      encode_blocks(format, values, {}, bytes.data() + static_cast<size_t>(row) * row_bytes);
    });
    if (bad < 0) return bytes;
    std::vector<float> values(static_cast<size_t>(weight.k));
    decode_row(weight, bad / weight.k, values.data());
    return bad_input(fmt::format(
        "{}: tensor {}: row {}, column {}: found {}, allowed with {} are numbers up to {}", files_.path(),
        view_.source_name(index), view_.source_row(index, bad / weight.k), bad % weight.k,
        values[static_cast<size_t>(bad % weight.k)], format_info(format).name, largest));
  }

  ConvertReport report(const std::string& destination) const {
    ConvertReport report{.architecture = view_.exported().architecture,
                         .layers = config_.layers,
                         .hidden = config_.hidden,
                         .ffn = config_.ffn,
                         .heads = config_.heads,
                         .kv_heads = config_.kv_heads,
                         .head_dim = config_.head_dim,
                         .vocabulary = config_.vocabulary,
                         .context = config_.context,
                         .source_bytes = files_.file_bytes()};
    for (size_t i = 0; i < files_.tensors().size(); ++i)
      if (!view_.source_name(i).empty())
        report.weights += static_cast<uint64_t>(files_.tensors()[i].weight.n * files_.tensors()[i].weight.k);
    std::error_code ignored;
    report.bytes = fs::file_size(destination, ignored);
    return report;
  }

  const GgufView& view_;
  const ModelFiles& files_;  ///< the view's
  const ModelConfig& config_;
  const ConvertOptions& options_;
  const ConvertHooks& hooks_;
  uint64_t all_bytes_ = 0;
};

}  // namespace

Result<ConvertReport> convert_model(const std::string& source, const std::string& destination,
                                    const ConvertOptions& options, const ConvertHooks& hooks) {
  TRY_ASSIGN(const ModelFiles files, ModelFiles::open(source));
  if (files.kind() != ModelFiles::Kind::huggingface)
    return bad_input(
        fmt::format("{}: found a GGUF model, allowed is a Hugging Face folder (quintet quantize --method "
                    "makes other GGUF "
                    "files of one)",
                    source));
  std::error_code error;
  if (fs::exists(fs::symlink_status(destination, error)))
    return bad_input(
        fmt::format("{}: found something there, allowed is a name that does not exist yet", destination));
  TRY_ASSIGN(const GgufView view, GgufView::make(files));
  TRY_ASSIGN(const ModelConfig config, read_config(files, 0));
  if (hooks.on_warning)
    for (const std::string& note : view.exported().notes)
      hooks.on_warning(fmt::format("{}: {}", source, note));
  return Converter(view, config, options, hooks).run(destination);
}

}  // namespace quintet
