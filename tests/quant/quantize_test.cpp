// The compression methods on small matrices: bounds that follow from their definitions, and the order among
// them.
#include "quant/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "quant/integer_range.h"
#include "quant/products.h"

namespace quintet {
namespace {

std::mt19937& rng() {
  static std::mt19937 engine{std::random_device{}()};
  return engine;
}
float normal() { return std::normal_distribution<float>()(rng()); }

std::vector<IntegerFormat> family() {
  std::vector<IntegerFormat> all;
  for (const FormatInfo& info : format_table())
    if (const auto format = integer_format(info.format)) all.push_back(*format);
  return all;
}

/// Heavy-tailed weights, and inputs of which a few channels are large and neighbours go together.
struct Problem {
  int64_t n, k, rows;
  std::vector<float> weights, inputs, held_out, moments, hessian;

  Problem(int64_t n, int64_t k, int64_t rows) : n(n), k(k), rows(rows), moments(k), hessian(k * k) {
    for (int64_t i = 0; i < n * k; ++i) {
      const float w = normal();
      weights.push_back(0.02f * w * (rng()() % 200 == 0 ? 6 : 1));
    }
    std::vector<float> size(static_cast<size_t>(k));
    for (float& s : size) s = std::exp(normal()) * (rng()() % 50 == 0 ? 8 : 1);
    for (auto* x : {&inputs, &held_out})
      for (int64_t r = 0; r < rows; ++r) {
        float before = 0;
        for (int64_t i = 0; i < k; ++i) {
          before = 0.7f * before + normal();
          x->push_back(before * size[static_cast<size_t>(i)]);
        }
      }
    FloatMatrix x{inputs.data(), rows, k, k};
    add_product(x, x, 1.0f / static_cast<float>(rows), false, 1, {hessian.data(), k, k, k});
    for (int64_t i = 0; i < k; ++i) moments[i] = hessian[i * k + i];
  }

  MatrixToQuantize matrix() const {
    return {.name = "w",
            .n = n,
            .k = k,
            .weights = weights.data(),
            .moments = moments,
            .threads = 2};
  }

  Result<QuantizedMatrix> gptq(const GptqOptions& options, double outliers = 0) const {
    TRY_ASSIGN(const GptqInputs prepared, prepare_gptq("w", k, hessian, options, 2));
    return quantize_gptq(matrix(), {}, prepared, outliers);
  }

  /// Squared error of the outputs over inputs that no method has seen, relative to the outputs.
  double output_error(const QuantizedMatrix& q) const {
    double lost = 0, had = 0;
    std::vector<float> row(static_cast<size_t>(k));
    for (int64_t i = 0; i < n; ++i) {
      decode_row(q.view("w"), i, row.data());
      for (int64_t r = 0; r < rows; ++r) {
        double e = 0, y = 0;
        for (int64_t j = 0; j < k; ++j) {
          const double x = held_out[static_cast<size_t>(r * k + j)],
                       w = weights[static_cast<size_t>(i * k + j)];
          e += x * (w - row[static_cast<size_t>(j)]);
          y += x * w;
        }
        lost += e * e;
        had += y * y;
      }
    }
    return lost / had;
  }
};

TEST(IntegerFormat, CodesComeBackFromTheirBlocks) {
  for (const IntegerFormat& format : family()) {
    SCOPED_TRACE(testing::Message() << format.bits << " bits, groups of " << format.group << ", "
                                    << format.minimum);
    ASSERT_EQ(format_info(*weight_format_of(format)).block_bytes, format.block_bytes());
    std::vector<uint8_t> codes(static_cast<size_t>(format.group)), back(codes.size()),
        block(static_cast<size_t>(format.block_bytes()), 0xA5);
    for (uint8_t& code : codes)
      code = static_cast<uint8_t>(rng()() % static_cast<unsigned>(format.max_code() + 1));
    const uint8_t scale[4] = {0x00, 0x38, 0x00, 0x3C};  // 0.5 and 1
    std::copy_n(scale, format.codes_at(), block.data());
    pack_codes(format, codes.data(), block.data());
    unpack_codes(format, block.data(), back.data());
    EXPECT_EQ(codes, back);
    std::vector<float> values(codes.size());
    format_info(*weight_format_of(format)).decode(block.data(), 1, values.data());
    for (size_t i = 0; i < codes.size(); ++i)
      EXPECT_EQ(values[i],
                0.5f * static_cast<float>(codes[i] - format.code_offset()) + (format.minimum ? 1 : 0));
  }
}

TEST(Rtn, ErrsByAtMostHalfAStep) {
  for (const IntegerFormat& format : family())
    for (const auto granularity : {Granularity::tensor, Granularity::channel, Granularity::group}) {
      const Problem p(5, 384, 1);
      const QuantizedMatrix q = quantize_rtn(p.matrix(), format, granularity);
      std::vector<float> row(384);
      for (int64_t i = 0; i < 5; ++i) {
        decode_row(q.view("w"), i, row.data());
        for (int64_t j = 0; j < 384; ++j) {
          const int64_t begin = granularity == Granularity::tensor ? 0
                                : granularity == Granularity::channel
                                    ? i * 384
                                    : i * 384 + j / format.group * format.group;
          const int64_t count = granularity == Granularity::tensor    ? 5 * 384
                                : granularity == Granularity::channel ? 384
                                                                      : format.group;
          const Extent extent = extent_of({p.weights.data() + begin, static_cast<size_t>(count)}, nullptr);
          const float reach = std::max(-extent.low, extent.high);
          const float step = format.minimum
                                 ? (extent.high - extent.low) / static_cast<float>(format.max_code())
                                 : reach / static_cast<float>(format.max_code() / 2);
          // Scale and minimum are rounded to FP16: 2^-11 of the reach each.
          EXPECT_NEAR(row[static_cast<size_t>(j)], p.weights[static_cast<size_t>(i * 384 + j)],
                      step / 2 + 3 * reach * 0x1p-11f);
        }
      }
    }
}

TEST(Rtn, ZerosStayZeros) {
  const std::vector<float> zeros(3 * 256);
  for (const IntegerFormat& format : family()) {
    const MatrixToQuantize matrix{.name = "w", .n = 3, .k = 256, .weights = zeros.data()};
    for (const QuantizedMatrix& q :
         {quantize_rtn(matrix, format, Granularity::group), quantize_outlier(matrix, format, {})}) {
      std::vector<float> row(256, 1);
      for (int64_t i = 0; i < 3; ++i) {
        decode_row(q.view("w"), i, row.data());
        for (const float value : row) EXPECT_EQ(value, 0);
      }
    }
  }
}

TEST(Ranges, WholeZeroPointsAreWholeAndStandForZero) {
  for (const int bits : {3, 4, 8})
    for (int round = 0; round < 200; ++round) {
      const IntegerFormat format{.bits = bits, .group = 64, .minimum = true, .whole_zero = true};
      std::vector<float> values(64), weights(64);
      const float shift = round % 4 == 0 ? 5 : round % 4 == 1 ? -5 : 0;  // all of one sign, too
      for (float& v : values) v = 0.02f * (normal() + shift);
      for (float& w : weights) w = std::exp(normal());
      for (const IntegerRange& range : {range_of(format, extent_of(values, nullptr)), search_range(format, values, weights.data(), nullptr)}) {
        const float zero = -range.minimum / range.scale;
        EXPECT_NEAR(zero, std::round(zero), 1e-4);
        EXPECT_GE(zero, 0.999f);
        EXPECT_LE(zero, static_cast<float>(format.max_code()) + 1e-3f);
        EXPECT_NEAR(value_of(format, range, static_cast<int>(std::lround(zero))), 0, 1e-6f);
      }
      const IntegerRange plain = range_of(format, extent_of(values, nullptr));
      for (const float v : values)  // nothing is cut off but for half a step where zero points are rounded
        EXPECT_NEAR(value_of(format, plain, nearest_code(format, plain, v)), v, 1.01f * plain.scale);
    }
}

TEST(Outlier, TheShareIsKeptAndExact) {
  const Problem p(40, 512, 64);
  for (const auto select : {OutlierSelect::magnitude, OutlierSelect::activation})
    for (const double share : {0.0, 0.001, 0.01}) {
      const QuantizedMatrix q = quantize_outlier(p.matrix(), {}, {.share = share, .select = select});
      EXPECT_EQ(q.outlier_column.size(), static_cast<size_t>(std::llround(share * 40 * 512)));
      EXPECT_TRUE(check_side_data(q.view("w")));
      if (share == 0) {
        EXPECT_TRUE(q.outlier_begin.empty());
        continue;
      }
      std::vector<float> row(512);
      for (int64_t i = 0; i < 40; ++i) {
        decode_row(q.view("w"), i, row.data());
        for (uint32_t e = q.outlier_begin[static_cast<size_t>(i)];
             e < q.outlier_begin[static_cast<size_t>(i + 1)]; ++e) {
          const float w = p.weights[static_cast<size_t>(i * 512 + q.outlier_column[e])];
          EXPECT_NEAR(row[q.outlier_column[e]], w, std::abs(w) * 0x1p-10f + 1e-7f);
        }
      }
    }
}

TEST(Outlier, MagnitudeKeepsTheLargest) {
  const Problem p(16, 256, 8);
  const QuantizedMatrix q =
      quantize_outlier(p.matrix(), {}, {.share = 0.01, .select = OutlierSelect::magnitude});
  std::vector<float> sizes;
  for (const float w : p.weights) sizes.push_back(std::abs(w));
  std::sort(sizes.begin(), sizes.end(), std::greater<>());
  for (int64_t i = 0; i < 16; ++i)
    for (uint32_t e = q.outlier_begin[static_cast<size_t>(i)];
         e < q.outlier_begin[static_cast<size_t>(i + 1)]; ++e)
      EXPECT_GE(std::abs(p.weights[static_cast<size_t>(i * 256 + q.outlier_column[e])]),
                sizes[q.outlier_column.size() - 1]);
}

TEST(Methods, EachCostsLessThanTheOneBefore) {
  const Problem p(48, 512, 2000);
  const MatrixToQuantize m = p.matrix();
  const double rtn = p.output_error(quantize_rtn(m, {}, Granularity::group));
  const double magnitude =
      p.output_error(quantize_outlier(m, {}, {.share = 0.005, .select = OutlierSelect::magnitude}));
  const double search = p.output_error(quantize_outlier(m, {}, {.share = 0}));
  const double activation = p.output_error(quantize_outlier(m, {}, {.share = 0.005}));
  const auto gptq = p.gptq({}), both = p.gptq({}, 0.005);
  ASSERT_TRUE(gptq && both);
  EXPECT_LT(magnitude, rtn);
  EXPECT_LT(search, rtn);
  EXPECT_LT(activation, magnitude);
  EXPECT_LT(activation, search);
  EXPECT_LT(p.output_error(*gptq), search);
  EXPECT_LT(p.output_error(*both), p.output_error(*gptq));
  EXPECT_LT(p.output_error(quantize_rtn(m, {.group = 32}, Granularity::group)), rtn);
  EXPECT_LT(rtn, p.output_error(quantize_rtn(m, {}, Granularity::channel)));
}

TEST(Gptq, OnUncorrelatedInputsIsPlainRoundingOfTheSearchedRanges) {
  Problem p(8, 128, 1);
  std::fill(p.hessian.begin(), p.hessian.end(), 0.0f);
  for (int64_t i = 0; i < 128; ++i)
    p.hessian[static_cast<size_t>(i * 128 + i)] = p.moments[static_cast<size_t>(i)];
  for (const bool act_order : {false, true}) {
    const auto gptq = p.gptq({.act_order = act_order});
    ASSERT_TRUE(gptq);
    EXPECT_EQ(gptq->blocks, quantize_outlier(p.matrix(), {}, {.share = 0}).blocks);
  }
}

TEST(Gptq, ASingularHessianRaisesTheDampingAndSaysSo) {
  Problem p(4, 256, 20);  // rank 20
  const auto q = p.gptq({.damping = 0});
  ASSERT_TRUE(q) << q.error().message;
  EXPECT_NE(q->note.find("damping raised"), std::string::npos);
  std::fill(p.hessian.begin(), p.hessian.end(), 0.0f);  // dead inputs alone
  EXPECT_TRUE(p.gptq({}));
  p.hessian[3] = p.hessian[0] = NAN;
  EXPECT_FALSE(p.gptq({}));
}

TEST(HessianLoss, IsTheErrorsSquareUnderTheDampedHessian) {
  const Problem p(20, 128, 300);
  const MatrixToQuantize m = p.matrix();
  for (const bool act_order : {false, true}) {
    const auto inputs = prepare_gptq("w", p.k, p.hessian, {.damping = 0.01, .act_order = act_order}, 2);
    ASSERT_TRUE(inputs);
    const double damped = 0.01 * std::accumulate(p.moments.begin(), p.moments.end(), 0.0) / static_cast<double>(p.k);
    const auto by_hand = [&](const QuantizedMatrix& q) {
      double sum = 0;
      std::vector<float> e(static_cast<size_t>(p.k));
      for (int64_t r = 0; r < p.n; ++r) {
        decode_row(q.view("w"), r, e.data());
        for (int64_t i = 0; i < p.k; ++i) e[static_cast<size_t>(i)] -= p.weights[static_cast<size_t>(r * p.k + i)];
        for (int64_t i = 0; i < p.k; ++i)
          for (int64_t j = 0; j < p.k; ++j)
            sum += static_cast<double>(e[static_cast<size_t>(i)]) * e[static_cast<size_t>(j)] *
                   (p.hessian[static_cast<size_t>(i * p.k + j)] + (i == j ? damped : 0));
      }
      return sum;
    };
    const QuantizedMatrix nearest = quantize_outlier(m, {}, {.share = 0}), gptq = quantize_gptq(m, {}, *inputs, 0);
    for (const QuantizedMatrix* q : {&nearest, &gptq}) {
      const double expected = by_hand(*q);
      EXPECT_NEAR(hessian_loss(m, *q, *inputs), expected, 0.002 * expected);
    }
    EXPECT_LT(hessian_loss(m, gptq, *inputs), hessian_loss(m, nearest, *inputs));
  }
}

TEST(Rows, PartsPutTogetherAreTheWhole) {
  const Problem p(24, 256, 8);
  for (const double share : {0.0, 0.01}) {
    QuantizedMatrix whole, parts;
    OutputError error;
    for (const int64_t count : {1, 16, 7}) {
      MatrixToQuantize m = p.matrix();
      m.weights += parts.n * m.k;
      m.n = count;
      QuantizedMatrix rows = quantize_outlier(m, {}, {.share = share});
      const OutputError of_rows = output_error(m, rows);
      error.lost += of_rows.lost, error.had += of_rows.had;
      append_rows(parts, std::move(rows));
    }
    ASSERT_EQ(parts.n, 24);
    ASSERT_TRUE(check_side_data(parts.view("w")));
    const OutputError all = output_error(p.matrix(), parts);
    EXPECT_NEAR(all.lost, error.lost, 1e-9 * error.lost);
    EXPECT_NEAR(all.had, error.had, 1e-9 * error.had);
    if (share == 0) {
      EXPECT_EQ(parts.blocks, quantize_outlier(p.matrix(), {}, {.share = 0}).blocks);
    }
    QuantizedMatrix bytes;
    for (int i = 0; i < 2; ++i) append_rows(bytes, quantize_direct(p.matrix(), WeightFormat::int8));
    EXPECT_TRUE(check_side_data(bytes.view("w")));
    EXPECT_EQ(bytes.row_scales.size(), 48u);
  }
}

TEST(Weights, ValuesThatCannotBeAreNamed) {
  for (const float bad : {NAN, INFINITY, -1e6f}) {
    std::vector<float> weights(256, 0.1f);
    weights[200] = bad;
    const Status status = check_weights({.name = "blk.1.w", .n = 2, .k = 128, .weights = weights.data()});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().kind, ErrorKind::bad_input);
    EXPECT_NE(status.error().message.find("blk.1.w: row 1, column 72"), std::string::npos)
        << status.error().message;
  }
}

TEST(Outliers, WrongOnesAreNamed) {
  const Problem p(4, 128, 4);
  const QuantizedMatrix good = quantize_outlier(p.matrix(), {}, {.share = 0.02});
  ASSERT_TRUE(check_side_data(good.view("w")));
  ASSERT_GE(good.outlier_column.size(), 4u);
  const auto expect_bad = [&](auto&& damage, std::string_view what) {
    QuantizedMatrix q = good;
    damage(q);
    const Status status = check_side_data(q.view("w"));
    ASSERT_FALSE(status) << what;
    EXPECT_NE(status.error().message.find(what), std::string::npos) << status.error().message;
  };
  expect_bad([](auto& q) { q.outlier_column[0] = 128; }, "column 128");
  expect_bad([](auto& q) { q.outlier_begin[1] = 1000; }, "entries");
  expect_bad([](auto& q) { q.outlier_begin.pop_back(); }, "rows");
  expect_bad([](auto& q) { q.outlier_value[1] = 0x7C00; }, "finite");
  expect_bad([](auto& q) { q.outlier_value.pop_back(); }, "values");
}

TEST(Products, EqualTheDefinition) {
  const std::vector<std::array<int64_t, 3>> shapes = {{1, 1, 1}, {7, 5, 33}, {300, 100, 290}, {513, 97, 40}};
  for (const auto& [t, m, n] : shapes) {
    std::vector<float> a(static_cast<size_t>(t * m)), b(static_cast<size_t>(t * n)),
        c(static_cast<size_t>(m * n), 1.0f);
    for (float& v : a) v = normal();
    for (float& v : b) v = normal();
    add_product({a.data(), t, m, m}, {b.data(), t, n, n}, -1, false, 2, {c.data(), m, n, n});
    // The roundings of t additions, half a unit each, add up as a random walk does.
    const double roundings = 0x1p-24 * std::max(4.0, std::sqrt(static_cast<double>(t)));
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        double exact = 1, size = 1;
        for (int64_t s = 0; s < t; ++s) {
          const double term =
              static_cast<double>(a[static_cast<size_t>(s * m + i)]) * b[static_cast<size_t>(s * n + j)];
          exact -= term;
          size += std::abs(term);
        }
        ASSERT_NEAR(c[static_cast<size_t>(i * n + j)], exact, size * roundings) << t << " " << m << " " << n;
      }
  }
}

TEST(Products, RowsAndColumnsArePermutedAndHalvesMirroredInPlace) {
  for (const int64_t k : {1, 2, 97, 200}) {
    std::vector<float> m(static_cast<size_t>(k * k));
    for (float& v : m) v = normal();
    std::vector<int64_t> order(static_cast<size_t>(k));
    std::iota(order.begin(), order.end(), int64_t{0});
    std::shuffle(order.begin(), order.end(), rng());
    std::vector<float> permuted = m, upper = m, lower = m;
    permute_both({permuted.data(), k, k, k}, order, 2);
    mirror({upper.data(), k, k, k}, true, 2);
    mirror({lower.data(), k, k, k}, false, 2);
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < k; ++j) {
        const auto at = [&](const std::vector<float>& of, int64_t r, int64_t c) { return of[static_cast<size_t>(r * k + c)]; };
        ASSERT_EQ(at(permuted, i, j), at(m, order[static_cast<size_t>(i)], order[static_cast<size_t>(j)]));
        ASSERT_EQ(at(upper, i, j), at(m, std::min(i, j), std::max(i, j)));
        ASSERT_EQ(at(lower, i, j), at(m, std::max(i, j), std::min(i, j)));
      }
  }
}

TEST(Products, TheUpperHalfAloneIsAdded) {
  constexpr int64_t kRows = 40, kSize = 333;
  std::vector<float> a(static_cast<size_t>(kRows * kSize)), all(static_cast<size_t>(kSize * kSize), 2.0f), half = all;
  for (float& v : a) v = normal();
  const FloatMatrix x{a.data(), kRows, kSize, kSize};
  add_product(x, x, 1, false, 2, {all.data(), kSize, kSize, kSize});
  add_product(x, x, 1, true, 2, {half.data(), kSize, kSize, kSize});
  for (int64_t i = 0; i < kSize; ++i)
    for (int64_t j = 0; j < kSize; ++j)
      ASSERT_EQ(half[static_cast<size_t>(i * kSize + j)], j < i ? 2.0f : all[static_cast<size_t>(i * kSize + j)]);
}

TEST(Products, TheFactorAndItsInverseGiveTheMatrixBack) {
  for (const int64_t k : {1, 5, 96, 97, 250}) {
    std::vector<float> x(static_cast<size_t>(2 * k * k)), h(static_cast<size_t>(k * k)), r, y(h.size());
    for (float& v : x) v = normal();
    const FloatMatrix inputs{x.data(), 2 * k, k, k};
    add_product(inputs, inputs, 1.0f / static_cast<float>(2 * k), false, 1, {h.data(), k, k, k});
    for (int64_t i = 0; i < k; ++i) h[static_cast<size_t>(i * k + i)] += 0.1f;
    r = h;
    for (int64_t i = 0; i < k; ++i)  // the other half must neither be read nor written
      for (int64_t j = 0; j < i; ++j) r[static_cast<size_t>(i * k + j)] = NAN;
    ASSERT_TRUE(cholesky({r.data(), k, k, k}, 2));
    y = r;
    invert_upper({y.data(), k, k, k}, 2);
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < i; ++j) ASSERT_TRUE(std::isnan(y[static_cast<size_t>(i * k + j)]));
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = i; j < k; ++j) {
        double product = 0, one = 0;
        for (int64_t t = 0; t <= i; ++t)
          product +=
              static_cast<double>(r[static_cast<size_t>(t * k + i)]) * r[static_cast<size_t>(t * k + j)];
        for (int64_t t = i; t <= j; ++t)
          one += static_cast<double>(r[static_cast<size_t>(i * k + t)]) * y[static_cast<size_t>(t * k + j)];
        ASSERT_NEAR(product, h[static_cast<size_t>(i * k + j)], 1e-4) << k << " " << i << " " << j;
        ASSERT_NEAR(one, i == j ? 1 : 0, 1e-3) << k << " " << i << " " << j;
      }
    h[0] = -1;
    EXPECT_FALSE(cholesky({h.data(), k, k, k}, 2));
  }
}

}  // namespace
}  // namespace quintet
