// Walks the tensors of a model, compresses those of its linear layers, and writes them as they come.
#include "compress/quantize_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "base/log.h"
#include "base/parallel.h"
#include "compress/calibration.h"
#include "compress/model_sink.h"
#include "model/config_reader.h"
#include "model/weight_map.h"
#include "quant/encode.h"

namespace quintet {
namespace {

constexpr uint64_t kHessianBytes = uint64_t{4} << 30;  ///< of one pass of calibration

bool is_dense(WeightFormat format) {
  return format == WeightFormat::f32 || format == WeightFormat::f16 || format == WeightFormat::bf16;
}

/// Where a tensor stands in the network.
struct Place {
  int32_t layer = -1;  ///< -1: embedding or head
  int input = -1;      ///< index into LayerStatistics; -1: not a linear layer's
  bool table = false;  ///< embedding or head
};

/// The tensors in the order in which a forward pass uses them, and the place of each.
struct TensorPlan {
  std::vector<const ModelTensor*> order;
  std::unordered_map<std::string_view, Place> place;
};

Result<TensorPlan> plan_tensors(const ModelFiles& files, const ModelConfig& config) {
  const Architecture* architecture = find_architecture(config.architecture);
  QUINTET_CHECK(architecture, "no architecture '{}'", config.architecture);
  ModelWeights weights;
  TRY_ASSIGN(const auto planned, plan_weights(files, *architecture, config, weights));
  std::unordered_map<const Weight*, Place> of_weight = {{&weights.embedding, {.table = true}},
                                                        {&weights.head, {.table = true}}};
  for (int32_t i = 0; i < config.layers; ++i) {
    const LayerWeights& layer = weights.layer[static_cast<size_t>(i)];
    const Weight* inputs[kLayerInputs] = {&layer.qkv, &layer.attn_out, &layer.gate_up, &layer.mlp_out};
    for (int j = 0; j < kLayerInputs; ++j) of_weight[inputs[j]] = {.layer = i, .input = j};
  }
  TensorPlan plan;
  const auto add = [&](const ModelTensor* tensor, const Place& place) {
    if (plan.place.emplace(tensor->weight.name, place).second) plan.order.push_back(tensor);
  };
  for (const PlannedWeight& weight : planned) {
    const auto at = of_weight.find(weight.target);
    for (const HostWeight& part : weight.parts) {
      TRY_ASSIGN(const ModelTensor* tensor, files.require(part.name));
      add(tensor, at == of_weight.end() ? Place{} : at->second);
    }
  }
  for (const ModelTensor& tensor : files.tensors()) add(&tensor, {});  // frequencies and the like
  return plan;
}

class Quantizer {
 public:
  Quantizer(const ModelFiles& files, const ModelConfig& config, const std::string& source, Backend& backend,
            const QuantizeOptions& options, const QuantizeHooks& hooks)
      : files_(files),
        config_(config),
        source_(source),
        backend_(backend),
        options_(options),
        hooks_(hooks) {}

  Result<QuantizeReport> run(const std::string& destination) {
    TRY_ASSIGN(plan_, plan_tensors(files_, config_));
    std::vector<Decision> decisions;
    std::vector<PlannedTensor> planned;
    for (const ModelTensor* tensor : plan_.order) {
      decisions.push_back(decide(*tensor));
      planned.push_back({tensor, decisions.back().format});
      all_bytes_ += tensor->weight.stored_bytes();
    }
    const bool gguf = options_.method == QuantizeMethod::gguf;
    TRY_ASSIGN(const auto sink, gguf ? make_gguf_sink(destination, files_, planned, options_.mix->file_type)
                                     : make_folder_sink(destination, files_, planned));
    warn_of_source();
    if (options_.needs_calibration()) TRY(load_for_calibration());
    for (size_t i = 0; i < planned.size(); ++i) TRY(write_tensor(planned[i], decisions[i], *sink));
    TRY(sink->finish(describe(options_)));
    report_.source_bytes = files_.file_bytes();
    return std::move(report_);
  }

 private:
  void warn(const std::string& message) const {
    if (hooks_.on_warning) hooks_.on_warning(message);
  }

  void warn_of_source() const {
    for (const ModelTensor* tensor : plan_.order)
      if (plan_.place.at(tensor->weight.name).input >= 0 && !is_dense(tensor->weight.format))
        return warn(fmt::format("{}: {} is compressed already ({}): its errors stay, and new ones are added",
                                source_, tensor->weight.name, format_info(tensor->weight.format).name));
  }

  // --- calibration ---

  Status load_for_calibration() {
    LoadOptions load;
    TRY_ASSIGN(model_, load_model(source_, backend_, load));
    if (!model_->tokenizer)
      return bad_input(
          fmt::format("{}: found no tokenizer, allowed with calibration is a model with one", source_));
    if (options_.length > config_.context)
      return bad_input(fmt::format("--length: found {}, allowed are at most {} (what {} was made for)",
                                   options_.length, config_.context, source_));
    TRY_ASSIGN(sequences_,
               calibration_sequences(*model_, options_.calibration_text, options_.samples, options_.length));
    if (static_cast<int64_t>(sequences_.size()) < options_.samples)
      warn(fmt::format("calibration text: found {} stretches of {} tokens, asked for were {}",
                       sequences_.size(), options_.length, options_.samples));
    const auto tokens = static_cast<int64_t>(sequences_.size()) * options_.length;
    const int64_t widest = std::max({config_.hidden, config_.ffn, config_.heads * config_.head_dim});
    if (options_.is_gptq() && tokens < widest)
      warn(fmt::format(
          "calibration text: {} tokens are fewer than the {} inputs of the widest layer; the Hessian has "
          "no full rank",
          tokens, widest));
    // As many layers in one pass as their statistics may take memory.
    const int64_t q = int64_t{config_.heads} * config_.head_dim, h = config_.hidden, f = config_.ffn;
    const auto layer_bytes = static_cast<uint64_t>(4 * (2 * h * h + q * q + f * f));
    layers_at_once_ = options_.is_gptq() ? std::max<int32_t>(1, static_cast<int32_t>(std::min<uint64_t>(
                                                                    kHessianBytes / layer_bytes, INT32_MAX)))
                                         : config_.layers;
    return {};
  }

  /// The statistics of a layer's inputs; runs a pass where they are not there yet. Layers are asked for in
  /// order.
  Result<const InputStatistics*> statistics(const Place& place) {
    if (place.layer >= first_watched_ + static_cast<int32_t>(watched_.size())) {
      watched_.clear();
      first_watched_ = place.layer;
      TRY_ASSIGN(watched_, calibrate(backend_, *model_, sequences_,
                                     {.first_layer = place.layer,
                                      .layers = std::min(layers_at_once_, config_.layers - place.layer),
                                      .hessians = options_.is_gptq(),
                                      .threads = options_.threads,
                                      .progress = [&](int64_t done, int64_t all) {
                                        return !hooks_.progress ||
                                               hooks_.progress("calibrate", static_cast<uint64_t>(done),
                                                               static_cast<uint64_t>(all));
                                      }}));
    }
    return &watched_[static_cast<size_t>(place.layer - first_watched_)][static_cast<size_t>(place.input)];
  }

  // --- one tensor ---

  /// What a tensor is to become.
  struct Decision {
    WeightFormat format = WeightFormat::f32;
    std::optional<IntegerFormat> integers;  ///< by the method
    bool changed = false;                   ///< false: its bytes are copied
    std::string note;
  };

  Decision decide(const ModelTensor& tensor) const {
    const HostWeight& weight = tensor.weight;
    const Place place = plan_.place.at(weight.name);
    Decision decision{.format = weight.format};
    if (place.input < 0 && !place.table) return decision;
    if (options_.method == QuantizeMethod::gguf) {
      const auto format = format_in_mix(*options_.mix, weight.name, weight.k, place.layer, config_.layers,
                                        config_.tied_embeddings);
      if (!format) decision.note = fmt::format("stays as it is: {} inputs are no multiple of 32", weight.k);
      decision.format = format.value_or(weight.format);
    } else if (place.input >= 0) {
      decision.integers = options_.format;
    }
    for (const FormatOverride& override : options_.overrides) {
      if (!matches(override.pattern, weight.name)) continue;
      decision.format = override.format;
      decision.integers =
          options_.method == QuantizeMethod::gguf ? std::nullopt : integer_format(override.format);
    }
    if (decision.integers) fit_groups(weight, decision);
    decision.changed = decision.integers || decision.format != weight.format;
    return decision;
  }

  /// The largest group up to the wanted one of which a row is a whole number.
  static void fit_groups(const HostWeight& weight, Decision& decision) {
    IntegerFormat& format = *decision.integers;
    const int wanted = format.group;
    while (format.group >= 32 && weight.k % format.group != 0) format.group /= 2;
    if (format.group >= 32) {
      decision.format = *weight_format_of(format);
      if (format.group != wanted)
        decision.note =
            fmt::format("groups of {}: {} inputs are no multiple of {}", format.group, weight.k, wanted);
      return;
    }
    decision.integers.reset();
    decision.format = weight.format;
    decision.note = fmt::format("stays as it is: {} inputs are no multiple of 32", weight.k);
  }

  Status write_tensor(const PlannedTensor& planned, const Decision& decision, ModelSink& sink) {
    const HostWeight& weight = planned.source->weight;
    TRY(check_outliers(weight));
    TensorReport report{.name = std::string(weight.name),
                        .format = decision.format,
                        .changed = decision.changed,
                        .weights = weight.n * weight.k,
                        .note = decision.note};
    if (!decision.changed) {
      TRY(sink.add(planned, weight));
      report.bytes = weight.stored_bytes();
    } else {
      TRY(write_changed(planned, decision, sink, report));
    }
    drop_pages(weight.bytes);
    done_bytes_ += weight.stored_bytes();
    report_.bytes += report.bytes;
    if (hooks_.on_tensor) hooks_.on_tensor(report);
    report_.tensors.push_back(std::move(report));
    if (hooks_.progress && !hooks_.progress("quantize", done_bytes_, all_bytes_))
      return Error{ErrorKind::cancelled, "stopped by a signal"};
    return {};
  }

  std::vector<float> decode(const HostWeight& weight) const {
    std::vector<float> values(static_cast<size_t>(weight.n * weight.k));
    parallel_for(weight.n, options_.threads,
                 [&](int64_t row) { decode_row(weight, row, values.data() + row * weight.k); });
    return values;
  }

  Status write_changed(const PlannedTensor& planned, const Decision& decision, ModelSink& sink,
                       TensorReport& report) {
    const HostWeight& weight = planned.source->weight;
    const Place place = plan_.place.at(weight.name);
    if (weight.k > 65536 && options_.has_outliers())
      return bad_input(
          fmt::format("tensor {}: found {} inputs, allowed with outliers are 65536", weight.name, weight.k));
    const std::vector<float> values = decode(weight);
    MatrixToQuantize matrix{.name = weight.name,
                            .n = weight.n,
                            .k = weight.k,
                            .weights = values.data(),
                            .threads = options_.threads};
    TRY(check_weights(matrix));
    if (options_.needs_calibration() && place.input >= 0) {
      TRY_ASSIGN(const InputStatistics* statistics_of, statistics(place));
      matrix.moments = statistics_of->moments;
      matrix.hessian = statistics_of->hessian;
    }
    QuantizedMatrix quantized;
    if (decision.integers) {
      TRY_ASSIGN(quantized, quantize(matrix, place, *decision.integers));
    } else {
      quantized = encode(matrix, decision.format);
    }
    const HostWeight made = quantized.view(weight.name);
    TRY(sink.add(planned, made));
    report.bytes = made.stored_bytes();
    report.outliers = static_cast<int64_t>(quantized.outlier_column.size());
    report.error = relative_error(matrix, quantized);
    if (!quantized.note.empty()) report.note += (report.note.empty() ? "" : "; ") + quantized.note;
    return {};
  }

  /// Into one of GGUF's formats, or a dense one.
  static QuantizedMatrix encode(const MatrixToQuantize& matrix, WeightFormat format) {
    const FormatInfo& info = format_info(format);
    const auto row_bytes = static_cast<size_t>(format_bytes_of(format, static_cast<uint64_t>(matrix.k)));
    QuantizedMatrix made{.format = format, .n = matrix.n, .k = matrix.k};
    made.blocks.resize(static_cast<size_t>(matrix.n) * row_bytes);
    parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
      encode_blocks(format, matrix.weights + row * matrix.k,
                    matrix.moments.empty() ? nullptr : matrix.moments.data(),
                    static_cast<size_t>(matrix.k / info.block_weights),
                    made.blocks.data() + static_cast<size_t>(row) * row_bytes);
    });
    return made;
  }

  Result<QuantizedMatrix> quantize(const MatrixToQuantize& matrix, const Place& place,
                                   const IntegerFormat& format) const {
    if (options_.method == QuantizeMethod::rtn) return quantize_rtn(matrix, format, options_.granularity);
    const OutlierShares& shares = options_.shares;
    const double share = !options_.has_outliers()                 ? 0
                         : place.input < 0                        ? shares.head
                         : place.layer < (config_.layers + 7) / 8 ? shares.first
                                                                  : shares.middle;
    if (options_.is_gptq() && !matrix.hessian.empty())
      return quantize_gptq(
          matrix, format,
          {.damping = options_.damping, .act_order = options_.act_order, .outlier_share = share});
    return quantize_outlier(matrix, format, {.share = share, .select = options_.select});
  }

  const ModelFiles& files_;
  const ModelConfig& config_;
  const std::string& source_;
  Backend& backend_;
  const QuantizeOptions& options_;
  const QuantizeHooks& hooks_;
  TensorPlan plan_;
  std::unique_ptr<Model> model_;  ///< the source, loaded for calibration
  std::vector<std::vector<TokenId>> sequences_;
  int32_t layers_at_once_ = 0, first_watched_ = 0;
  std::vector<LayerStatistics> watched_;
  uint64_t all_bytes_ = 0, done_bytes_ = 0;
  QuantizeReport report_;
};

}  // namespace

bool matches(std::string_view pattern, std::string_view name) {
  const size_t star = pattern.find('*');
  if (star == pattern.npos) return pattern == name;
  if (!name.starts_with(pattern.substr(0, star))) return false;
  const std::string_view rest = pattern.substr(star + 1);
  for (size_t i = star; i <= name.size(); ++i)
    if (matches(rest, name.substr(i))) return true;
  return false;
}

std::string describe(const QuantizeOptions& options) {
  if (options.method == QuantizeMethod::gguf)
    return fmt::format("{}{}", options.mix->name, options.calibration_text.empty() ? "" : ", calibrated");
  static constexpr std::string_view kNames[] = {"rtn", "outlier", "gptq", "gptq+outlier"};
  static constexpr std::string_view kGranularity[] = {"tensor", "channel", "group"};
  std::string text = fmt::format("{} {}-bit", kNames[static_cast<int>(options.method)], options.format.bits);
  if (options.granularity == Granularity::group)
    text += fmt::format(" groups of {}", options.format.group);
  else
    text += fmt::format(" a scale a {}", kGranularity[static_cast<int>(options.granularity)]);
  text += options.format.minimum ? " asymmetric" : " symmetric";
  if (options.has_outliers())
    text += fmt::format(", outliers by {} {:g}/{:g}/{:g} %",
                        options.select == OutlierSelect::magnitude ? "magnitude" : "activation",
                        options.shares.first * 100, options.shares.middle * 100, options.shares.head * 100);
  if (options.is_gptq())
    text += fmt::format(", damping {:g}{}", options.damping, options.act_order ? ", act-order" : "");
  if (options.needs_calibration())
    text += fmt::format(", calibrated on {} x {} tokens", options.samples, options.length);
  return text;
}

Result<QuantizeReport> quantize_model(const std::string& source, const std::string& destination,
                                      Backend& backend, const QuantizeOptions& options,
                                      const QuantizeHooks& hooks) {
  TRY_ASSIGN(const ModelFiles files, ModelFiles::open(source));
  if (files.tensors().empty())
    return bad_input(fmt::format("{}: found a vocabulary and no weights, allowed is a model", source));
  TRY_ASSIGN(const ModelConfig config, read_config(files, 0));
  return Quantizer(files, config, source, backend, options, hooks).run(destination);
}

}  // namespace quintet
