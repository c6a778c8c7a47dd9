// Ranges of groups: by their extent, or by the least weighted error.
#include "quant/integer_range.h"

#include <array>
#include <cmath>

#include "base/check.h"
#include "tensor/half.h"

namespace quintet {
namespace {

constexpr size_t kMaxValues = 128;

float as_half(float value) { return f16_to_f32(f32_to_f16(value)); }

/// Zero itself is a code, so the range reaches it. The minimum stays exact: FP16 would move it by up to half a step of 8
/// bits, and the files that ask for whole zero points hold scale and zero point, not the minimum.
IntegerRange whole_zero_range(const IntegerFormat& format, Extent extent) {
  extent.add(0);
  const auto most = static_cast<float>(format.max_code());
  float scale = as_half((extent.high - extent.low) / most);
  if (scale == 0) return {};
  float zero = std::round(-extent.low / scale);
  if (zero < 1) {  // some readers add 1 to what files hold, so that a zero point of 0 would be none
    zero = 1;
    scale = as_half(extent.high / (most - 1));
  }
  return {.scale = scale, .minimum = -scale * std::min(zero, most)};
}

/// Sum of weight * error^2; plain arrays and no branches, so that the compiler takes whole vectors.
float weighted_error(const IntegerFormat& format, const IntegerRange& range, const float* values,
                     const float* weights, size_t count) {
  const auto offset = static_cast<float>(format.code_offset());
  const float low = -offset, high = static_cast<float>(format.max_code()) - offset;
  const float inverse = 1 / range.scale;
  std::array<float, kMaxValues> errors;
  for (size_t i = 0; i < count; ++i) {
    const float steps = std::min(std::max((values[i] - range.minimum) * inverse, low), high);
    const float rounded = (steps + kRoundingShift) - kRoundingShift;
    const float error = values[i] - (range.scale * rounded + range.minimum);
    errors[i] = weights[i] * error * error;
  }
  float sum = 0;
  for (size_t i = 0; i < count; ++i) sum += errors[i];
  return sum;
}

}  // namespace

Extent extent_of(std::span<const float> values, const uint8_t* kept) {
  Extent extent{INFINITY, -INFINITY};
  for (size_t i = 0; i < values.size(); ++i)
    if (!kept || kept[i]) extent.add(values[i]);
  return extent.low > extent.high ? Extent{} : extent;
}

IntegerRange range_of(const IntegerFormat& format, const Extent& extent, float factor) {
  if (!format.minimum) {
    const float largest = std::max(-extent.low, extent.high) * factor;
    return {.scale = as_half(largest / static_cast<float>(format.max_code() / 2))};
  }
  const float middle = (extent.low + extent.high) / 2, half = (extent.high - extent.low) / 2 * factor;
  if (format.whole_zero) return whole_zero_range(format, {middle - half, middle + half});
  return {.scale = as_half(2 * half / static_cast<float>(format.max_code())),
          .minimum = as_half(middle - half)};
}

IntegerRange search_range(const IntegerFormat& format, std::span<const float> values, const float* weights,
                          const uint8_t* kept) {
  QUINTET_CHECK(values.size() <= kMaxValues, "a group of {}", values.size());
  std::array<float, kMaxValues> weight;
  for (size_t i = 0; i < values.size(); ++i)
    weight[i] = kept && !kept[i] ? 0.0f : weights ? weights[i] : 1.0f;
  const Extent extent = extent_of(values, kept);
  IntegerRange best = range_of(format, extent);
  float least = INFINITY;
  for (int i = 0; i < kRangeFactors; ++i) {
    const IntegerRange range = range_of(format, extent, range_factor(i));
    if (range.scale == 0) break;
    const float error = weighted_error(format, range, values.data(), weight.data(), values.size());
    if (error < least) least = error, best = range;
  }
  return best;
}

}  // namespace quintet
