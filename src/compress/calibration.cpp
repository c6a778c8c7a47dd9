// Watches the products of a forward pass and sums up their inputs.
#include "compress/calibration.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "compress/observing_backend.h"
#include "engine/engine_client.h"
#include "quant/products.h"

namespace quintet {
namespace {

constexpr int32_t kChunk_tokens = 512;

class Watcher {
 public:
  Watcher(const Model& model, const CalibrationRequest& request) : request_(request) {
    made_.resize(static_cast<size_t>(request.layers));
    for (int32_t i = 0; i < request.layers; ++i) {
      const LayerWeights& layer = model.weights.layer[static_cast<size_t>(request.first_layer + i)];
      LayerStatistics& statistics = made_[static_cast<size_t>(i)];
      statistics.resize(kLayerInputs);
      const Weight* weights[kLayerInputs] = {&layer.qkv, &layer.attn_out, &layer.gate_up, &layer.mlp_out};
      for (int j = 0; j < kLayerInputs; ++j) {
        InputStatistics& of = statistics[static_cast<size_t>(j)];
        of.k = weights[j]->k;
        of.moments.resize(static_cast<size_t>(of.k));
        if (request.hessians) of.hessian.resize(static_cast<size_t>(of.k * of.k));
        by_weight_[weights[j]] = &of;
      }
    }
  }

  bool wants(const Weight& weight) const { return by_weight_.contains(&weight); }

  void see(const Weight& weight, const float* x, int64_t rows, int64_t k) {
    InputStatistics& of = *by_weight_.at(&weight);
    of.rows += rows;
    if (request_.hessians) {
      const FloatMatrix inputs{const_cast<float*>(x), rows, k, k};  // read alone
      add_product(inputs, inputs, 1, true, request_.threads, {of.hessian.data(), k, k, k});
      return;
    }
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < k; ++i) of.moments[static_cast<size_t>(i)] += x[r * k + i] * x[r * k + i];
  }

  std::vector<LayerStatistics> finish() {
    for (LayerStatistics& layer : made_)
      for (InputStatistics& of : layer) finish(of);
    return std::move(made_);
  }

 private:
  static void finish(InputStatistics& of) {
    const float scale = 1 / static_cast<float>(std::max<int64_t>(of.rows, 1));
    if (of.hessian.empty()) {
      for (float& moment : of.moments) moment *= scale;
      return;
    }
    const auto at = [&](int64_t i, int64_t j) -> float& {
      return of.hessian[static_cast<size_t>(i * of.k + j)];
    };
    for (int64_t i = 0; i < of.k; ++i) {
      for (int64_t j = i; j < of.k; ++j) at(j, i) = at(i, j) *= scale;  // the upper half alone was summed
      of.moments[static_cast<size_t>(i)] = at(i, i);
    }
  }

  const CalibrationRequest& request_;
  std::vector<LayerStatistics> made_;
  std::unordered_map<const Weight*, InputStatistics*> by_weight_;
};

}  // namespace

Result<std::vector<LayerStatistics>> calibrate(Backend& backend, const Model& model,
                                               const std::vector<std::vector<TokenId>>& sequences,
                                               const CalibrationRequest& request) {
  Watcher watcher(model, request);
  const auto observed = make_observing_backend(
      backend, [&](const Weight& weight) { return watcher.wants(weight); },
      [&](const Weight& weight, const float* x, int64_t rows, int64_t k) {
        watcher.see(weight, x, rows, k);
      });
  int64_t all = 0, done = 0;
  for (const auto& sequence : sequences) all += static_cast<int64_t>(sequence.size());
  for (const auto& sequence : sequences) {
    TRY(prompt_pass(*observed, model, sequence, kChunk_tokens));
    done += static_cast<int64_t>(sequence.size());
    if (request.progress && !request.progress(done, all))
      return Error{ErrorKind::cancelled, "stopped by a signal"};
  }
  return watcher.finish();
}

Result<std::vector<std::vector<TokenId>>> calibration_sequences(const Model& model, std::string_view text,
                                                                int64_t samples, int64_t length) {
  const std::vector<TokenId> tokens = model.tokenizer->encode(text, {.add_bos = false});
  const TokenizerSpec& spec = model.tokenizer->spec();
  const int64_t lead = spec.add_bos && spec.bos ? 1 : 0, body = length - lead;
  const int64_t there = static_cast<int64_t>(tokens.size()) / body;
  if (there < 1)
    return bad_input(fmt::format("calibration text: found {} tokens, allowed are {} and more (--length)",
                                 tokens.size(), body));
  const int64_t count = std::min(samples, there);
  std::vector<std::vector<TokenId>> sequences;
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = tokens.begin() + static_cast<std::ptrdiff_t>(i * there / count * body);
    std::vector<TokenId>& sequence = sequences.emplace_back();
    if (lead) sequence.push_back(*spec.bos);
    sequence.insert(sequence.end(), begin, begin + static_cast<std::ptrdiff_t>(body));
  }
  return sequences;
}

}  // namespace quintet
