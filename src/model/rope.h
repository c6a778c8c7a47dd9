// Inverse frequencies of rotary embeddings and the ways to stretch them beyond the length a model was trained
// on.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/config.h"

namespace quintet {

/// How a model's rotary embedding was stretched. "dynamic" is not among them: its frequencies depend on the
/// length so far, so keys that are already cached would have to change.
struct RopeScaling {
  enum class Kind : uint8_t {
    none,
    linear,    ///< every frequency divided by `factor` (Chen et al., "Position Interpolation", 2023)
    llama3,    ///< low frequencies divided, high ones kept, a ramp between (Llama 3.1)
    yarn,      ///< the same by rotations, plus an attention factor (Peng et al., "YaRN", 2023)
    divisors,  ///< every frequency divided by its own number (LongRoPE's lists, GGUF's rope_freqs.weight)
  };
  Kind kind = Kind::none;
  double factor = 1;
  double original_context = 0;
  double low_freq_factor = 1, high_freq_factor = 4;  ///< llama3
  double beta_fast = 32, beta_slow = 1;              ///< yarn: rotations over the original context
  bool truncate = true;                              ///< yarn: whole dimensions as the ramp's ends
  std::optional<double> attention_factor;  ///< yarn: absent: 0.1 ln(factor) + 1; divisors: absent: 1
  std::vector<float> divisors;             ///< [dims / 2]
};

/// [dims / 2] frequencies base^(-2i / dims), in the float arithmetic that models were trained with, then
/// scaled.
RopeConfig make_rope(RopeStyle style, int32_t dims, double base, const RopeScaling& scaling);

}  // namespace quintet
