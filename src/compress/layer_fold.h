// AWQ: what weights are multiplied with before they are rounded, and what takes it back in front of them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/result.h"
#include "compress/layer_calibration.h"
#include "compress/tensor_plan.h"

namespace quintet {

/// Scales of the four inputs of a layer, s [k] each, empty where there are none. The columns of a weight are multiplied by
/// its input's scales; the norm, or the rows of the weight, that the input comes from are divided by them. So the layer
/// computes the same, but rounding hits the columns that matter less.
struct LayerFold {
  std::vector<float> scales[kLayerInputs];

  /// Changes the values [n, k] of one of the layer's tensors.
  void apply(const TensorPlace& place, const ModelConfig& config, int64_t n, int64_t k, float* values) const;
  /// Whether apply() changes such a tensor.
  bool touches(const TensorPlace& place) const;
  /// The moments of the inputs as the changed weights see them.
  std::vector<float> moments(int input, const std::vector<float>& before) const;
};

/// Lin et al., "AWQ: Activation-aware Weight Quantization" (2023): s_j = (size of input j)^a, a searched for each input
/// on rows of the weights that share it, spread over all of them. Heads that share keys and values share their scales.
Result<LayerFold> search_fold(const std::vector<const TensorTask*>& layer, const ModelConfig& config,
                              const LayerStatistics& statistics, int threads);

}  // namespace quintet
