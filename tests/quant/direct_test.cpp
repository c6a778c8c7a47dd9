// E4M3, NF4 and bytes under scales of rows: every code, and rounding to the nearest.
#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "quant/blocks.h"
#include "quant/quantize.h"
#include "tensor/float8.h"

namespace quintet {
namespace {

/// Sign, exponent and mantissa taken apart, as the paper has them.
double e4m3(int bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return bits & 0x80 ? -magnitude : magnitude;
}

TEST(Float8, EveryCodeIsWhatThePaperSays) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = f8_to_f32(static_cast<uint8_t>(bits));
    if ((bits & 0x7F) == 0x7F) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      continue;
    }
    EXPECT_EQ(value, e4m3(bits)) << bits;
    EXPECT_EQ(f32_to_f8(value), bits);
  }
  EXPECT_EQ(f8_to_f32(0x7E), kLargestF8);
}

TEST(Float8, RoundsToTheNearestTiesToEven) {
  std::mt19937 random(5);
  std::vector<float> values = {0, -0.0f, 1e-30f, 448, 463.9f, 1e30f, INFINITY, -INFINITY, 0x1p-10f, 0x1.8p-9f};
  for (int bits = 0; bits < 0x7E; ++bits)  // the middle between neighbours
    values.push_back(static_cast<float>((e4m3(bits) + e4m3(bits + 1)) / 2));
  for (int i = 0; i < 20000; ++i)
    values.push_back(std::ldexp(std::uniform_real_distribution<float>(-2, 2)(random),
                                std::uniform_int_distribution<int>(-12, 9)(random)));
  for (const float value : values) {
    int best = 0;
    double least = INFINITY;
    for (int bits = 0; bits < 0x7F; ++bits) {
      const double distance = std::abs(std::min(std::abs(static_cast<double>(value)), 448.0) - e4m3(bits));
      if (distance < least || (distance == least && bits % 2 == 0)) least = distance, best = bits;
    }
    EXPECT_EQ(f32_to_f8(value) & 0x7F, best) << value;
    EXPECT_EQ(f32_to_f8(value) >> 7, std::signbit(value)) << value;
  }
  EXPECT_TRUE(f8_is_nan(f32_to_f8(NAN)));
}

MatrixToQuantize matrix_of(const std::vector<float>& values, int64_t n) {
  return {.name = "w", .n = n, .k = static_cast<int64_t>(values.size()) / n, .weights = values.data(), .threads = 2};
}

std::vector<float> decode(const QuantizedMatrix& made) {
  std::vector<float> values(static_cast<size_t>(made.n * made.k));
  const HostWeight view = made.view("w");
  EXPECT_TRUE(check_side_data(view));
  for (int64_t row = 0; row < made.n; ++row) decode_row(view, row, values.data() + row * made.k);
  return values;
}

TEST(QuantizeDirect, ErrorsAreAtMostHalfTheDistanceOfNeighbours) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal(0, 0.02f);
  std::vector<float> values(9 * 192);
  for (float& value : values) value = normal(random);
  std::fill_n(values.begin() + 192, 192, 0.0f);      // a dead row
  std::fill_n(values.begin() + 4 * 192, 64, 0.0f);   // a group of zeros
  values[5 * 192 + 7] = 3;                           // an outlier
  for (const WeightFormat format : {WeightFormat::nf4, WeightFormat::nf4_dq, WeightFormat::fp8, WeightFormat::int8}) {
    SCOPED_TRACE(format_info(format).name);
    const QuantizedMatrix made = quantize_direct(matrix_of(values, 9), format);
    const std::vector<float> got = decode(made);
    for (size_t row = 0; row < 9; ++row) {
      float row_largest = 0;
      for (size_t i = 0; i < 192; ++i) row_largest = std::max(row_largest, std::abs(values[row * 192 + i]));
      for (size_t i = 0; i < 192; ++i) {
        const float value = values[row * 192 + i], error = std::abs(got[row * 192 + i] - value);
        float block = 0;
        for (size_t j = i / 64 * 64; j < i / 64 * 64 + 64; ++j) block = std::max(block, std::abs(values[row * 192 + j]));
        const float allowed = format == WeightFormat::int8  ? row_largest / 254
                              : format == WeightFormat::fp8 ? std::max(std::abs(value) / 16, row_largest / 448 * 0x1p-10f)
                              // The widest gap of NF4 is 0.304; scales of 8 bits are off by up to half of 1 / 255.
                              : format == WeightFormat::nf4 ? block * 0.153f
                                                            : block * 0.153f + row_largest / 510;
        EXPECT_LE(error, allowed * 1.001f) << row << ", " << i << ": " << value;
      }
    }
  }
}

TEST(QuantizeDirect, Nf4TakesTheNearestLevel) {
  std::vector<float> values(64);
  for (size_t i = 0; i < 64; ++i) values[i] = -1 + static_cast<float>(i) * 2 / 63;
  const std::vector<float> got = decode(quantize_direct(matrix_of(values, 1), WeightFormat::nf4));
  for (size_t i = 0; i < 64; ++i) {
    float nearest = kNf4Values[0];
    for (const float level : kNf4Values)
      if (std::abs(level - values[i]) < std::abs(nearest - values[i])) nearest = level;
    EXPECT_FLOAT_EQ(got[i], nearest) << values[i];
  }
}

TEST(QuantizeDirect, ScalesThatAreMissingOrInfiniteAreRefused) {
  const std::vector<float> values(128, 0.5f);
  QuantizedMatrix made = quantize_direct(matrix_of(values, 2), WeightFormat::int8);
  HostWeight view = made.view("some.weight");
  view.row_scales = view.row_scales.first(4);
  EXPECT_NE(check_side_data(view).error().message.find("some.weight"), std::string::npos);
  made.row_scales[1] = NAN;
  EXPECT_FALSE(check_side_data(made.view("w")));
  QuantizedMatrix plain = quantize_rtn(matrix_of(values, 2), {4, 64, false}, Granularity::group);
  plain.row_scales = {1, 1};
  EXPECT_FALSE(check_side_data(plain.view("w")));
}

}  // namespace
}  // namespace quintet
