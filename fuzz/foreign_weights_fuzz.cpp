// Weights that other tools compressed, made of any settings and any tensors: an error that names what is
// wrong, or rows that can be made and decoded. Input: config.json, quantize_config.json (empty: none), a line
// "NAME DTYPE SIZE SIZE ..." a tensor, and their bytes, with kSeparator between them. Bytes are handed out in
// turn, again from the first where they end.
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "io/foreign_weights.h"
#include "io/json_walk.h"
#include "quant/quantize.h"

using namespace quintet;

namespace {

constexpr std::string_view kSeparator = "\n--8<--\n";
constexpr uint64_t kMostBytes = 80 << 10;  ///< of all tensors: bounds the work
constexpr int64_t kMostRows = 24;          ///< of a weight that are made: more than makers take at once

std::string_view take(std::string_view& text, std::string_view end) {
  const size_t at = std::min(text.find(end), text.size());
  const std::string_view part = text.substr(0, at);
  text.remove_prefix(std::min(at + end.size(), text.size()));
  return part;
}

/// A tensor as SafetensorsFile lets one through, its bytes in an allocation of their own.
struct Tensor {
  SafeTensor tensor;
  std::vector<uint8_t> bytes;
};

/// Nothing where SafetensorsFile would refuse it or it passes `most_bytes`.
std::optional<Tensor> read_tensor(std::string_view line, std::string_view data, size_t& next,
                                  uint64_t most_bytes) {
  Tensor made;
  made.tensor.name = take(line, " ");
  made.tensor.dtype = take(line, " ");
  uint64_t bytes = safetensors_dtype_bytes(made.tensor.dtype);
  if (made.tensor.name.empty() || bytes == 0) return std::nullopt;
  bool empty = false;
  while (!line.empty()) {
    const std::string_view word = take(line, " ");
    int64_t size = 0;
    const auto [end, error] = std::from_chars(word.begin(), word.end(), size);
    if (error != std::errc() || end != word.end() || size < 0 || made.tensor.shape.size() == 8)
      return std::nullopt;
    empty |= size == 0;
    made.tensor.shape.push_back(size);
  }
  for (const int64_t size : made.tensor.shape)
    if (!empty && __builtin_mul_overflow(bytes, static_cast<uint64_t>(size), &bytes)) return std::nullopt;
  if (empty) bytes = 0;
  if (bytes > most_bytes) return std::nullopt;
  for (uint64_t i = 0; i < bytes; ++i)
    made.bytes.push_back(data.empty() ? 0 : static_cast<uint8_t>(data[next++ % data.size()]));
  return made;
}

void make_rows(const ForeignWeight& weight) {
  QUINTET_CHECK(weight.n >= 1 && weight.k >= 1 && weight.maker->row_bytes() > 0, "{}: {} x {}", weight.name,
                weight.n, weight.k);
  HostWeight whole{.name = weight.name,
                   .format = weight.format,
                   .n = weight.n,
                   .k = weight.k,
                   .maker = weight.maker.get()};
  const int64_t rows = std::min(weight.n, kMostRows);
  std::vector<float> row(static_cast<size_t>(weight.k));
  for (const int64_t first :
       {int64_t{0}, weight.n - rows}) {  // the last ones lie at the ends of their tensors
    QuantizedMatrix made;
    const auto part = made_of(whole.slice_rows(first, rows), made);
    if (!part) {
      QUINTET_CHECK(part.error().message.starts_with("tensor "), "{}", part.error().message);
      continue;
    }
    if (!check_side_data(*part)) continue;
    for (int64_t i = 0; i < rows; ++i) decode_row(*part, i, row.data());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const std::string_view config = take(rest, kSeparator), sidecar = take(rest, kSeparator);
  std::string_view lines = take(rest, kSeparator);
  // A folder's config.json has been walked before.
  if (!walk_json(config, "input/config.json", 64, [](const JsonEvent&) { return Status(); })) return 0;
  const auto scheme = read_foreign_scheme("input", config, sidecar);
  if (!scheme) QUINTET_CHECK(scheme.error().message.starts_with("input/"), "{}", scheme.error().message);
  if (!scheme || !*scheme) return 0;

  std::vector<Tensor> tensors;
  std::set<std::string, std::less<>> names;
  uint64_t room = kMostBytes;
  for (size_t next = 0; !lines.empty();) {
    auto tensor = read_tensor(take(lines, "\n"), rest, next, room);
    if (!tensor || !names.insert(tensor->tensor.name).second) continue;
    room -= tensor->bytes.size();
    tensors.push_back(std::move(*tensor));
  }
  std::vector<FolderTensor> list;
  for (Tensor& tensor : tensors) {
    tensor.tensor.bytes = tensor.bytes;
    list.push_back({.tensor = &tensor.tensor, .path = "input/model.safetensors"});
  }
  const auto model = find_foreign_weights(**scheme, list);
  if (!model) {
    QUINTET_CHECK(model.error().message.starts_with("input/model.safetensors: "), "{}",
                  model.error().message);
    return 0;
  }
  QUINTET_CHECK(model->others.size() <= list.size());
  std::set<std::string> made_names;
  for (const FolderTensor& other : model->others) made_names.insert(other.tensor->name);
  for (const ForeignWeight& weight : model->weights) {
    QUINTET_CHECK(made_names.insert(weight.name).second, "{} twice", weight.name);
    make_rows(weight);
  }
  return 0;
}
