// Renames tensors, and makes rows in another order as they are asked for.
#include "model/gguf_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <unordered_set>

#include "model/weight_map.h"
#include "quant/quantize.h"

namespace quintet {
namespace {

bool is_dense(WeightFormat format) { return format <= WeightFormat::bf16; }

std::vector<uint8_t> bytes_of(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(float));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

/// Rows of a tensor of the folder, reordered; or a vector in F32.
class GgufView::Maker : public WeightMaker {
 public:
  Maker(const HostWeight& source, bool vector, const GgufRows& rows)
      : source_(source), vector_(vector), rows_(rows) {}

  WeightFormat format() const {
    return !vector_ && is_dense(source_.format) && !source_.maker ? source_.format : WeightFormat::f32;
  }

  Result<QuantizedMatrix> make(int64_t first, int64_t count) const override {
    if (vector_) return make_vector();
    // Whole heads of the source hold the rows that are asked for.
    const int64_t head = std::max<int64_t>(rows_.pairs_of, 1);
    const int64_t begin = first / head * head,
                  end = std::min(source_.n, (first + count + head - 1) / head * head);
    QuantizedMatrix made_source;
    TRY_ASSIGN(const HostWeight source, made_of(source_.slice_rows(begin, end - begin), made_source));
    TRY(check_side_data(source));
    QuantizedMatrix made{.format = format(), .n = count, .k = source_.k};
    const auto row_bytes =
        static_cast<size_t>(format_bytes_of(made.format, static_cast<uint64_t>(source_.k)));
    made.blocks.resize(static_cast<size_t>(count) * row_bytes);
    std::vector<float> values(static_cast<size_t>(source_.k));
    for (int64_t row = 0; row < count; ++row) {
      uint8_t* out = made.blocks.data() + static_cast<size_t>(row) * row_bytes;
      const int64_t from = rows_.source_row(first + row) - begin;
      if (made.format == source.format) {
        std::memcpy(out, source.bytes.data() + static_cast<size_t>(from) * row_bytes, row_bytes);
      } else {
        decode_row(source, from, values.data());
        std::memcpy(out, values.data(), row_bytes);
      }
    }
    return made;
  }

  double row_bytes() const override {
    return static_cast<double>(format_bytes_of(format(), static_cast<uint64_t>(source_.k)));
  }

 private:
  Result<QuantizedMatrix> make_vector() const {
    QuantizedMatrix made_source;
    TRY_ASSIGN(const HostWeight source, made_of(source_, made_source));
    TRY(check_side_data(source));
    std::vector<float> plain(static_cast<size_t>(source_.k)), values(plain.size());
    decode_row(source, 0, plain.data());
    for (int64_t i = 0; i < source_.k; ++i)
      values[static_cast<size_t>(i)] =
          plain[static_cast<size_t>(rows_.source_row(i))] + (rows_.plus_one ? 1.0f : 0.0f);
    return QuantizedMatrix{.format = WeightFormat::f32, .n = 1, .k = source_.k, .blocks = bytes_of(values)};
  }

  HostWeight source_;
  bool vector_;
  GgufRows rows_;
};

GgufView::GgufView(GgufView&&) noexcept = default;
GgufView::~GgufView() = default;

Result<GgufView> GgufView::make(const ModelFiles& folder) {
  GgufView view;
  TRY_ASSIGN(GgufExport exported, export_to_gguf(folder));
  view.exported_ = std::make_unique<GgufExport>(std::move(exported));
  TRY_ASSIGN(GgufFile metadata, GgufFile::parse(view.exported_->metadata, folder.path()));
  TRY_ASSIGN(const ModelConfig config, read_config(folder, 0));
  ModelWeights weights;
  TRY_ASSIGN(const auto planned,
             plan_weights(folder, *view.exported_->drafted.architecture, config, weights));

  std::vector<ModelTensor> tensors;
  const auto add = [&](std::string name, Source source, ModelTensor tensor) {
    view.names_.push_back(std::make_unique<std::string>(std::move(name)));
    view.sources_.push_back(std::move(source));
    tensor.weight.name = *view.names_.back();
    tensors.push_back(std::move(tensor));
  };
  for (const MadeTensor& made : view.exported_->made) {
    const auto count = static_cast<int64_t>(made.values.size());
    const HostWeight values{
        .name = made.name,
        .n = 1,
        .k = count,
        .bytes = {reinterpret_cast<const uint8_t*>(made.values.data()), made.values.size() * sizeof(float)}};
    // Through a maker, since readers let go of the pages that `bytes` lie in, as of a mapped file.
    view.makers_.push_back(std::make_unique<Maker>(values, true, GgufRows{}));
    ModelTensor tensor{.shape = {count}};
    tensor.weight = {.n = 1, .k = count, .maker = view.makers_.back().get()};
    add(made.name, Source{}, std::move(tensor));
  }
  std::unordered_set<std::string_view> seen;
  for (const PlannedWeight& weight : planned)
    for (const HostWeight& part : weight.parts) {
      if (!seen.insert(part.name).second) continue;  // another part of a fused tensor
      TRY_ASSIGN(const ModelTensor* source, folder.require(part.name));
      std::string name = gguf_name_of(part.name, config.post_norms);
      if (name.empty())
        return bad_input(fmt::format("{}: tensor {}: found a name that GGUF files have none for",
                                     folder.path(), part.name));
      GgufRows rows{.plus_one = weight.plus_one};
      if (view.exported_->pairs_rope &&
          (name.find("attn_q.") != name.npos || name.find("attn_k.") != name.npos))
        rows.pairs_of = config.head_dim;
      ModelTensor tensor = *source;
      if (const bool vector = source->shape.size() < 2; vector || rows.pairs_of > 0) {
        view.makers_.push_back(std::make_unique<Maker>(source->weight, vector, rows));
        tensor.weight = {.format = view.makers_.back()->format(),
                         .n = source->weight.n,
                         .k = source->weight.k,
                         .maker = view.makers_.back().get()};
      }
      add(std::move(name), Source{std::string(part.name), source->weight.format, rows}, std::move(tensor));
    }
  view.files_ =
      std::make_unique<ModelFiles>(ModelFiles::of_gguf(std::move(metadata), std::move(tensors), folder));
  return view;
}

std::string GgufView::with_source_names(std::string_view message) const {
  static constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._", kRow = ": row ";
  std::string named;
  while (!message.empty()) {
    const size_t begin = std::min(message.find_first_of(kOfNames), message.size());
    size_t end = std::min(message.find_first_not_of(kOfNames, begin), message.size());
    while (end > begin + 1 && message[end - 1] == '.') --end;  // of a sentence
    const std::string_view word = message.substr(begin, end - begin);
    named += message.substr(0, end);
    message.remove_prefix(end);
    const auto tensor = std::ranges::find(files_->tensors(), word, [](const ModelTensor& t) { return t.weight.name; });
    if (tensor == files_->tensors().end()) continue;
    const auto index = static_cast<size_t>(tensor - files_->tensors().begin());
    if (source_name(index).empty()) continue;
    if (message.starts_with('\'')) named += '\'', message.remove_prefix(1);
    named += fmt::format(" (in the folder {}", source_name(index));
    int64_t row = -1;
    if (message.starts_with(kRow)) std::from_chars(message.data() + kRow.size(), message.data() + message.size(), row);
    if (row >= 0 && row < tensor->weight.n && source_row(index, row) != row) named += fmt::format(", row {}", source_row(index, row));
    named += ")";
  }
  return named;
}

}  // namespace quintet
