// Scalar decoders of the k-quants: blocks of 256 weights whose groups have scales of their own.
#include "quant/blocks.h"
#include "quant/codecs.h"

namespace quintet {

void decode_q2_k(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockQ2K*>(in), *end = block + blocks; block != end;
       ++block, out += 256) {
    const float d = load_f16(block->d), dmin = load_f16(block->dmin);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(block->scales[group] & 15);
      const float min = dmin * static_cast<float>(block->scales[group] >> 4);
      for (int i = group * 16; i < group * 16 + 16; ++i) {
        const int q = (block->q[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3;
        out[i] = scale * static_cast<float>(q) - min;
      }
    }
  }
}

void decode_q3_k(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockQ3K*>(in), *end = block + blocks; block != end;
       ++block, out += 256) {
    const float d = load_f16(block->d);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(unpack_q3_k_scale(block->scales, group) - 32);
      for (int i = group * 16; i < group * 16 + 16; ++i) {
        const int low = (block->q[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3;
        const int high = (block->high[i % 32] >> (i / 32)) & 1;
        out[i] = scale * static_cast<float>((low | high << 2) - 4);
      }
    }
  }
}

void decode_q4_k(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockQ4K*>(in), *end = block + blocks; block != end;
       ++block, out += 256) {
    const float d = load_f16(block->d), dmin = load_f16(block->dmin);
    for (int group = 0; group < 8; ++group) {
      const auto packed = unpack_scale_min(block->scales, group);
      const float scale = d * static_cast<float>(packed.scale), min = dmin * static_cast<float>(packed.min);
      for (int i = 0; i < 32; ++i) {
        const int q = (block->q[group / 2 * 32 + i] >> (group % 2 * 4)) & 15;
        out[group * 32 + i] = scale * static_cast<float>(q) - min;
      }
    }
  }
}

void decode_q5_k(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockQ5K*>(in), *end = block + blocks; block != end;
       ++block, out += 256) {
    const float d = load_f16(block->d), dmin = load_f16(block->dmin);
    for (int group = 0; group < 8; ++group) {
      const auto packed = unpack_scale_min(block->scales, group);
      const float scale = d * static_cast<float>(packed.scale), min = dmin * static_cast<float>(packed.min);
      for (int i = 0; i < 32; ++i) {
        const int low = (block->q[group / 2 * 32 + i] >> (group % 2 * 4)) & 15;
        const int high = (block->high[i] >> group) & 1;
        out[group * 32 + i] = scale * static_cast<float>(low | high << 4) - min;
      }
    }
  }
}

void decode_q6_k(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockQ6K*>(in), *end = block + blocks; block != end;
       ++block, out += 256) {
    const float d = load_f16(block->d);
    for (int group = 0; group < 16; ++group) {
      const float scale = d * static_cast<float>(static_cast<int8_t>(block->scales[group]));
      for (int i = group * 16; i < group * 16 + 16; ++i) {
        const int low = (block->low[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4)) & 15;
        const int high = (block->high[i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2)) & 3;
        out[i] = scale * static_cast<float>((low | high << 4) - 32);
      }
    }
  }
}

}  // namespace quintet
