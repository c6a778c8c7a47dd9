// From floats to the blocks of GGUF's formats: the other direction of the codecs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/format.h"

namespace quintet {

/// Whether encode_blocks() knows the format: f32, f16, bf16, q4_0 to q8_0, q2_k to q6_k, iq4_nl and iq4_xs.
bool can_encode(WeightFormat format);

/// Encodes `blocks` blocks of finite values so that sum importance * (value - decoded)^2 is small: scales are
/// searched, then fitted by least squares to the codes that they give. `importance` [blocks * block_weights]
/// (second moments of the inputs: an importance matrix) may be null: all weigh the same. `out` [blocks *
/// block_bytes].
void encode_blocks(WeightFormat format, const float* values, const float* importance, size_t blocks,
                   uint8_t* out);

}  // namespace quintet
