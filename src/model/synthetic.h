// Models of a known shape with random weights: for measuring speed, where real weights cannot be had. Their text is noise.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "model/model.h"

namespace quintet {

struct SyntheticOptions {
  std::string_view shape = "llama3-70b";  ///< llama3-8b, llama3-70b, qwen2-72b; tiny, tiny-wide, tiny-96, tiny-256 and tiny-ffn for tests
  WeightFormat format = WeightFormat::int4_g128;
  double outliers = 0;                    ///< share of the weights of linear layers that are kept apart as FP16
  int32_t layers = 0;                     ///< 0: as many as the shape has
  uint64_t seed = 1;
  /// As LoadOptions::admit.
  std::function<Status(const ModelNeeds&)> admit;
};

/// Every layer's weights are distinct random blocks with scales that keep activations near 1. The tokenizer makes one
/// token of each byte and writes every other id as its number (" #4711"), so that requests pass through text as real ones
/// do; the template puts one message after the other. bad_input names the shapes and formats there are.
Result<std::unique_ptr<Model>> make_synthetic_model(const SyntheticOptions& options, Backend& backend);

/// The network of such a shape; `layers` 0: as many as it has.
Result<ModelConfig> synthetic_config(std::string_view shape, int32_t layers);

}  // namespace quintet
