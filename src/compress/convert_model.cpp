// Renames, reorders and re-encodes tensors on their way from a folder into a GGUF file.
#include "compress/convert_model.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <unordered_set>

#include "base/parallel.h"
#include "io/gguf_writer.h"
#include "model/gguf_export.h"
#include "model/weight_map.h"
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
  Converter(const ModelFiles& files, const GgufExport& exported, const ConvertOptions& options,
            const ConvertHooks& hooks)
      : files_(files), exported_(exported), options_(options), hooks_(hooks) {}

  Status plan() {
    const DraftedConfig& drafted = exported_.drafted;
    TRY_ASSIGN(config_, read_config(files_, 0));
    ModelWeights weights;
    TRY_ASSIGN(const auto planned, plan_weights(files_, *drafted.architecture, config_, weights));
    std::unordered_set<std::string_view> seen;
    for (const PlannedWeight& weight : planned)
      for (const HostWeight& part : weight.parts) {
        if (!seen.insert(part.name).second) continue;
        TRY_ASSIGN(const ModelTensor* tensor, files_.require(part.name));
        const std::string name = gguf_name_of(part.name, config_.post_norms);
        if (name.empty())
          return bad_input(fmt::format("{}: tensor {}: found a name that GGUF files have none for",
                                       files_.path(), part.name));
        Item item{.tensor = tensor, .plus_one = weight.plus_one};
        item.plan = {name, tensor->shape, format_of(*tensor)};
        if (exported_.pairs_rope && (name.find("attn_q.") != name.npos || name.find("attn_k.") != name.npos))
          item.pairs_of = config_.head_dim;
        all_bytes_ += tensor->weight.stored_bytes();
        items_.push_back(std::move(item));
      }
    return {};
  }

  Result<ConvertReport> run(const std::string& destination) {
    TRY(plan());
    std::vector<GgufTensorPlan> plans;
    for (const MadeTensor& made : exported_.made)
      plans.push_back({made.name, {static_cast<int64_t>(made.values.size())}, WeightFormat::f32});
    for (const Item& item : items_) plans.push_back(item.plan);
    TRY_ASSIGN(const GgufFile metadata, GgufFile::parse(exported_.metadata, files_.path()));
    const std::string partial = fmt::format("{}.partial.{}", destination, ::getpid());
    auto writer = GgufWriter::create(partial, metadata, file_type_of(options_.format), plans);
    if (!writer) return bad_input(writer.error().message);
    Status written = write_all(*writer);
    std::error_code error;
    if (written && fs::exists(fs::symlink_status(destination, error)))
      written = bad_input(fmt::format("{}: found something there that was not there before, allowed is a free name",
                                      destination));
    if (written) fs::rename(partial, destination, error);
    if (written && error) written = io_error(fmt::format("{}: {}", destination, error.message()));
    if (!written) {
      ::unlink(partial.c_str());
      return written.error();
    }
    return report(destination);
  }

 private:
  struct Item {
    const ModelTensor* tensor = nullptr;
    GgufTensorPlan plan;
    bool plus_one = false;
    int64_t pairs_of = 0;  ///< rows of a head whose halves become pairs; 0: rows stay where they are
  };

  WeightFormat format_of(const ModelTensor& tensor) const {
    if (tensor.shape.size() < 2) return WeightFormat::f32;
    if (tensor.weight.k % format_info(options_.format).block_weights != 0) return WeightFormat::f16;
    return options_.format;
  }

  Status write_all(GgufWriter& writer) {
    for (const MadeTensor& made : exported_.made) {
      TRY(writer.add({reinterpret_cast<const uint8_t*>(made.values.data()), made.values.size() * sizeof(float)}));
      if (hooks_.on_tensor) hooks_.on_tensor({"", made.name, {static_cast<int64_t>(made.values.size())}});
    }
    uint64_t done = 0;
    for (const Item& item : items_) {
      TRY_ASSIGN(const std::vector<uint8_t> bytes, encode(item));
      TRY(writer.add(bytes));
      const HostWeight& weight = item.tensor->weight;
      if (hooks_.on_tensor)
        hooks_.on_tensor({std::string(weight.name), item.plan.name, item.plan.shape, weight.format,
                          item.plan.format});
      if (hooks_.on_warning && item.plan.format == WeightFormat::f16 && options_.format == WeightFormat::q8_0)
        hooks_.on_warning(
            fmt::format("{}: {} inputs are no multiple of 32: it is written as f16", item.plan.name, weight.k));
      drop_pages(weight.bytes);
      done += weight.stored_bytes();
      if (hooks_.progress && !hooks_.progress(done, all_bytes_))
        return Error{ErrorKind::cancelled, "stopped by a signal"};
    }
    return writer.finish();
  }

  /// The row that becomes row `row` of the file: of each head the first of one half, the first of the other, ...
  static int64_t source_row(const Item& item, int64_t row) {
    if (item.pairs_of == 0) return row;
    const int64_t head = row / item.pairs_of, within = row % item.pairs_of;
    return head * item.pairs_of + within % 2 * (item.pairs_of / 2) + within / 2;
  }

  Result<std::vector<uint8_t>> encode(const Item& item) const {
    QuantizedMatrix made;
    TRY_ASSIGN(const HostWeight weight, made_of(item.tensor->weight, made));
    TRY(check_side_data(weight));
    const bool vector = item.tensor->shape.size() < 2;
    const auto row_bytes = static_cast<size_t>(format_bytes_of(item.plan.format, static_cast<uint64_t>(weight.k)));
    std::vector<uint8_t> bytes(static_cast<size_t>(weight.n) * row_bytes);
    const float largest = item.plan.format == WeightFormat::bf16 || vector ? INFINITY : kLargestHalf;
    std::atomic<int64_t> bad = -1;
    parallel_for(weight.n, options_.threads, [&](int64_t row) {
      std::vector<float> values(static_cast<size_t>(weight.k));
      decode_row(weight, source_row(item, row), values.data());
      if (vector && item.pairs_of > 0) {
        const std::vector<float> plain = values;
        for (int64_t i = 0; i < weight.k; ++i)
          values[static_cast<size_t>(i)] = plain[static_cast<size_t>(source_row(item, i))];
      }
      for (size_t i = 0; i < values.size(); ++i) {
        if (item.plus_one) values[i] += 1;
        if (std::isfinite(values[i]) && std::abs(values[i]) <= largest) continue;
        int64_t none = -1;
        bad.compare_exchange_strong(none, source_row(item, row) * weight.k + static_cast<int64_t>(i));
        return;
      }
      encode_blocks(item.plan.format, values.data(), nullptr,
                    static_cast<size_t>(weight.k / format_info(item.plan.format).block_weights),
                    bytes.data() + static_cast<size_t>(row) * row_bytes);
    });
    if (bad < 0) return bytes;
    std::vector<float> values(static_cast<size_t>(weight.k));
    decode_row(weight, bad / weight.k, values.data());
    return bad_input(fmt::format("{}: tensor {}: row {}, column {}: found {}, allowed with {} are numbers up to {}",
                                 files_.path(), weight.name, bad / weight.k, bad % weight.k,
                                 values[static_cast<size_t>(bad % weight.k)],
                                 format_info(item.plan.format).name, largest));
  }

  ConvertReport report(const std::string& destination) const {
    ConvertReport report{.architecture = exported_.architecture,
                         .layers = config_.layers,
                         .hidden = config_.hidden,
                         .ffn = config_.ffn,
                         .heads = config_.heads,
                         .kv_heads = config_.kv_heads,
                         .head_dim = config_.head_dim,
                         .vocabulary = config_.vocabulary,
                         .context = config_.context,
                         .source_bytes = files_.file_bytes()};
    for (const Item& item : items_)
      report.weights += static_cast<uint64_t>(item.tensor->weight.n * item.tensor->weight.k);
    std::error_code ignored;
    report.bytes = fs::file_size(destination, ignored);
    return report;
  }

  const ModelFiles& files_;
  const GgufExport& exported_;
  const ConvertOptions& options_;
  const ConvertHooks& hooks_;
  ModelConfig config_;
  std::vector<Item> items_;
  uint64_t all_bytes_ = 0;
};

}  // namespace

Result<ConvertReport> convert_model(const std::string& source, const std::string& destination,
                                    const ConvertOptions& options, const ConvertHooks& hooks) {
  TRY_ASSIGN(const ModelFiles files, ModelFiles::open(source));
  if (files.kind() != ModelFiles::Kind::huggingface)
    return bad_input(fmt::format(
        "{}: found a GGUF model, allowed is a Hugging Face folder (quintet quantize --method makes other GGUF "
        "files of one)",
        source));
  std::error_code error;
  if (fs::exists(fs::symlink_status(destination, error)))
    return bad_input(
        fmt::format("{}: found something there, allowed is a name that does not exist yet", destination));
  TRY_ASSIGN(const GgufExport exported, export_to_gguf(files));
  if (hooks.on_warning)
    for (const std::string& note : exported.notes) hooks.on_warning(fmt::format("{}: {}", source, note));
  return Converter(files, exported, options, hooks).run(destination);
}

}  // namespace quintet
