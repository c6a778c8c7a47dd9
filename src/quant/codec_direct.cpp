// NF4, E4M3 and bytes under scales of blocks and rows.
#include "quant/blocks.h"
#include "quant/codecs.h"
#include "tensor/float8.h"

namespace quintet {
namespace {

void decode_nf4_block(const uint8_t* q, float scale, float* out) {
  for (int i = 0; i < kNf4BlockWeights / 2; ++i) {
    out[2 * i] = scale * kNf4Values[q[i] >> 4];
    out[2 * i + 1] = scale * kNf4Values[q[i] & 15];
  }
}

}  // namespace

void decode_nf4(const uint8_t* in, size_t blocks, float* out) {
  for (size_t i = 0; i < blocks; ++i, in += sizeof(BlockNf4), out += kNf4BlockWeights)
    decode_nf4_block(in + 2, load_f16(in), out);
}

void decode_nf4_dq(const uint8_t* in, size_t blocks, float row_scale, float* out) {
  for (size_t i = 0; i < blocks; ++i, in += sizeof(BlockNf4Dq), out += kNf4BlockWeights)
    decode_nf4_block(in + 1, row_scale * static_cast<float>(in[0]), out);
}

void decode_fp8(const uint8_t* in, size_t blocks, float row_scale, float* out) {
  for (size_t i = 0; i < blocks * kSmallBlockWeights; ++i) out[i] = row_scale * f8_to_f32(in[i]);
}

void decode_int8(const uint8_t* in, size_t blocks, float row_scale, float* out) {
  for (size_t i = 0; i < blocks * kSmallBlockWeights; ++i)
    out[i] = row_scale * static_cast<float>(static_cast<int8_t>(in[i]));
}

}  // namespace quintet
