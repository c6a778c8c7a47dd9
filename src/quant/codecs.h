// The scalar decoders that the format table points to: the oracle of every faster path. Of blocks of GGUF
// files the results equal the PyPI package `gguf` (gguf.quants.dequantize) bit for bit, so each keeps its
// order of operations.
#pragma once

#include <cstddef>
#include <cstdint>

#include "quant/integer_format.h"

namespace quintet {

void decode_f32(const uint8_t* in, size_t blocks, float* out);
void decode_f16(const uint8_t* in, size_t blocks, float* out);
void decode_bf16(const uint8_t* in, size_t blocks, float* out);

void decode_q4_0(const uint8_t* in, size_t blocks, float* out);
void decode_q4_1(const uint8_t* in, size_t blocks, float* out);
void decode_q5_0(const uint8_t* in, size_t blocks, float* out);
void decode_q5_1(const uint8_t* in, size_t blocks, float* out);
void decode_q8_0(const uint8_t* in, size_t blocks, float* out);

void decode_q2_k(const uint8_t* in, size_t blocks, float* out);
void decode_q3_k(const uint8_t* in, size_t blocks, float* out);
void decode_q4_k(const uint8_t* in, size_t blocks, float* out);
void decode_q5_k(const uint8_t* in, size_t blocks, float* out);
void decode_q6_k(const uint8_t* in, size_t blocks, float* out);

void decode_iq4_nl(const uint8_t* in, size_t blocks, float* out);
void decode_iq4_xs(const uint8_t* in, size_t blocks, float* out);
void decode_iq2_xxs(const uint8_t* in, size_t blocks, float* out);
void decode_iq2_xs(const uint8_t* in, size_t blocks, float* out);
void decode_iq2_s(const uint8_t* in, size_t blocks, float* out);
void decode_iq3_xxs(const uint8_t* in, size_t blocks, float* out);
void decode_iq3_s(const uint8_t* in, size_t blocks, float* out);

/// Blocks of any member of the project's family of integers.
void decode_integer_blocks(const IntegerFormat& format, const uint8_t* in, size_t blocks, float* out);

void decode_nf4(const uint8_t* in, size_t blocks, float* out);
void decode_nf4_dq(const uint8_t* in, size_t blocks, float row_scale, float* out);
void decode_fp8(const uint8_t* in, size_t blocks, float row_scale, float* out);
void decode_int8(const uint8_t* in, size_t blocks, float row_scale, float* out);

/// Under a scale of 1.
template <void (*kDecode)(const uint8_t*, size_t, float, float*)>
void decode_unscaled(const uint8_t* in, size_t blocks, float* out) {
  kDecode(in, blocks, 1, out);
}

template <WeightFormat kFormat>
void decode_integers(const uint8_t* in, size_t blocks, float* out) {
  decode_integer_blocks(*integer_format(kFormat), in, blocks, out);
}

}  // namespace quintet
