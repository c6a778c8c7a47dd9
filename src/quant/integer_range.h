// From the values of a group to its scale and minimum, and from a value to its code.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "quant/integer_format.h"

namespace quintet {

/// Scale and minimum of a group, as FP16 holds them. All values zero: scale 0.
struct IntegerRange {
  float scale = 0, minimum = 0;
};

inline float value_of(const IntegerFormat& format, const IntegerRange& range, int code) {
  const float scaled = range.scale * static_cast<float>(code - format.code_offset());
  return format.minimum ? scaled + range.minimum : scaled;
}

/// Adding this to a float below 2^22 rounds it to an integer, ties to even, in its lowest bits.
inline constexpr float kRoundingShift = 12582912.0f;

/// The code whose value is nearest, within the codes there are.
inline int nearest_code(const IntegerFormat& format, const IntegerRange& range, float value) {
  if (range.scale == 0) return format.code_offset();
  const float steps = std::clamp((value - range.minimum) / range.scale, -300.0f, 300.0f);
  const float rounded = (steps + kRoundingShift) - kRoundingShift;
  return std::clamp(static_cast<int>(rounded) + format.code_offset(), 0, format.max_code());
}

/// Least and greatest of a set of values.
struct Extent {
  float low = 0, high = 0;
  void add(float value) { low = std::min(low, value), high = std::max(high, value); }
};
/// Of values, those with `kept` 0 left out; the empty extent is [0, 0] only where none is kept.
Extent extent_of(std::span<const float> values, const uint8_t* kept);

/// The range that covers `factor` of the extent about its middle (asymmetric) or about zero.
IntegerRange range_of(const IntegerFormat& format, const Extent& extent, float factor = 1);

/// The factors that search_range() tries: 1, 0.975, ... 0.6.
inline constexpr int kRangeFactors = 17;
inline float range_factor(int i) { return 1 - 0.025f * static_cast<float>(i); }

/// The range among those factors with the least error sum weight * (value - rounded)^2 (Frantar
/// et al. call it MSE search; the weights are second moments of the inputs). `weights` may be null: all 1.
IntegerRange search_range(const IntegerFormat& format, std::span<const float> values, const float* weights,
                          const uint8_t* kept);

}  // namespace quintet
