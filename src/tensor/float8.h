// Eight-bit floats E4M3 (four bits of exponent, three of mantissa, no infinities; Micikevicius et al., "FP8 Formats for
// Deep Learning", 2022) to and from float: exact, rounding to nearest even.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "tensor/half.h"

namespace quintet {

inline constexpr float kLargestF8 = 448;

constexpr bool f8_is_nan(uint8_t bits) { return (bits & 0x7F) == 0x7F; }

constexpr float f8_to_f32(uint8_t bits) {
  if (f8_is_nan(bits)) return std::bit_cast<float>(0x7FC00000u);
  // The bits of a half 2^8 times smaller, subnormal ones too.
  const auto half = static_cast<uint16_t>((bits & 0x80) << 8 | (bits & 0x7F) << 7);
  return f16_to_f32(half) * 256;
}

/// Beyond the largest: the largest. NaN stays NaN.
constexpr uint8_t f32_to_f8(float value) {
  if (value != value) return 0x7F;
  const float limited = std::clamp(value, -kLargestF8, kLargestF8);
  const uint32_t bits = std::bit_cast<uint32_t>(limited);
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  const float magnitude = std::bit_cast<float>(bits & 0x7FFFFFFFu);
  if (magnitude < 0x1p-6f) {  // subnormal: steps of 2^-9; adding 1.5 * 2^14 rounds to them
    const float shifted = magnitude + 0x1.8p14f;
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(shifted) - std::bit_cast<uint32_t>(0x1.8p14f));
  }
  const uint32_t plain = bits & 0x7FFFFFFFu;
  const uint32_t rounded = plain + 0x7FFFFu + (plain >> 20 & 1u);
  return sign | static_cast<uint8_t>((rounded >> 20) - (120u << 3));
}

}  // namespace quintet
