// Encoders against the decoders: what may be lost follows from the grid of each format.
#include "quant/encode.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "quant/blocks.h"

namespace quintet {
namespace {

std::mt19937& rng() {
  static std::mt19937 engine{std::random_device{}()};
  return engine;
}

std::vector<WeightFormat> formats() {
  std::vector<WeightFormat> all;
  for (const FormatInfo& info : format_table())
    if (can_encode(info.format)) all.push_back(info.format);
  return all;
}

std::vector<float> normals(size_t count, float sigma = 0.05f) {
  std::normal_distribution<float> normal(0, sigma);
  std::vector<float> values(count);
  for (float& v : values) v = normal(rng());
  return values;
}

std::vector<float> round_trip(WeightFormat format, const std::vector<float>& values,
                              std::span<const float> importance = {}) {
  const FormatInfo& info = format_info(format);
  const size_t blocks = values.size() / static_cast<size_t>(info.block_weights);
  std::vector<uint8_t> bytes(blocks * static_cast<size_t>(info.block_bytes), 0xEE);
  std::vector<float> out(values.size());
  encode_blocks(format, values, importance, bytes.data());
  info.decode(bytes.data(), blocks, out.data());
  return out;
}

double error(const std::vector<float>& a, const std::vector<float>& b, const float* importance = nullptr) {
  double lost = 0, had = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double weight = importance ? importance[i % 512] : 1;
    lost += weight * std::pow(a[i] - b[i], 2);
    had += weight * std::pow(a[i], 2);
  }
  return lost / had;
}

TEST(Encode, NormalValuesLoseWhatTheBitsSay) {
  // Of a good b-bit grid for normal values about 2^-2b is lost, times 2 to 4 for groups that are not alike.
  const auto values = normals(512 * 40);
  for (const WeightFormat format : formats()) {
    const FormatInfo& info = format_info(format);
    const double lost = error(values, round_trip(format, values));
    SCOPED_TRACE(std::string(info.name));
    const size_t digit =
        info.name.find_first_of("0123456789");  // q4_1, iq4_nl: bits of a code, without the scales
    const int bits = info.name[digit] - '0';
    if (info.block_weights == 1) {
      EXPECT_LT(lost, 1e-5);
    } else {
      EXPECT_LT(lost, 4 * std::pow(4.0, -bits));
      EXPECT_GT(lost, 0.02 * std::pow(4.0, -bits));
    }
  }
}

TEST(Encode, WhatIsOnAGridAlreadyNearlyStays) {
  const auto values = normals(512 * 8);
  for (const WeightFormat format : formats()) {
    const auto once = round_trip(format, values);
    // Encoded again: the search finds a grid that is as good, up to the rounding of scales.
    EXPECT_LT(error(once, round_trip(format, once)), 0.7 * error(values, once) + 1e-12)
        << format_info(format).name;
  }
}

TEST(Encode, ImportanceMovesTheErrorToWhereItCountsLess) {
  const auto values = normals(512 * 40);
  std::vector<float> importance(512);
  for (float& h : importance) h = rng()() % 16 == 0 ? 100.0f : 1.0f;
  for (const WeightFormat format : formats()) {
    const FormatInfo& info = format_info(format);
    if (info.block_weights == 1) continue;
    EXPECT_LT(error(values, round_trip(format, values, importance), importance.data()),
              error(values, round_trip(format, values), importance.data()))
        << info.name;
  }
}

std::vector<uint8_t> encoded(WeightFormat format, std::span<const float> values, std::span<const float> importance,
                             CpuSimd simd = CpuSimd::best) {
  const FormatInfo& info = format_info(format);
  std::vector<uint8_t> bytes(values.size() / static_cast<size_t>(info.block_weights) * static_cast<size_t>(info.block_bytes));
  encode_blocks(format, values, importance, bytes.data(), simd);
  return bytes;
}

std::vector<float> exponentials(size_t count) {
  std::exponential_distribution<float> size;
  std::vector<float> values(count);
  for (float& v : values) v = size(rng());
  return values;
}

TEST(Encode, EveryInstructionSetGivesTheSameBytes) {
  const auto values = normals(768 * 7);
  for (const std::vector<float>& importance : {std::vector<float>(), exponentials(768)})
    for (const WeightFormat format : formats()) {
      const auto best = encoded(format, values, importance);
      for (const CpuSimd simd : {CpuSimd::avx512, CpuSimd::avx2, CpuSimd::baseline})
        if (cpu_has(simd)) {
          EXPECT_EQ(encoded(format, values, importance, simd), best) << format_info(format).name << ", " << static_cast<int>(simd);
        }
    }
}

TEST(Encode, BlocksDoNotDependOnThoseBesideThem) {
  const size_t blocks = 37;
  for (const WeightFormat format : formats()) {
    const auto weights = static_cast<size_t>(format_info(format).block_weights);
    const auto values = normals(weights * blocks);
    const auto importance = exponentials(weights);
    std::vector<uint8_t> one_by_one;
    for (size_t b = 0; b < blocks; ++b) {
      const auto bytes = encoded(format, std::span(values).subspan(b * weights, weights), importance);
      one_by_one.insert(one_by_one.end(), bytes.begin(), bytes.end());
    }
    EXPECT_EQ(encoded(format, values, importance), one_by_one) << format_info(format).name;
  }
}

/// The least weighted error of a block of 32 values on `grid` (ascending) under any of many scales: slow, and obvious.
double least_error(std::span<const float> values, std::span<const float> importance, std::span<const float> grid) {
  float largest = 0;
  for (const float v : values) largest = std::max(largest, std::abs(v));
  const float end = std::max(std::abs(grid.front()), std::abs(grid.back()));
  double least = std::numeric_limits<double>::infinity();
  for (int i = -3000; i <= 3000; ++i) {
    const float scale = largest / end * 1.5f * static_cast<float>(i) / 3000;
    if (i == 0) continue;
    double lost = 0;
    for (size_t j = 0; j < values.size(); ++j) {
      const auto above = std::lower_bound(grid.begin(), grid.end(), values[j] / scale);
      const float high = above == grid.end() ? grid.back() : *above, low = above == grid.begin() ? grid.front() : above[-1];
      const double error = std::min(std::abs(values[j] - scale * high), std::abs(values[j] - scale * low));
      lost += importance[j] * error * error;
    }
    least = std::min(least, lost);
  }
  return least;
}

TEST(Encode, NoOtherScaleLosesMuchLess) {
  constexpr size_t kBlocks = 240;  // of fewer one in a hundred runs had more than `most`
  std::vector<float> levels(std::begin(kIq4Values), std::end(kIq4Values));
  const auto whole = [](int low, int high) {
    std::vector<float> grid;
    for (int q = low; q <= high; ++q) grid.push_back(static_cast<float>(q));
    return grid;
  };
  const struct {
    WeightFormat format;
    std::vector<float> grid;
    double most;  // 6000 scales against 19 or 26: with more codes more of them happen to suit a block
  } cases[] = {{WeightFormat::q4_0, whole(-8, 7), 1.05},
               {WeightFormat::iq4_nl, levels, 1.05},
               {WeightFormat::q5_0, whole(-16, 15), 1.10},
               {WeightFormat::q8_0, whole(-127, 127), 1.30}};
  for (const bool weighted : {false, true})
    for (const auto& [format, grid, most] : cases) {
      const auto values = normals(32 * kBlocks);
      const auto importance = weighted ? exponentials(32) : std::vector<float>(32, 1.0f);
      const auto decoded = round_trip(format, values, importance);
      double lost = 0, least = 0;
      for (size_t b = 0; b < kBlocks; ++b) {
        for (size_t i = 32 * b; i < 32 * b + 32; ++i) lost += importance[i % 32] * std::pow(values[i] - decoded[i], 2);
        least += least_error(std::span(values).subspan(32 * b, 32), importance, grid);
      }
      EXPECT_LT(lost, most * least) << format_info(format).name << (weighted ? ", weighted" : "");
      EXPECT_GT(lost, 0.99 * least) << format_info(format).name;
    }
}

TEST(Encode, SuperBlocksLoseLittleMoreThanGroupsWithScalesOfTheirOwn) {
  // The same groups of 32, but for scales and minima of 6 bits under one half.
  const auto values = normals(512 * 60);
  const auto lost = [&](WeightFormat format) { return error(values, round_trip(format, values)); };
  EXPECT_LT(lost(WeightFormat::q4_k), 1.04 * lost(WeightFormat::q4_1));
  EXPECT_LT(lost(WeightFormat::q5_k), 1.06 * lost(WeightFormat::q5_1));
  EXPECT_LT(lost(WeightFormat::iq4_xs), 1.04 * lost(WeightFormat::iq4_nl));
}

TEST(Encode, ZerosConstantsAndExtremesAreHeld) {
  for (const WeightFormat format : formats()) {
    SCOPED_TRACE(std::string(format_info(format).name));
    for (const float value : round_trip(format, std::vector<float>(256))) EXPECT_EQ(value, 0);
    for (const float constant : {0.5f, -0.5f, 1000.0f, -6e-3f}) {
      const auto out = round_trip(format, std::vector<float>(256, constant));
      for (const float value : out) {
        ASSERT_TRUE(std::isfinite(value));
        EXPECT_NEAR(value, constant, std::abs(constant) * 0.05f + 1e-5f);
      }
    }
    std::vector<float> spike = normals(256, 1e-4f);
    spike[77] = 100;
    for (const float value : round_trip(format, spike)) EXPECT_TRUE(std::isfinite(value));
    const std::vector<float> none(256);
    for (const float value : round_trip(format, normals(256), none)) EXPECT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace quintet
