// The vector kernels of the integer formats against the scalar functions, bit by bit, on every target of this
// machine.
#include "quant/row_kernels.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "tensor/half.h"

namespace quintet {
namespace {

std::vector<CpuSimd> targets() {
  std::vector<CpuSimd> all;
  for (const CpuSimd simd : {CpuSimd::baseline, CpuSimd::avx2, CpuSimd::avx512})
    if (cpu_has(simd)) all.push_back(simd);
  return all;
}

bool same_bits(float a, float b) { return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b); }

std::vector<IntegerFormat> formats() {
  std::vector<IntegerFormat> all;
  for (const int bits : {3, 4, 8})
    for (const int group : {32, 64, 128})
      for (const bool minimum : {false, true}) all.push_back({bits, group, minimum});
  all.push_back({.bits = 4, .group = 128, .minimum = true, .whole_zero = true});
  return all;
}

/// Rows of all sorts: heavy tails, subnormal and huge ones, zeros of both signs, half of them kept.
struct Row {
  std::vector<float> values, weights;
  std::vector<uint8_t> kept;
  Row(size_t count, int kind) : values(count), weights(count), kept(count) {
    std::mt19937 random(static_cast<unsigned>(kind));
    std::normal_distribution<float> normal;
    const float size[] = {0.02f, 1e-6f, 1e4f, 0, 0.02f};
    for (size_t i = 0; i < count; ++i) {
      values[i] = size[kind % 5] * normal(random) * (random() % 50 == 0 ? 6.0f : 1.0f);
      if (kind % 5 == 3) values[i] = random() % 2 ? 0.0f : -0.0f;
      if (kind % 5 == 4 && random() % 3 == 0)
        values[i] = 0.02f * static_cast<float>(static_cast<int>(random() % 3) - 1);
      weights[i] = std::exp(normal(random));
      kept[i] = kind % 2 ? random() % 2 : 1;
    }
    if (kind == 5) std::fill_n(kept.begin(), 128, uint8_t{0});
  }
};

TEST(RowKernels, RangesCodesAndValuesAreThoseOfTheScalarFunctions) {
  for (const CpuSimd simd : targets())
    for (const IntegerFormat& format : formats())
      for (int kind = 0; kind < 10; ++kind) {
        SCOPED_TRACE(fmt::format("target {}, {} bits, groups of {}, minimum {}, kind {}",
                                 static_cast<int>(simd), format.bits, format.group, format.minimum, kind));
        const auto group = static_cast<size_t>(format.group);
        const size_t groups = 21;  // one batch and a part of the next
        const Row row(groups * group, kind);
        const RowKernels& kernels = row_kernels(simd);
        const bool keeps_all = kind % 2 == 0, weighted = kind % 3 != 0;
        const RowGroups of{.format = format,
                           .groups = groups,
                           .values = row.values.data(),
                           .kept = keeps_all ? nullptr : row.kept.data(),
                           .weights = weighted ? row.weights.data() : nullptr};
        std::vector<Extent> extents(groups);
        std::vector<IntegerRange> found(groups);
        std::vector<uint8_t> codes(groups * group);
        std::vector<float> decoded(codes.size());
        kernels.extents(of, extents.data());
        kernels.search(of, extents.data(), found.data());
        kernels.round(of, found.data(), codes.data());
        kernels.decode(format, codes.data(), groups, found.data(), decoded.data());
        for (size_t g = 0; g < groups; ++g) {
          const std::span values(row.values.data() + g * group, group);
          const uint8_t* kept = of.kept ? of.kept + g * group : nullptr;
          const Extent extent = extent_of(values, kept);
          ASSERT_TRUE(same_bits(extent.low, extents[g].low) || (extent.low == 0 && extent.high != 0))
              << extent.low << " " << extents[g].low;
          ASSERT_TRUE(same_bits(extent.high, extents[g].high) || (extent.high == 0 && extent.low != 0))
              << extent.high;
          const IntegerRange range =
              search_range(format, values, of.weights ? of.weights + g * group : nullptr, kept);
          ASSERT_TRUE(same_bits(range.scale, found[g].scale))
              << g << ": " << range.scale << " " << found[g].scale;
          ASSERT_TRUE(same_bits(range.minimum, found[g].minimum))
              << g << ": " << range.minimum << " " << found[g].minimum;
          for (size_t i = 0; i < group; ++i) {
            const int code = nearest_code(format, range, values[i]);
            ASSERT_EQ(code, codes[g * group + i]);
            ASSERT_TRUE(same_bits(value_of(format, range, code), decoded[g * group + i]));
          }
        }
      }
}

TEST(RowKernels, EveryHalfIsDecodedToItsBits) {
  std::vector<uint8_t> in;
  for (uint32_t bits = 0; bits < 1 << 16; ++bits)
    in.push_back(static_cast<uint8_t>(bits)), in.push_back(static_cast<uint8_t>(bits >> 8));
  for (const CpuSimd simd : targets())
    for (const size_t first : {0, 3}) {  // a row may begin anywhere, and end within a vector
      std::vector<float> out((1 << 16) - first);
      row_kernels(simd).decode_f16(in.data() + 2 * first, out.size(), out.data());
      for (size_t i = 0; i < out.size(); ++i)
        ASSERT_TRUE(same_bits(out[i], f16_to_f32(static_cast<uint16_t>(first + i)))) << first + i;
    }
}

TEST(RowKernels, WhatIsTooLargeOrNoNumberIsSeenAtAnyPlace) {
  for (const CpuSimd simd : targets())
    for (const float bad : {NAN, INFINITY, -INFINITY, 5.01f, -5.01f})
      for (size_t at = 0; at < 41; ++at) {
        std::vector<float> values(41, -5.0f);
        EXPECT_TRUE(row_kernels(simd).all_within(values.data(), values.size(), 5));
        values[at] = bad;
        EXPECT_FALSE(row_kernels(simd).all_within(values.data(), values.size(), 5)) << at << ": " << bad;
      }
}

TEST(RowKernels, ErrorsAreSumsOfEightSums) {
  const Row row(1003, 0), other(1003, 4);
  for (const bool weighted : {false, true}) {
    double lost[8] = {}, had[8] = {};
    for (size_t i = 0; i < 1003; ++i) {
      const size_t sum = i < 1000 ? i % 8 : 0;
      const double moment = weighted ? row.weights[i] : 1, weight = row.values[i],
                   error = weight - other.values[i];
      lost[sum] += moment * error * error;
      had[sum] += moment * weight * weight;
    }
    double all_lost = 0, all_had = 0;
    for (int i = 0; i < 8; ++i) all_lost += lost[i], all_had += had[i];
    for (const CpuSimd simd : targets()) {
      double found_lost = 0, found_had = 0;
      row_kernels(simd).errors(row.values.data(), other.values.data(),
                               weighted ? row.weights.data() : nullptr, 1003, &found_lost, &found_had);
      EXPECT_EQ(found_lost, all_lost);
      EXPECT_EQ(found_had, all_had);
    }
  }
}

}  // namespace
}  // namespace quintet
