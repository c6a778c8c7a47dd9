// From floats to the blocks of GGUF's formats: the other direction of the codecs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/cpu_simd.h"
#include "quant/format.h"

namespace quintet {

/// Whether encode_blocks() knows the format: f32, f16, bf16, q4_0 to q8_0, q2_k to q6_k, iq4_nl and iq4_xs.
bool can_encode(WeightFormat format);

/// Encodes whole blocks of finite values so that sum importance * (value - decoded)^2 is small: scales are
/// searched, then fitted by least squares to the codes that they give. `importance` (second moments of the
/// inputs: an importance matrix) is that of a row, whole blocks, and repeats; empty: all weigh the same.
/// `out` [blocks * block_bytes]. `simd` is for tests: all give the same bytes.
void encode_blocks(WeightFormat format, std::span<const float> values, std::span<const float> importance,
                   uint8_t* out, CpuSimd simd = CpuSimd::best);

}  // namespace quintet
