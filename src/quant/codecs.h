// The scalar decoders that the format table points to: the oracle of every faster path. Blocks are those of
// GGUF files; results equal the PyPI package `gguf` (gguf.quants.dequantize) bit for bit, so each keeps its
// order of operations.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quintet {

void decode_f32(const uint8_t* in, size_t blocks, float* out);
void decode_f16(const uint8_t* in, size_t blocks, float* out);
void decode_bf16(const uint8_t* in, size_t blocks, float* out);

void decode_int4_g128(const uint8_t* in, size_t blocks, float* out);
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

}  // namespace quintet
