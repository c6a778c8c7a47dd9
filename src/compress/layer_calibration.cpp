// One layer as a model of its own, between a backend that puts rows in and takes rows out.
#include "compress/layer_calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/parallel.h"
#include "base/units.h"
#include "compress/observing_backend.h"
#include "engine/engine_client.h"
#include "model/loader.h"
#include "quant/products.h"
#include "quant/quantize.h"

namespace quintet {
namespace {

constexpr int32_t kChunk_tokens = 512;
constexpr int32_t kDeviceChunk_tokens = 2048;  ///< what products of a GPU take at full speed; in memory of a host too much
constexpr int32_t kLogitsChunk_tokens = 128;

double seconds_since(int64_t begin_us) { return static_cast<double>(now_us() - begin_us) * 1e-6; }

/// Sums up the inputs of some of a layer's weights.
class Watcher {
 public:
  Watcher(LayerWeights& layer, const PassRequest& request, const LayerCalibration::Setup& setup)
      : solver_(request.hessians ? setup.solver : nullptr), hessians_(request.hessians && !solver_), threads_(setup.threads) {
    made_.resize(kLayerInputs);
    const auto weights = input_weights(layer);
    for (int i = 0; i < kLayerInputs; ++i) {
      if (!request.inputs[i]) continue;
      InputStatistics& of = made_[static_cast<size_t>(i)];
      of.k = weights[static_cast<size_t>(i)]->k;
      of.moments.resize(static_cast<size_t>(of.k));
      if (hessians_) of.hessian.resize(static_cast<size_t>(of.k * of.k));
      by_weight_[weights[static_cast<size_t>(i)]] = &of;
    }
  }

  bool wants(const Weight& weight) const { return by_weight_.contains(&weight); }

  /// On the device, where there is a solver.
  Status begin() {
    if (!solver_) return {};
    QUINTET_CHECK(by_weight_.size() == 1, "Hessians of {} inputs at a time on a device", by_weight_.size());
    return solver_->begin(by_weight_.begin()->second->k);
  }
  bool sees_on_device() const { return solver_ != nullptr; }
  Status see_on_device(const Weight& weight, ConstMatrixView x) {
    by_weight_.at(&weight)->rows += x.rows;
    return solver_->add(x);
  }

  void see(const Weight& weight, const float* x, int64_t rows, int64_t k) {
    InputStatistics& of = *by_weight_.at(&weight);
    of.rows += rows;
    if (hessians_) {
      const FloatMatrix inputs{const_cast<float*>(x), rows, k, k};  // read alone
      add_product(inputs, inputs, 1, true, threads_, {of.hessian.data(), k, k, k});
      return;
    }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < k; ++i) of.moments[static_cast<size_t>(i)] += x[r * k + i] * x[r * k + i];
  }

  Result<LayerStatistics> finish() {
    for (InputStatistics& of : made_) {
      if (of.k == 0) continue;
      if (solver_) {
        TRY_ASSIGN(of.moments, solver_->moments());
      } else {
        finish(of);
      }
    }
    return std::move(made_);
  }

 private:
  void finish(InputStatistics& of) const {
    const float scale = 1 / static_cast<float>(std::max<int64_t>(of.rows, 1));
    if (of.hessian.empty()) {
      for (float& moment : of.moments) moment *= scale;
      return;
    }
    const FloatMatrix h{of.hessian.data(), of.k, of.k, of.k};
    for (int64_t i = 0; i < of.k; ++i) {
      for (int64_t j = i; j < of.k; ++j) h.row(i)[j] *= scale;
      of.moments[static_cast<size_t>(i)] = h.row(i)[i];
    }
    mirror(h, true, threads_);  // the upper half alone was summed
  }

  WeightSolver* solver_;
  bool hessians_;  ///< summed up here
  int threads_;
  LayerStatistics made_;
  std::unordered_map<const Weight*, InputStatistics*> by_weight_;
};

}  // namespace

void embed_rows(const HostWeight& table, std::span<const std::vector<TokenId>> sequences, float scale, float* rows, int threads) {
  for (const auto& sequence : sequences) {
    parallel_for(static_cast<int64_t>(sequence.size()), threads, [&](int64_t i) {
      float* row = rows + i * table.k;
      decode_row(table, sequence[static_cast<size_t>(i)], row);
      for (int64_t j = 0; j < table.k; ++j) row[j] *= scale;
    });
    rows += static_cast<int64_t>(sequence.size()) * table.k;
  }
}

std::array<Weight*, kLayerInputs> input_weights(LayerWeights& layer) {
  return {&layer.qkv, &layer.attn_out, &layer.gate_up, &layer.mlp_out};
}

Result<std::unique_ptr<LayerCalibration>> LayerCalibration::make(const Setup& setup, HiddenStates states,
                                                                 int32_t first_layer) {
  std::unique_ptr<LayerCalibration> made(new LayerCalibration(setup, std::move(states)));
  const Architecture* architecture = find_architecture(setup.config.architecture);
  QUINTET_CHECK(architecture, "no architecture '{}'", setup.config.architecture);
  TRY_ASSIGN(made->plan_, plan_weights(setup.files, *architecture, setup.config, made->planned_for_));
  made->one_.config = setup.config;
  made->one_.config.layers = 1;
  made->one_.weights.layer.resize(1);
  if (first_layer == 0) TRY(made->enter_embedding());
  made->keep_inputs();
  return made;
}

Status LayerCalibration::enter_embedding() {
  const int64_t begin_us = now_us();
  if (!states_.on_backend()) return embed(setup_.tokens, states_.row_in(0));
  const PlannedWeight& table = planned_of(&planned_for_.embedding);
  QuantizedMatrix made;
  TRY_ASSIGN(const HostWeight weight, made_of(table.parts[0], made));
  std::vector<float> rows;
  int64_t first = 0;
  for (const auto& sequence : setup_.tokens) {
    rows.resize(sequence.size() * static_cast<size_t>(weight.k));
    embed_rows(weight, {&sequence, 1}, setup_.config.embedding_scale, rows.data(), setup_.threads);
    TRY(setup_.backend.write({reinterpret_cast<const uint8_t*>(rows.data()), rows.size() * sizeof(float)}, states_.row_in(first)));
    first += static_cast<int64_t>(sequence.size());
  }
  LOG_DEBUG("embedding of {} tokens in {:.3f} s", first, seconds_since(begin_us));
  return {};
}

/// Without room passes begin farther in front.
void LayerCalibration::keep_inputs() {
  if (!states_.on_backend()) return;
  const ModelConfig& config = setup_.config;
  const uint64_t row_bytes = dtype_bytes(setup_.backend.info().activation);
  uint64_t left = setup_.kept_bytes;
  for (const auto& [input, k] : {std::pair(1, int64_t{config.heads} * config.head_dim), std::pair(3, int64_t{config.ffn})}) {
    const uint64_t bytes = static_cast<uint64_t>(states_.tokens() * k) * row_bytes;
    if (bytes > left) continue;
    auto buffer = setup_.backend.allocate(bytes, BufferUse::workspace);
    if (!buffer) continue;
    kept_[input] = std::move(buffer).value();
    left -= bytes;
  }
}

const PlannedWeight& LayerCalibration::planned_of(const Weight* target) const {
  const auto planned =
      std::find_if(plan_.begin(), plan_.end(), [&](const PlannedWeight& weight) { return weight.target == target; });
  QUINTET_CHECK(planned != plan_.end(), "a weight of layer {} that no plan has", layer_);
  return *planned;
}

Status LayerCalibration::embed(const CalibrationTokens& sequences, float* rows) const {
  const PlannedWeight& table = planned_of(&planned_for_.embedding);
  QuantizedMatrix made;
  TRY_ASSIGN(const HostWeight weight, made_of(table.parts[0], made));
  embed_rows(weight, sequences, setup_.config.embedding_scale, rows, setup_.threads);
  return {};
}

Status LayerCalibration::prepare(const PlannedWeight& planned, std::span<const HostWeight> parts, Weight& target) {
  TRY_ASSIGN(target, prepare_weight(setup_.files.path(), planned, parts, vectors_, setup_.backend));
  return {};
}

Status LayerCalibration::load(int32_t layer) {
  const int64_t begin_us = now_us();
  layer_ = layer;
  reached_ = 0;
  one_.config.layer = {setup_.config.layer[static_cast<size_t>(layer)]};
  one_.weights.layer[0] = {};
  vectors_.clear();
  const LayerWeights& from = planned_for_.layer[static_cast<size_t>(layer)];
  LayerWeights& to = one_.weights.layer[0];
  for (const PlannedWeight& planned : plan_) {
    const auto* at = reinterpret_cast<const std::byte*>(planned.target);
    const auto* begin = reinterpret_cast<const std::byte*>(&from);
    if (std::less<>()(at, begin) || !std::less<>()(at, begin + sizeof from)) continue;
    TRY(prepare(planned, planned.parts, *reinterpret_cast<Weight*>(reinterpret_cast<std::byte*>(&to) + (at - begin))));
    for (const HostWeight& part : planned.parts) drop_pages(part.bytes);
  }
  LOG_DEBUG("layer {}: weights in {:.3f} s", layer, seconds_since(begin_us));
  return {};
}

Status LayerCalibration::replace(int input, const std::map<std::string, HostWeight, std::less<>>& made) {
  const PlannedWeight& planned =
      planned_of(input_weights(planned_for_.layer[static_cast<size_t>(layer_)])[static_cast<size_t>(input)]);
  std::vector<HostWeight> parts = planned.parts;
  std::map<std::string_view, int64_t> rows_before;  // of parts that are rows of one tensor
  for (HostWeight& part : parts) {
    const auto found = made.find(part.name);
    int64_t& first = rows_before[part.name];
    const int64_t rows = part.n;
    if (found != made.end()) part = found->second.n == rows ? found->second : found->second.slice_rows(first, rows);
    first += rows;
  }
  return prepare(planned, parts, *input_weights(one_.weights.layer[0])[static_cast<size_t>(input)]);
}

Status LayerCalibration::restore(int input) { return replace(input, {}); }

Status LayerCalibration::through(const CalibrationTokens& sequences, float* rows) {
  // Rows enter before those of the same chunk leave, and those of chunks before are not needed any more.
  float *in = rows, *out = rows;
  ObservingOptions options{.wants = [](const Weight&) { return false; }};
  options.enter = [&](int64_t count) { return std::exchange(in, in + count * states_.hidden()); };
  options.leave = [&](int64_t count) { return std::exchange(out, out + count * states_.hidden()); };
  const auto observed = make_observing_backend(setup_.backend, std::move(options));
  return prompt_passes(*observed, one_, sequences, kChunk_tokens, nullptr);
}

Status LayerCalibration::prepare_head(const HostWeight* made) {
  if (head_ && head_made_ == made) return {};
  head_ = std::make_unique<Model>();
  head_made_ = made;
  head_->config = setup_.config;
  head_->config.layers = 0;
  head_->config.layer.clear();
  TRY(prepare(planned_of(&planned_for_.output_norm), planned_of(&planned_for_.output_norm).parts, head_->weights.output_norm));
  const bool tied = setup_.config.tied_embeddings;
  const PlannedWeight& planned = planned_of(tied ? &planned_for_.embedding : &planned_for_.head);
  std::vector<HostWeight> parts = planned.parts;
  if (made) parts = {*made};
  return prepare(planned, parts, tied ? head_->weights.embedding : head_->weights.head);
}

Status LayerCalibration::read_out(const CalibrationTokens& sequences, const float* rows, const HostWeight* made,
                                  const LogitsSink& sink) {
  TRY(prepare_head(made));
  ObservingOptions options{.wants = [](const Weight&) { return false; }};
  options.enter = [&](int64_t count) { return std::exchange(rows, rows + count * states_.hidden()); };
  const auto observed = make_observing_backend(setup_.backend, std::move(options));
  for (const auto& sequence : sequences)
    TRY(prompt_logits(*observed, *head_, sequence, kLogitsChunk_tokens, [&](int32_t, int32_t count, const float* logits) {
      for (int32_t r = 0; r < count; ++r) sink(logits + int64_t{r} * setup_.config.vocabulary);
      return Status();
    }));
  return {};
}

Result<LayerStatistics> LayerCalibration::pass(const PassRequest& request) {
  QUINTET_CHECK(reached_ == 0 || request.sequential, "a pass from the layer's beginning behind sequential ones");
  const int64_t begin_us = now_us();
  LayerWeights& layer = one_.weights.layer[0];
  Watcher watcher(layer, request, setup_);
  TRY(watcher.begin());
  ObservingOptions options{
      .wants = [&](const Weight& weight) { return watcher.wants(weight); },
      .sink = [&](const Weight& weight, const float* x, int64_t rows, int64_t k) { watcher.see(weight, x, rows, k); }};
  if (watcher.sees_on_device())
    options.device_sink = [&](const Weight& weight, ConstMatrixView x) { return watcher.see_on_device(weight, x); };
  int64_t entered = 0, left = 0;
  options.enter = [&](int64_t count) { return states_.row_in(std::exchange(entered, entered + count)); };
  if (request.advance) {
    options.leave = [&](int64_t count) { return states_.row_out(std::exchange(left, left + count)); };
  } else {
    for (int i = 0; i < kLayerInputs; ++i)
      if (request.inputs[i]) options.last = input_weights(layer)[static_cast<size_t>(i)];
  }
  if (request.sequential && states_.on_backend()) go_on(request, options);
  const auto observed = make_observing_backend(setup_.backend, std::move(options));
  TRY(prompt_passes(*observed, one_, setup_.tokens, setup_.backend.info().asynchronous ? kDeviceChunk_tokens : kChunk_tokens,
                    [&]() -> Status {
                      if (setup_.goes_on && !setup_.goes_on()) return Error{ErrorKind::cancelled, "stopped by a signal"};
                      return {};
                    }));
  if (request.advance) TRY(states_.swap());
  auto finished = watcher.finish();  // waits for the device
  LOG_DEBUG("layer {}: pass for input {}{} in {:.3f} s", layer_, std::find(request.inputs, request.inputs + kLayerInputs, true) - request.inputs,
            request.advance ? " and on" : "", seconds_since(begin_us));
  return finished;
}

std::function<uint8_t*(int64_t count)> LayerCalibration::kept_rows(int input) {
  const auto row_bytes = static_cast<int64_t>(kept_[input].bytes()) / states_.tokens();
  return [at = kept_[input].as<uint8_t>(), row_bytes](int64_t count) mutable { return std::exchange(at, at + count * row_bytes); };
}

void LayerCalibration::go_on(const PassRequest& request, ObservingOptions& options) {
  const auto weights = input_weights(one_.weights.layer[0]);
  const int wanted = static_cast<int>(std::find(request.inputs, request.inputs + kLayerInputs, true) - request.inputs);
  if (reached_ > 0) options.first = weights[static_cast<size_t>(reached_)];
  if (reached_ % 2 == 1) options.resume = kept_rows(reached_);
  if (wanted == 2) {
    options.leave_before = weights[2];
    options.leave = [this, left = int64_t{0}](int64_t count) mutable { return states_.row_out(std::exchange(left, left + count)); };
    reached_ = 2;
  } else if (wanted < kLayerInputs && kept_[wanted].data()) {
    options.kept = weights[static_cast<size_t>(wanted)];
    options.keep = kept_rows(wanted);
    reached_ = wanted;
  }
}

Status check_statistics(const std::string& source, int32_t layer, const LayerStatistics& statistics) {
  static constexpr std::string_view kNames[kLayerInputs] = {"q, k and v", "the attention's output projection", "gate and up",
                                                            "down"};
  for (size_t i = 0; i < statistics.size(); ++i)
    for (size_t j = 0; j < statistics[i].moments.size(); ++j)
      if (!std::isfinite(statistics[i].moments[j]))
        return bad_input(fmt::format("{}: layer {}: input {} of {} is NaN or infinite on the calibration text, allowed are finite ones",
                                     source, layer, j, kNames[i]));
  return {};
}

Result<CalibrationTokens> calibration_sequences(const Tokenizer& tokenizer, const CalibrationText& text,
                                                int64_t samples, int64_t length) {
  const std::vector<TokenId> tokens = tokenizer.encode(text.text, {.add_bos = false, .parse_special = text.special});
  const TokenizerSpec& spec = tokenizer.spec();
  const int64_t lead = spec.add_bos && spec.bos ? 1 : 0, body = length - lead;
  const int64_t there = static_cast<int64_t>(tokens.size()) / body;
  if (there < 1)
    return bad_input(fmt::format("calibration text: found {} tokens, allowed are {} and more (--length)",
                                 tokens.size(), body));
  const int64_t count = std::min(samples, there);
  CalibrationTokens sequences;
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i * there / count * body);
    std::vector<TokenId>& sequence = sequences.emplace_back();
    if (lead) sequence.push_back(*spec.bos);
    sequence.insert(sequence.end(), begin, begin + static_cast<std::ptrdiff_t>(body));
  }
  return sequences;
}

Result<CalibrationTokens> calibration_sequences(const CalibrationRequest& request) {
  const auto text = load_text(request.source, {});
  if (!text)
    return bad_input(fmt::format("{}; allowed with calibration is a model with a tokenizer", text.error().message));
  if (request.length > request.config.context)
    return bad_input(fmt::format("--length: found {}, allowed are at most {} (what {} was made for)", request.length,
                                 request.config.context, request.source));
  TRY_ASSIGN(CalibrationTokens sequences,
             calibration_sequences(*(*text)->tokenizer, request.text, request.samples, request.length));
  for (const auto& sequence : sequences)
    for (const TokenId token : sequence)
      if (token >= request.config.vocabulary)
        return bad_input(fmt::format("{}: the tokenizer gives token {}, allowed are those below {}", request.source, token,
                                     request.config.vocabulary));
  return sequences;
}

}  // namespace quintet
