// Scalar decoders of the i-quants: non-linear levels (IQ4) and points of fixed grids with signs (IQ2, IQ3).
#include "quant/blocks.h"
#include "quant/codecs.h"
#include "quant/grids.h"

namespace quintet {

void decode_iq4_nl(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockIq4Nl*>(in), *end = block + blocks; block != end;
       ++block, out += 32) {
    const float d = load_f16(block->d);
    for (int i = 0; i < 16; ++i) {
      out[i] = d * static_cast<float>(kIq4Values[block->q[i] & 15]);
      out[i + 16] = d * static_cast<float>(kIq4Values[block->q[i] >> 4]);
    }
  }
}

void decode_iq4_xs(const uint8_t* in, size_t blocks, float* out) {
  for (const auto *block = reinterpret_cast<const BlockIq4Xs*>(in), *end = block + blocks; block != end;
       ++block) {
    const float d = load_f16(block->d);
    const uint32_t scales_high = load_u16(block->scales_high);
    for (int group = 0; group < 8; ++group, out += 32) {
      const int low = (block->scales_low[group / 2] >> (group % 2 * 4)) & 15;
      const int high = static_cast<int>(scales_high >> (2 * group)) & 3;
      const float scale = d * static_cast<float>((low | high << 4) - 32);
      const uint8_t* q = block->q + group * 16;
      for (int i = 0; i < 16; ++i) {
        out[i] = scale * static_cast<float>(kIq4Values[q[i] & 15]);
        out[i + 16] = scale * static_cast<float>(kIq4Values[q[i] >> 4]);
      }
    }
  }
}

namespace {
/// One run of a grid: scale * magnitude, then the sign (bit i of `signs` set: negative).
template <class Run>
float* put_run(float scale, const Run& run, uint32_t signs, float* out) {
  for (size_t i = 0; i < run.size(); ++i) {
    const float magnitude = scale * static_cast<float>(run[i]);
    *out++ = magnitude * ((signs >> i) & 1 ? -1.0f : 1.0f);
  }
  return out;
}

int scale_nibble(const uint8_t* scales, int index) { return (scales[index / 2] >> (index % 2 * 4)) & 15; }

float iq2_scale(float d, uint32_t scale) { return d * (0.5f + static_cast<float>(scale)) * 0.25f; }
}  // namespace

void decode_iq2_xxs(const uint8_t* in, size_t blocks, float* out) {
  const auto grid = iq2_xxs_grid();
  for (const auto *block = reinterpret_cast<const BlockIq2Xxs*>(in), *end = block + blocks; block != end;
       ++block) {
    const float d = load_f16(block->d);
    for (int group = 0; group < 8; ++group) {
      const uint8_t* q = block->q + group * 8;
      const uint32_t signs_scale = load_u32(q + 4);
      const float scale = iq2_scale(d, signs_scale >> 28);
      for (int run = 0; run < 4; ++run)
        out = put_run(scale, grid[q[run]], even_signs((signs_scale >> (7 * run)) & 127), out);
    }
  }
}

void decode_iq2_xs(const uint8_t* in, size_t blocks, float* out) {
  const auto grid = iq2_xs_grid();
  for (const auto *block = reinterpret_cast<const BlockIq2Xs*>(in), *end = block + blocks; block != end;
       ++block) {
    const float d = load_f16(block->d);
    for (int run = 0; run < 32; ++run) {
      const uint32_t q = load_u16(block->q + 2 * run);
      out =
          put_run(iq2_scale(d, scale_nibble(block->scales, run / 2)), grid[q & 511], even_signs(q >> 9), out);
    }
  }
}

void decode_iq2_s(const uint8_t* in, size_t blocks, float* out) {
  const auto grid = iq2_s_grid();
  for (const auto *block = reinterpret_cast<const BlockIq2S*>(in), *end = block + blocks; block != end;
       ++block) {
    const float d = load_f16(block->d);
    for (int run = 0; run < 32; ++run) {
      const uint32_t q = block->q[run] | ((block->high[run / 4] >> (run % 4 * 2)) & 3u) << 8;
      out = put_run(iq2_scale(d, scale_nibble(block->scales, run / 2)), grid[q], block->signs[run], out);
    }
  }
}

void decode_iq3_xxs(const uint8_t* in, size_t blocks, float* out) {
  const auto grid = iq3_xxs_grid();
  for (const auto *block = reinterpret_cast<const BlockIq3Xxs*>(in), *end = block + blocks; block != end;
       ++block) {
    const float d = load_f16(block->d);
    for (int group = 0; group < 8; ++group) {
      const uint32_t signs_scale = load_u32(block->signs_scales + 4 * group);
      const float scale = d * (0.5f + static_cast<float>(signs_scale >> 28)) * 0.5f;
      for (int run = 0; run < 8; ++run) {
        const uint32_t signs = even_signs((signs_scale >> (run / 2 * 7)) & 127) >> (run % 2 * 4);
        out = put_run(scale, grid[block->q[group * 8 + run]], signs, out);
      }
    }
  }
}

void decode_iq3_s(const uint8_t* in, size_t blocks, float* out) {
  const auto grid = iq3_s_grid();
  for (const auto *block = reinterpret_cast<const BlockIq3S*>(in), *end = block + blocks; block != end;
       ++block) {
    const float d = load_f16(block->d);
    for (int group = 0; group < 8; ++group) {
      const float scale = d * static_cast<float>(1 + 2 * scale_nibble(block->scales, group));
      for (int run = 0; run < 8; ++run) {
        const uint32_t q = block->q[group * 8 + run] | ((block->high[group] >> run) & 1u) << 8;
        const uint32_t signs = block->signs[group * 4 + run / 2] >> (run % 2 * 4);
        out = put_run(scale, grid[q], signs, out);
      }
    }
  }
}

}  // namespace quintet
