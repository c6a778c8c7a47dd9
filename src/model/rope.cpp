// Inverse frequencies and their scalings.
#include "model/rope.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"

namespace quintet {
namespace {

/// 0 at or below `begin`, 1 at or above `end`, a straight line between.
double ramp(double x, double begin, double end) { return std::clamp((x - begin) / (end - begin), 0.0, 1.0); }

/// Llama 3.1: wavelengths longer than original / low are divided by the factor, shorter than original / high
/// are kept.
void scale_llama3(const RopeScaling& scaling, std::vector<float>& inv_freq) {
  for (float& frequency : inv_freq) {
    const double rotations = scaling.original_context * frequency / (2 * std::numbers::pi);
    const double keep = ramp(rotations, scaling.low_freq_factor, scaling.high_freq_factor);
    frequency = static_cast<float>((1 - keep) * frequency / scaling.factor + keep * frequency);
  }
}

/// YaRN, section 3.2: dimensions that turn more than beta_fast times over the original context are kept,
/// those that turn less than beta_slow times are interpolated, a ramp over the dimension's index between.
void scale_yarn(const RopeScaling& scaling, double base, int32_t dims, std::vector<float>& inv_freq) {
  // The index whose frequency turns `rotations` times: original * base^(-2i / dims) / 2 pi = rotations.
  const auto index_of = [&](double rotations) {
    return dims * std::log(scaling.original_context / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(base));
  };
  double begin = index_of(scaling.beta_fast), end = index_of(scaling.beta_slow);
  if (scaling.truncate) {
    begin = std::floor(begin);
    end = std::ceil(end);
  }
  begin = std::max(begin, 0.0);
  end = std::min(end, static_cast<double>(dims - 1));
  if (begin == end) end += 0.001;  // a step instead of a division by zero
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const double interpolated = ramp(static_cast<double>(i), begin, end);
    inv_freq[i] =
        static_cast<float>(interpolated * inv_freq[i] / scaling.factor + (1 - interpolated) * inv_freq[i]);
  }
}

}  // namespace

RopeConfig make_rope(RopeStyle style, int32_t dims, double base, const RopeScaling& scaling) {
  RopeConfig rope{.style = style, .dims = dims};
  rope.inv_freq.resize(static_cast<size_t>(dims / 2));
  for (int32_t i = 0; i < dims / 2; ++i) {
    // In float as Transformers computes it: at position 100,000 an ulp of a frequency is 0.01 radians.
    const float power =
        std::pow(static_cast<float>(base), static_cast<float>(2 * i) / static_cast<float>(dims));
    rope.inv_freq[static_cast<size_t>(i)] = 1.0f / power;
  }
  switch (scaling.kind) {
    case RopeScaling::Kind::none: break;
    case RopeScaling::Kind::linear:
      for (float& frequency : rope.inv_freq) frequency /= static_cast<float>(scaling.factor);
      break;
    case RopeScaling::Kind::llama3: scale_llama3(scaling, rope.inv_freq); break;
    case RopeScaling::Kind::yarn:
      scale_yarn(scaling, base, dims, rope.inv_freq);
      rope.scale = static_cast<float>(scaling.attention_factor.value_or(
          scaling.factor <= 1 ? 1.0 : 0.1 * std::log(scaling.factor) + 1.0));
      break;
    case RopeScaling::Kind::divisors:
      QUINTET_CHECK(scaling.divisors.size() == rope.inv_freq.size(), "{} divisors for {} frequencies",
                    scaling.divisors.size(), rope.inv_freq.size());
      for (size_t i = 0; i < rope.inv_freq.size(); ++i) {
        const float power =
            std::pow(static_cast<float>(base), static_cast<float>(2 * i) / static_cast<float>(dims));
        rope.inv_freq[i] = 1.0f / (scaling.divisors[i] * power);
      }
      rope.scale = static_cast<float>(scaling.attention_factor.value_or(1.0));
      break;
  }
  return rope;
}

}  // namespace quintet
