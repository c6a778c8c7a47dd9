// Scalar decoders of dense types and of the formats with blocks of 32 weights.
#include <bit>
#include <cstring>

#include "quant/blocks.h"
#include "quant/codecs.h"
#include "quant/row_kernels.h"

namespace quintet {

void decode_f32(const uint8_t* in, size_t blocks, float* out) {
  static_assert(std::endian::native == std::endian::little);
  if (blocks > 0) std::memcpy(out, in, blocks * sizeof(float));
}

void decode_f16(const uint8_t* in, size_t blocks, float* out) { row_kernels().decode_f16(in, blocks, out); }

void decode_bf16(const uint8_t* in, size_t blocks, float* out) {
  for (size_t i = 0; i < blocks; ++i) out[i] = bf16_to_f32(load_u16(in + 2 * i));
}

namespace {
/// q of weight i (of 32) in 16 bytes of halves.
int nibble(const uint8_t* q, int i) { return i < 16 ? q[i] & 15 : q[i - 16] >> 4; }
}  // namespace

void decode_q4_0(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockQ4_0*>(in), *end = block + blocks; block != end;
       ++block, out += 32) {
    const float d = load_f16(block->d);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block->q, i) - 8);
  }
}

void decode_q4_1(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockQ4_1*>(in), *end = block + blocks; block != end;
       ++block, out += 32) {
    const float d = load_f16(block->d), m = load_f16(block->m);
    for (int i = 0; i < 32; ++i) out[i] = d * static_cast<float>(nibble(block->q, i)) + m;
  }
}

void decode_q5_0(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockQ5_0*>(in), *end = block + blocks; block != end;
       ++block, out += 32) {
    const float d = load_f16(block->d);
    const uint32_t high = load_u32(block->high);
    for (int i = 0; i < 32; ++i) {
      const int q = nibble(block->q, i) | static_cast<int>((high >> i) & 1) << 4;
      out[i] = d * static_cast<float>(q - 16);
    }
  }
}

void decode_q5_1(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockQ5_1*>(in), *end = block + blocks; block != end;
       ++block, out += 32) {
    const float d = load_f16(block->d), m = load_f16(block->m);
    const uint32_t high = load_u32(block->high);
    for (int i = 0; i < 32; ++i) {
      const int q = nibble(block->q, i) | static_cast<int>((high >> i) & 1) << 4;
      out[i] = d * static_cast<float>(q) + m;
    }
  }
}

void decode_q8_0(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockQ8_0*>(in), *end = block + blocks; block != end;
       ++block, out += 32) {
    const float d = load_f16(block->d);
    for (int i = 0; i < 32; ++i) out[i] = static_cast<float>(static_cast<int8_t>(block->q[i])) * d;
  }
}

}  // namespace quintet
