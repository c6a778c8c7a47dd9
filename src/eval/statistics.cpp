// Means, quantiles and the block bootstrap.
#include "eval/statistics.h"

#include <algorithm>
#include <cmath>
#include <random>

#include "base/check.h"

namespace quintet {
namespace {

double quantile_of_sorted(std::span<const double> sorted, double share) {
  const double at = share * static_cast<double>(sorted.size() - 1);
  const auto low = static_cast<size_t>(at), high = std::min(low + 1, sorted.size() - 1);
  const double part = at - static_cast<double>(low);
  return sorted[low] * (1 - part) + sorted[high] * part;
}

}  // namespace

double mean(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

double quantile(std::span<const float> values, double share) {
  QUINTET_CHECK(!values.empty() && share >= 0 && share <= 1, "quantile {} of {} values", share,
                values.size());
  std::vector<double> sorted(values.begin(), values.end());
  std::sort(sorted.begin(), sorted.end());
  return quantile_of_sorted(sorted, share);
}

Interval bootstrap(const std::vector<std::span<const float>>& series,
                   const std::function<double(std::span<const double> means)>& statistic, int64_t block) {
  QUINTET_CHECK(!series.empty() && !series.front().empty(), "a bootstrap of nothing");
  const auto tokens = static_cast<int64_t>(series.front().size());
  const int64_t blocks = (tokens + block - 1) / block;
  const auto block_tokens = [&](int64_t index) { return std::min(block, tokens - index * block); };
  // Sums of blocks once, so that a draw costs blocks and not tokens.
  std::vector<std::vector<double>> sums(series.size(), std::vector<double>(static_cast<size_t>(blocks)));
  for (size_t s = 0; s < series.size(); ++s) {
    QUINTET_CHECK(series[s].size() == series.front().size(), "series of different lengths");
    for (int64_t i = 0; i < tokens; ++i)
      sums[s][static_cast<size_t>(i / block)] += series[s][static_cast<size_t>(i)];
  }
  std::mt19937_64 random(1);
  std::uniform_int_distribution<int64_t> any_block(0, blocks - 1);
  std::vector<double> drawn, means(series.size());
  for (int draw = 0; draw < kBootstrapDraws; ++draw) {
    std::fill(means.begin(), means.end(), 0.0);
    int64_t count = 0;
    for (int64_t i = 0; i < blocks; ++i) {
      const int64_t index = any_block(random);
      count += block_tokens(index);
      for (size_t s = 0; s < series.size(); ++s) means[s] += sums[s][static_cast<size_t>(index)];
    }
    for (double& value : means) value /= static_cast<double>(count);
    drawn.push_back(statistic(means));
  }
  std::sort(drawn.begin(), drawn.end());
  return {quantile_of_sorted(drawn, 0.025), quantile_of_sorted(drawn, 0.975)};
}

}  // namespace quintet
