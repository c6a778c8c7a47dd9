// Encoders of GGUF's formats: scales of groups first, then those scales as the super-block holds them, then
// codes.
#include "quant/encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "base/check.h"
#include "quant/blocks.h"

namespace quintet {
namespace {

constexpr int kSteps = 9;          // scales tried to either side of the one that covers the extent
constexpr float kStepSize = 0.1f;  // of a code

int nearest(float value, int low, int high) {
  return std::clamp(static_cast<int>(std::nearbyint(std::clamp(value, -1e6f, 1e6f))), low, high);
}

/// The values of a group and how much each counts.
struct Group {
  std::span<const float> x;
  const float* importance;
  float weight(size_t i) const { return importance ? importance[i] : 1.0f; }
};

void put_half(uint8_t* p, float value) {
  const uint16_t bits = f32_to_f16(value);
  p[0] = static_cast<uint8_t>(bits);
  p[1] = static_cast<uint8_t>(bits >> 8);
}

/// The scale s with the least error of s * q, q in [low, high] (-low = high + 1): s may be negative, so that
/// the largest value gets the code of which there is one more.
float fit_symmetric(const Group& group, int low, int high) {
  float largest = 0;
  for (const float x : group.x)
    if (std::abs(x) > std::abs(largest)) largest = x;
  if (largest == 0) return 0;
  float best_scale = 0;
  double best = 0;
  for (int step = -kSteps; step <= kSteps; ++step) {
    const float inverse = (static_cast<float>(low) - kStepSize * static_cast<float>(step)) / largest;
    double xq = 0, qq = 0;
    for (size_t i = 0; i < group.x.size(); ++i) {
      const int q = nearest(group.x[i] * inverse, low, high);
      xq += static_cast<double>(group.weight(i)) * group.x[i] * q;
      qq += static_cast<double>(group.weight(i)) * q * q;
    }
    // The fitted scale xq / qq leaves the error sum x^2 - xq^2 / qq.
    if (qq > 0 && xq * xq > best * qq) {
      best = xq * xq / qq;
      best_scale = static_cast<float>(xq / qq);
    }
  }
  // No importance anywhere that codes reach: what covers the extent.
  return best_scale != 0 ? best_scale : largest / static_cast<float>(low);
}

struct Line {
  float scale = 0, minimum = 0;
};

/// The line s * q + m with the least error, q in [0, high], m at most `most` (0 where the format subtracts
/// it).
Line fit_line(const Group& group, int high, bool negative_minimum) {
  float low = group.x[0], top = group.x[0];
  for (const float x : group.x) low = std::min(low, x), top = std::max(top, x);
  if (negative_minimum) low = std::min(low, 0.0f);
  if (top <= low) return {.minimum = low};
  Line best_line{(top - low) / static_cast<float>(high), low};
  double best = INFINITY;
  for (int step = -kSteps; step <= kSteps; ++step) {
    const float inverse = (static_cast<float>(high) + kStepSize * static_cast<float>(step)) / (top - low);
    double w = 0, x = 0, q = 0, qq = 0, xq = 0, xx = 0;
    for (size_t i = 0; i < group.x.size(); ++i) {
      const double weight = group.weight(i), value = group.x[i];
      const double code = nearest((group.x[i] - low) * inverse, 0, high);
      w += weight, x += weight * value, q += weight * code;
      qq += weight * code * code, xq += weight * value * code, xx += weight * value * value;
    }
    const double determinant = w * qq - q * q;
    if (!(determinant > 1e-12 * w * qq)) continue;
    double scale = (w * xq - x * q) / determinant, minimum = (qq * x - q * xq) / determinant;
    if (negative_minimum && minimum > 0) minimum = 0, scale = qq > 0 ? xq / qq : 0;
    const double error = xx - 2 * scale * xq - 2 * minimum * x + scale * scale * qq +
                         2 * scale * minimum * q + minimum * minimum * w;
    if (scale > 0 && error < best)
      best = error, best_line = {static_cast<float>(scale), static_cast<float>(minimum)};
  }
  return best_line;
}

Group group_of(const float* values, const float* importance, int begin, int count) {
  return {{values + begin, static_cast<size_t>(count)}, importance ? importance + begin : nullptr};
}

float as_half(float value) { return f16_to_f32(f32_to_f16(value)); }

int code_of(float value, float scale, float minimum, int low, int high) {
  return scale == 0 ? std::clamp(0, low, high) : nearest((value - minimum) / scale, low, high);
}

// --- blocks of 32 ---

void encode_small(WeightFormat format, const float* x, const float* importance, uint8_t* out) {
  const Group all = group_of(x, importance, 0, 32);
  const bool five = format == WeightFormat::q5_0 || format == WeightFormat::q5_1;
  const bool line = format == WeightFormat::q4_1 || format == WeightFormat::q5_1;
  const int codes = five ? 32 : 16;
  Line fit;
  if (line)
    fit = fit_line(all, codes - 1, false);
  else
    fit.scale = fit_symmetric(all, -codes / 2, codes / 2 - 1);
  put_half(out, fit.scale);
  if (line) put_half(out + 2, fit.minimum);
  const float d = as_half(fit.scale), m = line ? as_half(fit.minimum) : 0;
  const int at = (line ? 4 : 2) + (five ? 4 : 0), offset = line ? 0 : codes / 2;
  std::memset(out + (line ? 4 : 2), 0, static_cast<size_t>(five ? 20 : 16));
  for (int i = 0; i < 32; ++i) {
    const int code = code_of(x[i], d, m, -offset, codes - 1 - offset) + offset;
    out[at + i % 16] |= static_cast<uint8_t>((code & 15) << (i < 16 ? 0 : 4));
    if (five) out[(line ? 4 : 2) + i / 8] |= static_cast<uint8_t>((code >> 4) << (i % 8));
  }
}

void encode_q8_0(const float* x, uint8_t* out) {
  float largest = 0;
  for (int i = 0; i < 32; ++i) largest = std::max(largest, std::abs(x[i]));
  put_half(out, largest / 127);
  const float d = load_f16(out);
  for (int i = 0; i < 32; ++i)
    out[2 + i] = static_cast<uint8_t>(static_cast<int8_t>(code_of(x[i], d, 0, -127, 127)));
}

int nearest_level(float value) {
  int best = 0;
  for (int i = 1; i < 16; ++i)
    if (std::abs(value - kIq4Values[i]) < std::abs(value - kIq4Values[best])) best = i;
  return best;
}

/// As fit_symmetric, with the 16 levels of IQ4.
float fit_levels(const Group& group) {
  float largest = 0;
  for (const float x : group.x)
    if (std::abs(x) > std::abs(largest)) largest = x;
  if (largest == 0) return 0;
  float best_scale = largest / kIq4Values[0];
  double best = 0;
  for (int step = -kSteps; step <= kSteps; ++step) {
    const float inverse = (kIq4Values[0] + 2.0f * static_cast<float>(step)) / largest;
    double xq = 0, qq = 0;
    for (size_t i = 0; i < group.x.size(); ++i) {
      const double q = kIq4Values[nearest_level(group.x[i] * inverse)];
      xq += group.weight(i) * group.x[i] * q;
      qq += group.weight(i) * q * q;
    }
    if (qq > 0 && xq * xq > best * qq) best = xq * xq / qq, best_scale = static_cast<float>(xq / qq);
  }
  return best_scale;
}

void put_levels(const float* x, float scale, uint8_t* q) {
  std::memset(q, 0, 16);
  for (int i = 0; i < 32; ++i)
    q[i % 16] |= static_cast<uint8_t>(nearest_level(scale == 0 ? 0 : x[i] / scale) << (i < 16 ? 0 : 4));
}

// --- super-blocks of 256 ---

/// Signed scales of the groups as integers from `low` to -low - 1 under one half: the largest gets `low`.
template <size_t kGroups>
float common_scale(const std::array<float, kGroups>& scales, int low, std::array<int, kGroups>& integers) {
  float largest = 0;
  for (const float scale : scales)
    if (std::abs(scale) > std::abs(largest)) largest = scale;
  const float d = as_half(largest / static_cast<float>(low));
  for (size_t g = 0; g < kGroups; ++g) integers[g] = d == 0 ? 0 : nearest(scales[g] / d, low, -low - 1);
  return d;
}

/// Scales or minima of 0 and more as integers up to `high` under one half.
template <size_t kGroups>
float common_size(const std::array<float, kGroups>& sizes, int high, std::array<int, kGroups>& integers) {
  const float d = as_half(*std::max_element(sizes.begin(), sizes.end()) / static_cast<float>(high));
  for (size_t g = 0; g < kGroups; ++g) integers[g] = d == 0 ? 0 : nearest(sizes[g] / d, 0, high);
  return d;
}

/// 16 groups of 16 with signed scales: Q3_K and Q6_K. Codes from `low` on are written from 0.
float encode_signed(const float* x, const float* importance, int scale_low, int low,
                    std::array<int, 16>& scales, uint8_t* codes) {
  std::array<float, 16> fitted;
  for (int g = 0; g < 16; ++g)
    fitted[static_cast<size_t>(g)] = fit_symmetric(group_of(x, importance, 16 * g, 16), low, -low - 1);
  const float d = common_scale(fitted, scale_low, scales);
  for (int i = 0; i < 256; ++i)
    codes[i] = static_cast<uint8_t>(
        code_of(x[i], d * static_cast<float>(scales[static_cast<size_t>(i / 16)]), 0, low, -low - 1) - low);
  return d;
}

/// Groups with scale and minimum: Q2_K (16 groups), Q4_K and Q5_K (8).
template <size_t kGroups>
Line encode_lines(const float* x, const float* importance, int size_high, int high,
                  std::array<int, kGroups>& scales, std::array<int, kGroups>& minima, uint8_t* codes) {
  constexpr int kCount = 256 / static_cast<int>(kGroups);
  std::array<float, kGroups> scale, minimum;
  for (size_t g = 0; g < kGroups; ++g) {
    const Line line = fit_line(group_of(x, importance, static_cast<int>(g) * kCount, kCount), high, true);
    scale[g] = line.scale;
    minimum[g] = -line.minimum;
  }
  const Line common{common_size(scale, size_high, scales), common_size(minimum, size_high, minima)};
  for (int i = 0; i < 256; ++i) {
    const auto g = static_cast<size_t>(i / kCount);
    codes[i] = static_cast<uint8_t>(code_of(x[i], common.scale * static_cast<float>(scales[g]),
                                            -common.minimum * static_cast<float>(minima[g]), 0, high));
  }
  return common;
}

void encode_q2_k(const float* x, const float* importance, uint8_t* out) {
  auto* block = reinterpret_cast<BlockQ2K*>(out);
  std::array<int, 16> scales, minima;
  uint8_t codes[256];
  const Line common = encode_lines(x, importance, 15, 3, scales, minima, codes);
  std::memset(out, 0, sizeof *block);
  for (size_t g = 0; g < 16; ++g) block->scales[g] = static_cast<uint8_t>(scales[g] | minima[g] << 4);
  for (int i = 0; i < 256; ++i)
    block->q[i / 128 * 32 + i % 32] |= static_cast<uint8_t>(codes[i] << (2 * (i / 32 % 4)));
  put_half(block->d, common.scale);
  put_half(block->dmin, common.minimum);
}

void encode_q3_k(const float* x, const float* importance, uint8_t* out) {
  auto* block = reinterpret_cast<BlockQ3K*>(out);
  std::array<int, 16> scales;
  uint8_t codes[256];
  const float d = encode_signed(x, importance, -32, -4, scales, codes);
  std::memset(out, 0, sizeof *block);
  for (int g = 0; g < 16; ++g) {
    const int scale = scales[static_cast<size_t>(g)] + 32;
    block->scales[g % 8] |= static_cast<uint8_t>((scale & 15) << (g < 8 ? 0 : 4));
    block->scales[8 + g % 4] |= static_cast<uint8_t>((scale >> 4) << (2 * (g / 4)));
  }
  for (int i = 0; i < 256; ++i) {
    block->q[i / 128 * 32 + i % 32] |= static_cast<uint8_t>((codes[i] & 3) << (2 * (i / 32 % 4)));
    block->high[i % 32] |= static_cast<uint8_t>((codes[i] >> 2) << (i / 32));
  }
  put_half(block->d, d);
}

/// The inverse of unpack_scale_min.
void pack_scale_min(uint8_t* scales, int group, int scale, int minimum) {
  if (group < 4) {
    scales[group] |= static_cast<uint8_t>(scale);
    scales[group + 4] |= static_cast<uint8_t>(minimum);
    return;
  }
  scales[group + 4] |= static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
  scales[group - 4] |= static_cast<uint8_t>((scale >> 4) << 6);
  scales[group] |= static_cast<uint8_t>((minimum >> 4) << 6);
}

void encode_q45_k(const float* x, const float* importance, bool five, uint8_t* out) {
  std::array<int, 8> scales, minima;
  uint8_t codes[256];
  const Line common = encode_lines(x, importance, 63, five ? 31 : 15, scales, minima, codes);
  std::memset(out, 0, five ? sizeof(BlockQ5K) : sizeof(BlockQ4K));
  put_half(out, common.scale);
  put_half(out + 2, common.minimum);
  for (int g = 0; g < 8; ++g)
    pack_scale_min(out + 4, g, scales[static_cast<size_t>(g)], minima[static_cast<size_t>(g)]);
  uint8_t* high = out + 16;
  uint8_t* q = out + (five ? 48 : 16);
  for (int i = 0; i < 256; ++i) {
    q[i / 64 * 32 + i % 32] |= static_cast<uint8_t>((codes[i] & 15) << (4 * (i / 32 % 2)));
    if (five) high[i % 32] |= static_cast<uint8_t>((codes[i] >> 4) << (i / 32));
  }
}

void encode_q6_k(const float* x, const float* importance, uint8_t* out) {
  auto* block = reinterpret_cast<BlockQ6K*>(out);
  std::array<int, 16> scales;
  uint8_t codes[256];
  const float d = encode_signed(x, importance, -128, -32, scales, codes);
  std::memset(out, 0, sizeof *block);
  for (size_t g = 0; g < 16; ++g) block->scales[g] = static_cast<uint8_t>(static_cast<int8_t>(scales[g]));
  for (int i = 0; i < 256; ++i) {
    const int half = i / 128, quarter = i / 32 % 4, j = i % 32;
    block->low[64 * half + 32 * (quarter % 2) + j] |=
        static_cast<uint8_t>((codes[i] & 15) << (4 * (quarter / 2)));
    block->high[32 * half + j] |= static_cast<uint8_t>((codes[i] >> 4) << (2 * quarter));
  }
  put_half(block->d, d);
}

void encode_iq4_xs(const float* x, const float* importance, uint8_t* out) {
  auto* block = reinterpret_cast<BlockIq4Xs*>(out);
  std::array<float, 8> fitted;
  std::array<int, 8> scales;
  for (int g = 0; g < 8; ++g)
    fitted[static_cast<size_t>(g)] = fit_levels(group_of(x, importance, 32 * g, 32));
  const float d = common_scale(fitted, -32, scales);
  std::memset(out, 0, sizeof *block);
  put_half(block->d, d);
  uint32_t high = 0;
  for (int g = 0; g < 8; ++g) {
    const int scale = scales[static_cast<size_t>(g)];
    const auto stored = static_cast<uint32_t>(scale + 32);
    block->scales_low[g / 2] |= static_cast<uint8_t>((stored & 15) << (4 * (g % 2)));
    high |= (stored >> 4) << (2 * g);
    put_levels(x + 32 * g, d * static_cast<float>(scale), block->q + 16 * g);
  }
  block->scales_high[0] = static_cast<uint8_t>(high);
  block->scales_high[1] = static_cast<uint8_t>(high >> 8);
}

void encode_one(WeightFormat format, const float* x, const float* importance, uint8_t* out) {
  switch (format) {
    case WeightFormat::f32: std::memcpy(out, x, 4); return;
    case WeightFormat::f16: put_half(out, *x); return;
    case WeightFormat::bf16: {
      const uint16_t bits = f32_to_bf16(*x);
      out[0] = static_cast<uint8_t>(bits);
      out[1] = static_cast<uint8_t>(bits >> 8);
      return;
    }
    case WeightFormat::q4_0:
    case WeightFormat::q4_1:
    case WeightFormat::q5_0:
    case WeightFormat::q5_1: return encode_small(format, x, importance, out);
    case WeightFormat::q8_0: return encode_q8_0(x, out);
    case WeightFormat::q2_k: return encode_q2_k(x, importance, out);
    case WeightFormat::q3_k: return encode_q3_k(x, importance, out);
    case WeightFormat::q4_k: return encode_q45_k(x, importance, false, out);
    case WeightFormat::q5_k: return encode_q45_k(x, importance, true, out);
    case WeightFormat::q6_k: return encode_q6_k(x, importance, out);
    case WeightFormat::iq4_nl: {
      put_half(out, fit_levels(group_of(x, importance, 0, 32)));
      return put_levels(x, load_f16(out), out + 2);
    }
    case WeightFormat::iq4_xs: return encode_iq4_xs(x, importance, out);
    default: QUINTET_CHECK(false, "no encoder of {}", format_info(format).name);
  }
}

}  // namespace

bool can_encode(WeightFormat format) {
  return format <= WeightFormat::q6_k || format == WeightFormat::iq4_nl || format == WeightFormat::iq4_xs;
}

void encode_blocks(WeightFormat format, const float* values, const float* importance, size_t blocks,
                   uint8_t* out) {
  const FormatInfo& info = format_info(format);
  for (size_t i = 0; i < blocks; ++i, values += info.block_weights, out += info.block_bytes) {
    encode_one(format, values, importance, out);
    if (importance) importance += info.block_weights;
  }
}

}  // namespace quintet
