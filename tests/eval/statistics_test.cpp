// Means, quantiles and intervals that cover what they should.
#include "eval/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace quintet {
namespace {

TEST(Statistics, QuantilesLieBetweenRanks) {
  const std::vector<float> values = {4, 1, 3, 2};
  EXPECT_EQ(quantile(values, 0), 1);
  EXPECT_EQ(quantile(values, 1), 4);
  EXPECT_DOUBLE_EQ(quantile(values, 0.5), 2.5);
  EXPECT_DOUBLE_EQ(mean(values), 2.5);
}

TEST(Statistics, IntervalsCoverTheMeanAboutAsOftenAsTheySay) {
  std::mt19937 random(std::random_device{}());
  std::normal_distribution<float> noise(3, 1);
  int covered = 0;
  constexpr int kTrials = 60;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<float> values(64 * kBootstrapBlock_tokens);
    for (float& value : values) value = noise(random);
    const Interval i = bootstrap({values}, [](std::span<const double> means) { return means[0]; });
    EXPECT_LT(i.low, i.high);
    covered += i.low <= 3 && 3 <= i.high;
  }
  // 95 % of 60 is 57; fewer than 46 happens once in a billion.
  EXPECT_GE(covered, 46);
}

TEST(Statistics, SeriesOfTheSameTokensAreDrawnTogether) {
  std::mt19937 random(3);
  std::normal_distribution<float> noise(0, 1);
  std::vector<float> a(2000), b(2000);
  for (size_t i = 0; i < a.size(); ++i) b[i] = (a[i] = noise(random)) + 0.25f;
  const Interval i = bootstrap({a, b}, [](std::span<const double> means) { return means[1] - means[0]; });
  EXPECT_NEAR(i.low, 0.25, 1e-5);
  EXPECT_NEAR(i.high, 0.25, 1e-5);
  EXPECT_EQ(i.low, bootstrap({a, b}, [](std::span<const double> m) { return m[1] - m[0]; }).low);
}

TEST(Statistics, AFewTokensGiveAnIntervalToo) {
  const std::vector<float> one = {2};
  const Interval i = bootstrap({one}, [](std::span<const double> means) { return means[0]; });
  EXPECT_EQ(i.low, 2);
  EXPECT_EQ(i.high, 2);
}

}  // namespace
}  // namespace quintet
