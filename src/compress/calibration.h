// What a model's linear layers see of a text: second moments and Hessians of their inputs.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "model/model.h"

namespace quintet {

/// Of the inputs of one weight; tensors that are parts of one weight (q, k and v) share it.
struct InputStatistics {
  int64_t k = 0;
  int64_t rows = 0;            ///< inputs that were seen
  std::vector<float> moments;  ///< [k] mean of x_j^2
  std::vector<float> hessian;  ///< [k, k] mean of x_i x_j; empty where not asked for
};

/// By layer: the inputs of qkv, attn_out, gate_up and mlp_out, in this order.
inline constexpr int kLayerInputs = 4;
using LayerStatistics = std::vector<InputStatistics>;  ///< [kLayerInputs]

struct CalibrationRequest {
  int32_t first_layer = 0, layers = 0;  ///< which layers to watch
  bool hessians = false;
  int threads = 0;
  std::function<bool(int64_t done_tokens, int64_t all_tokens)> progress;  ///< false: stop (cancelled)
};

/// Runs the sequences through the model once and gives the statistics of the layers asked for, in order.
Result<std::vector<LayerStatistics>> calibrate(Backend& backend, const Model& model,
                                               const std::vector<std::vector<TokenId>>& sequences,
                                               const CalibrationRequest& request);

/// `samples` stretches of `length` tokens, spread evenly over the text, each with BOS where the tokenizer
/// adds one. Fewer where the text is shorter, without overlap. bad_input where it has not even one.
Result<std::vector<std::vector<TokenId>>> calibration_sequences(const Model& model, std::string_view text,
                                                                int64_t samples, int64_t length);

}  // namespace quintet
