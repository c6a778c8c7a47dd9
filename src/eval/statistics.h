// Means of per-token figures with their uncertainty.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace quintet {

struct Interval {
  double low = 0, high = 0;
};

/// Tokens of a text are not independent: neighbours share a context. So whole blocks of this many neighbours
/// are drawn.
inline constexpr int64_t kBootstrapBlock_tokens = 32;
inline constexpr int kBootstrapDraws = 2000;

/// 95 % interval of `statistic` over block-bootstrap draws (Efron and Tibshirani, "An Introduction to the
/// Bootstrap", 1993, percentile interval). A draw is a list of blocks; the statistic gets, for each series,
/// the mean over that draw, so series of the same tokens are drawn together and their ratio or difference has
/// a paired interval. Deterministic. `series` are of equal, positive length. `block`: neighbours that are drawn together;
/// 1 for questions, which do not depend on each other.
Interval bootstrap(const std::vector<std::span<const float>>& series,
                   const std::function<double(std::span<const double> means)>& statistic,
                   int64_t block = kBootstrapBlock_tokens);

double mean(std::span<const float> values);

/// The value below which `share` (0 to 1) of the values lie, between the two nearest ranks.
double quantile(std::span<const float> values, double share);

}  // namespace quintet
