// Encoders against the decoders: what may be lost follows from the grid of each format.
#include "quant/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

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
                              const float* importance = nullptr) {
  const FormatInfo& info = format_info(format);
  const size_t blocks = values.size() / static_cast<size_t>(info.block_weights);
  std::vector<uint8_t> bytes(blocks * static_cast<size_t>(info.block_bytes), 0xEE);
  std::vector<float> out(values.size());
  encode_blocks(format, values.data(), importance, blocks, bytes.data());
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
    if (info.block_weights == 1 || format == WeightFormat::q8_0)
      continue;  // q8_0 covers the extent in any case
    double with = 0, without = 0;
    for (size_t row = 0; row < 40; ++row) {
      const std::vector<float> x(values.begin() + static_cast<std::ptrdiff_t>(row * 512),
                                 values.begin() + static_cast<std::ptrdiff_t>(row * 512 + 512));
      with += error(x, round_trip(format, x, importance.data()), importance.data());
      without += error(x, round_trip(format, x), importance.data());
    }
    EXPECT_LT(with, without) << info.name;
  }
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
    for (const float value : round_trip(format, normals(256), none.data())) EXPECT_TRUE(std::isfinite(value));
  }
}

}  // namespace
}  // namespace quintet
