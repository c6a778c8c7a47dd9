// Encoders of GGUF's formats: scales of groups first, then those scales as the super-block holds them, then
// codes. 16 groups are worked on at once: a super-block or two, or 16 blocks.
#include "quant/encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "quant/blocks.h"
#include "quant/group_kernels.h"

namespace quintet {
namespace {

struct Recipe {
  Grid grid;
  size_t count, groups;  ///< values of a group, groups of a block
  int low, high;         ///< range of the codes
  /// Range of the groups' scales as whole numbers under one half of the block: signed ones from size_low on,
  /// or (line) those of scales and minima up to size_high. 0: a block is one group, its scale a half.
  int size_low, size_high;
};

Recipe recipe_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::q4_0: return {Grid::symmetric, 32, 1, -8, 7, 0, 0};
    case WeightFormat::q5_0: return {Grid::symmetric, 32, 1, -16, 15, 0, 0};
    case WeightFormat::q4_1: return {Grid::line, 32, 1, 0, 15, 0, 0};
    case WeightFormat::q5_1: return {Grid::line, 32, 1, 0, 31, 0, 0};
    case WeightFormat::q8_0: return {Grid::symmetric, 32, 1, -127, 127, 0, 0};
    case WeightFormat::iq4_nl: return {Grid::levels, 32, 1, 0, 15, 0, 0};
    case WeightFormat::q2_k: return {Grid::line, 16, 16, 0, 3, 0, 15};
    case WeightFormat::q3_k: return {Grid::symmetric, 16, 16, -4, 3, -32, 31};
    case WeightFormat::q4_k: return {Grid::line, 32, 8, 0, 15, 0, 63};
    case WeightFormat::q5_k: return {Grid::line, 32, 8, 0, 31, 0, 63};
    case WeightFormat::q6_k: return {Grid::symmetric, 16, 16, -32, 31, -128, 127};
    case WeightFormat::iq4_xs: return {Grid::levels, 32, 8, 0, 15, -32, 31};
    default: QUINTET_CHECK(false, "no encoder of {}", format_info(format).name); return {};
  }
}

void put_half(uint8_t* p, float value) {
  const uint16_t bits = f32_to_f16(value);
  p[0] = static_cast<uint8_t>(bits);
  p[1] = static_cast<uint8_t>(bits >> 8);
}

float as_half(float value) { return f16_to_f32(f32_to_f16(value)); }

/// 0 of 0: what is scaled by it gets the code 0.
float inverse_of(float scale) { return scale == 0 ? 0 : 1 / scale; }

/// A block on its way into bytes.
struct Block {
  float d = 0, dmin = 0;                  ///< halves already
  std::array<int, kGroupLanes> scales{};  ///< as whole numbers
  std::array<int, kGroupLanes> minima{};
  const uint8_t* codes = nullptr;  ///< from 0 on, one a value
};

/// Scales as whole numbers from `low` to `high` under one half. The largest gets `most`: the end of the range
/// of which there is one more, or of one that has no sign.
float common_scale(std::span<const float> scales, int most, int low, int high, float* whole) {
  float largest = 0;
  for (const float scale : scales)
    if (std::abs(scale) > std::abs(largest)) largest = scale;
  const float d = as_half(largest / static_cast<float>(most));
  for (const float scale : scales)
    *whole++ =
        d == 0 ? 0 : std::nearbyint(std::clamp(scale / d, static_cast<float>(low), static_cast<float>(high)));
  return d;
}

// --- codes into bytes ---

/// Nibbles: value i below value i + 16.
void pack_nibbles(const uint8_t* codes, uint8_t* q) {
  for (int i = 0; i < 16; ++i) q[i] = static_cast<uint8_t>((codes[i] & 15) | codes[i + 16] << 4);
}

void pack_small(WeightFormat format, const Block& block, uint8_t* out) {
  put_half(out, block.d);
  uint8_t* at = out + 2;
  if (format == WeightFormat::q4_1 || format == WeightFormat::q5_1) put_half(at, block.dmin), at += 2;
  if (format == WeightFormat::q8_0) {
    for (int i = 0; i < 32; ++i) at[i] = static_cast<uint8_t>(block.codes[i] - 127);
    return;
  }
  if (format == WeightFormat::q5_0 || format == WeightFormat::q5_1) {
    uint32_t high = 0;
    for (int i = 0; i < 32; ++i) high |= static_cast<uint32_t>(block.codes[i] >> 4) << i;
    for (int i = 0; i < 4; ++i) *at++ = static_cast<uint8_t>(high >> (8 * i));
  }
  pack_nibbles(block.codes, at);
}

/// Two bits of each of 128 values: value i in plane i / 32 of byte i % 32.
void pack_pairs(const uint8_t* codes, uint8_t* q) {
  for (int i = 0; i < 32; ++i)
    q[i] = static_cast<uint8_t>((codes[i] & 3) | (codes[i + 32] & 3) << 2 | (codes[i + 64] & 3) << 4 |
                                (codes[i + 96] & 3) << 6);
}

/// Bit `bit` of each of 256 codes: value i in bit i / 32 of byte i % 32.
void pack_bits(const uint8_t* codes, int bit, uint8_t* out) {
  for (int i = 0; i < 32; ++i) {
    int bits = 0;
    for (int plane = 0; plane < 8; ++plane) bits |= (codes[32 * plane + i] >> bit & 1) << plane;
    out[i] = static_cast<uint8_t>(bits);
  }
}

void pack_q2_k(const Block& block, uint8_t* out) {
  auto* to = reinterpret_cast<BlockQ2K*>(out);
  for (size_t g = 0; g < 16; ++g)
    to->scales[g] = static_cast<uint8_t>(block.scales[g] | block.minima[g] << 4);
  for (int half = 0; half < 2; ++half) pack_pairs(block.codes + 128 * half, to->q + 32 * half);
  put_half(to->d, block.d);
  put_half(to->dmin, block.dmin);
}

void pack_q3_k(const Block& block, uint8_t* out) {
  auto* to = reinterpret_cast<BlockQ3K*>(out);
  std::memset(to->scales, 0, sizeof to->scales);
  for (size_t g = 0; g < 16; ++g) {
    const int scale = block.scales[g] + 32;
    to->scales[g % 8] |= static_cast<uint8_t>((scale & 15) << (g < 8 ? 0 : 4));
    to->scales[8 + g % 4] |= static_cast<uint8_t>((scale >> 4) << (2 * (g / 4)));
  }
  for (int half = 0; half < 2; ++half) pack_pairs(block.codes + 128 * half, to->q + 32 * half);
  pack_bits(block.codes, 2, to->high);
  put_half(to->d, block.d);
}

/// The inverse of unpack_scale_min.
void pack_scale_min(uint8_t* scales, size_t group, int scale, int minimum) {
  if (group < 4) {
    scales[group] |= static_cast<uint8_t>(scale);
    scales[group + 4] |= static_cast<uint8_t>(minimum);
    return;
  }
  scales[group + 4] |= static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
  scales[group - 4] |= static_cast<uint8_t>((scale >> 4) << 6);
  scales[group] |= static_cast<uint8_t>((minimum >> 4) << 6);
}

void pack_q45_k(bool five, const Block& block, uint8_t* out) {
  put_half(out, block.d);
  put_half(out + 2, block.dmin);
  std::memset(out + 4, 0, 12);
  for (size_t g = 0; g < 8; ++g) pack_scale_min(out + 4, g, block.scales[g], block.minima[g]);
  uint8_t* q = out + 16;
  if (five) pack_bits(block.codes, 4, q), q += 32;
  for (int i = 0; i < 128; ++i) {
    const uint8_t* codes = block.codes + i / 32 * 64 + i % 32;
    q[i] = static_cast<uint8_t>((codes[0] & 15) | codes[32] << 4);
  }
}

void pack_q6_k(const Block& block, uint8_t* out) {
  auto* to = reinterpret_cast<BlockQ6K*>(out);
  for (int half = 0; half < 2; ++half) {
    const uint8_t* codes = block.codes + 128 * half;
    for (int i = 0; i < 64; ++i)
      to->low[64 * half + i] = static_cast<uint8_t>((codes[i] & 15) | codes[i + 64] << 4);
    std::array<uint8_t, 128> high;
    for (size_t i = 0; i < 128; ++i) high[i] = codes[i] >> 4;
    pack_pairs(high.data(), to->high + 32 * half);
  }
  for (size_t g = 0; g < 16; ++g) to->scales[g] = static_cast<uint8_t>(block.scales[g]);
  put_half(to->d, block.d);
}

void pack_iq4_xs(const Block& block, uint8_t* out) {
  auto* to = reinterpret_cast<BlockIq4Xs*>(out);
  put_half(to->d, block.d);
  std::memset(to->scales_low, 0, sizeof to->scales_low);
  uint32_t high = 0;
  for (size_t g = 0; g < 8; ++g) {
    const auto stored = static_cast<uint32_t>(block.scales[g] + 32);
    to->scales_low[g / 2] |= static_cast<uint8_t>((stored & 15) << (4 * (g % 2)));
    high |= (stored >> 4) << (2 * g);
    pack_nibbles(block.codes + 32 * g, to->q + 16 * g);
  }
  to->scales_high[0] = static_cast<uint8_t>(high);
  to->scales_high[1] = static_cast<uint8_t>(high >> 8);
}

void pack(WeightFormat format, const Block& block, uint8_t* out) {
  switch (format) {
    case WeightFormat::q2_k: return pack_q2_k(block, out);
    case WeightFormat::q3_k: return pack_q3_k(block, out);
    case WeightFormat::q4_k: return pack_q45_k(false, block, out);
    case WeightFormat::q5_k: return pack_q45_k(true, block, out);
    case WeightFormat::q6_k: return pack_q6_k(block, out);
    case WeightFormat::iq4_xs: return pack_iq4_xs(block, out);
    default: return pack_small(format, block, out);
  }
}

// --- up to 16 groups ---

class BatchEncoder {
 public:
  BatchEncoder(WeightFormat format, CpuSimd simd)
      : format_(format),
        recipe_(recipe_of(format)),
        info_(format_info(format)),
        kernels_(group_kernels(simd)) {
    batch_.count = recipe_.count;
    for (auto& weights : batch_.weight) std::ranges::fill(weights, 1.0f);
  }

  size_t blocks_at_once() const { return kGroupLanes / recipe_.groups; }

  /// The block-th of the blocks that encode() takes; `importance` of its values, or null of all blocks.
  void load(const float* x, size_t block, const float* importance) {
    for (size_t g = 0; g < recipe_.groups; ++g) {
      const size_t lane = block * recipe_.groups + g, first = g * recipe_.count;
      for (size_t i = 0; i < recipe_.count; ++i) {
        batch_.x[i][lane] = x[first + i];
        if (importance) batch_.weight[i][lane] = importance[first + i];
      }
    }
  }

  void encode(const float* x, size_t blocks, uint8_t* out) {
    fit();
    std::array<Block, kGroupLanes> made;
    recipe_.groups == 1 ? halve(made, blocks) : make_whole(made, blocks);
    const GroupCodes codes{.x = x,
                           .groups = blocks * recipe_.groups,
                           .count = recipe_.count,
                           .inverse = inverse_.data(),
                           .minimum = minima_.data(),
                           .low = recipe_.low,
                           .high = recipe_.high,
                           .codes = codes_.data()};
    recipe_.grid == Grid::levels ? kernels_.round_levels(codes) : kernels_.round(codes);
    for (size_t b = 0; b < blocks; ++b) {
      made[b].codes = codes_.data() + b * recipe_.groups * recipe_.count;
      pack(format_, made[b], out + b * static_cast<size_t>(info_.block_bytes));
    }
  }

 private:
  void fit() {
    switch (recipe_.grid) {
      case Grid::symmetric: return kernels_.fit_symmetric(batch_, recipe_.low, recipe_.high, scales_.data());
      case Grid::levels: return kernels_.fit_levels(batch_, scales_.data());
      case Grid::line:
        return kernels_.fit_line(batch_, recipe_.high, recipe_.groups > 1, scales_.data(), minima_.data());
    }
  }

  /// Blocks that are one group: its scale and minimum are halves.
  void halve(std::array<Block, kGroupLanes>& made, size_t blocks) {
    for (size_t b = 0; b < blocks; ++b) {
      made[b].d = as_half(scales_[b]);
      if (recipe_.grid == Grid::line) made[b].dmin = minima_[b] = as_half(minima_[b]);
      inverse_[b] = inverse_of(made[b].d);
    }
  }

  /// Blocks of several: their scales are whole numbers under one half, and chosen together with it.
  void make_whole(std::array<Block, kGroupLanes>& made, size_t blocks) {
    // A second round, from halves that are fitted to the first, gains some 1 % of the error where there are
    // minima, nothing elsewhere.
    const int rounds = recipe_.grid == Grid::line ? 2 : 1;
    WholeScales wholes;
    CodeSums sums;
    SettleRequest request{.grid = recipe_.grid,
                          .low = recipe_.low,
                          .high = recipe_.high,
                          .size_low = recipe_.size_low,
                          .size_high = recipe_.size_high};
    for (int round = 0; round < rounds; ++round) {
      for (size_t b = 0; b < blocks; ++b) {
        const size_t first = b * recipe_.groups;
        round == 0 ? share_out(made[b], first, wholes) : fit_halves(made[b], first, wholes, sums);
        std::fill_n(request.d.data() + first, recipe_.groups, made[b].d);
        std::fill_n(request.dmin.data() + first, recipe_.groups, made[b].dmin);
      }
      kernels_.settle(batch_, request, wholes, sums);
    }
    for (size_t b = 0; b < blocks; ++b) take(wholes, b * recipe_.groups, made[b]);
  }

  /// Whole numbers for what fit() found: the first guess.
  void share_out(Block& block, size_t first, WholeScales& wholes) {
    const std::span scales(scales_.data() + first, recipe_.groups),
        minima(minima_.data() + first, recipe_.groups);
    const int most = recipe_.size_low < 0 ? recipe_.size_low : recipe_.size_high;
    block.d = common_scale(scales, most, recipe_.size_low, recipe_.size_high, wholes.scale.data() + first);
    if (recipe_.grid != Grid::line) return;
    for (float& minimum : minima) minimum = -minimum;
    block.dmin = common_scale(minima, most, 0, recipe_.size_high, wholes.minimum.data() + first);
  }

  /// The halves d and dmin with the least error of the codes that settle() chose: sum over groups of (x - d *
  /// scale * q + dmin * minimum)^2.
  void fit_halves(Block& block, size_t first, const WholeScales& wholes, const CodeSums& sums) const {
    double ss = 0, sm = 0, mm = 0, xs = 0, xm = 0;
    for (size_t g = first; g < first + recipe_.groups; ++g) {
      const double scale = wholes.scale[g], minimum = wholes.minimum[g];
      ss += scale * scale * sums.qq[g];
      sm += scale * minimum * sums.q[g];
      mm += minimum * minimum * sums.one[g];
      xs += scale * sums.xq[g];
      xm += minimum * sums.x[g];
    }
    const double determinant = ss * mm - sm * sm;
    if (determinant > 1e-6 * ss * mm) {
      const double d = (xs * mm - xm * sm) / determinant, dmin = (xs * sm - xm * ss) / determinant;
      if (d > 0 && dmin > 0) block.d = as_half(d), block.dmin = as_half(dmin);
    } else if (ss > 0 && mm == 0) {
      block.d = as_half(xs / ss);
    }
  }

  void take(const WholeScales& wholes, size_t first, Block& block) {
    for (size_t g = 0; g < recipe_.groups; ++g) {
      block.scales[g] = static_cast<int>(wholes.scale[first + g]);
      block.minima[g] = static_cast<int>(wholes.minimum[first + g]);
      inverse_[first + g] = inverse_of(block.d * wholes.scale[first + g]);
      minima_[first + g] = -block.dmin * wholes.minimum[first + g];
    }
  }

  WeightFormat format_;
  Recipe recipe_;
  const FormatInfo& info_;
  const GroupKernels& kernels_;
  GroupBatch batch_{};
  std::array<float, kGroupLanes> scales_{}, minima_{}, inverse_{};
  std::array<uint8_t, kGroupLanes * kMostGroupValues> codes_;
};

void encode_dense(WeightFormat format, std::span<const float> values, uint8_t* out) {
  if (format == WeightFormat::f32) {
    std::memcpy(out, values.data(), values.size_bytes());
    return;
  }
  for (const float value : values) {
    const uint16_t bits = format == WeightFormat::f16 ? f32_to_f16(value) : f32_to_bf16(value);
    *out++ = static_cast<uint8_t>(bits);
    *out++ = static_cast<uint8_t>(bits >> 8);
  }
}

}  // namespace

bool can_encode(WeightFormat format) {
  return format <= WeightFormat::q6_k || format == WeightFormat::iq4_nl || format == WeightFormat::iq4_xs;
}

void encode_blocks(WeightFormat format, std::span<const float> values, std::span<const float> importance,
                   uint8_t* out, CpuSimd simd) {
  if (format <= WeightFormat::bf16) return encode_dense(format, values, out);
  const FormatInfo& info = format_info(format);
  const auto block_weights = static_cast<size_t>(info.block_weights);
  const size_t blocks = values.size() / block_weights;
  BatchEncoder encoder(format, simd);
  for (size_t first = 0; first < blocks; first += encoder.blocks_at_once()) {
    const size_t count = std::min(encoder.blocks_at_once(), blocks - first);
    for (size_t b = 0; b < count; ++b) {
      const size_t at = (first + b) * block_weights;
      encoder.load(values.data() + at, b,
                   importance.empty() ? nullptr : importance.data() + at % importance.size());
    }
    encoder.encode(values.data() + first * block_weights, count,
                   out + first * static_cast<size_t>(info.block_bytes));
  }
}

}  // namespace quintet
