// Products of the CPU backend against double precision, and the bits of a row in every company.
#include "cpu_weights.h"

namespace quintet::test {
namespace {

/// What 16-bit activations and float sums may cost one output: each input errs by at most half a step of its
/// block of 32 (largest / 32767 / 2); each of the k / 16 partial sums is rounded at most four times, none
/// being larger than the sum of magnitudes. Float formats are not quantized, and rounded once an input.
double tolerance(const float* x, const float* w, int64_t k, bool integer) {
  double quantization = 0, magnitude = 0;
  for (int64_t b = 0; b < k; b += 32) {
    double largest = 0, weights = 0;
    for (int64_t i = b; i < std::min(k, b + 32); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(x[i])));
      weights += std::abs(static_cast<double>(w[i]));
      magnitude += std::abs(static_cast<double>(x[i]) * static_cast<double>(w[i]));
    }
    quantization += weights * largest / 32767 * 0.51;
    // Codes are added before the minimum takes its share away, so the sums are larger than the weights
    // themselves.
    if (integer)
      magnitude += 32 * largest * 4 * [&] {
        double m = 0;
        for (int64_t i = b; i < b + 32; ++i) m = std::max(m, std::abs(static_cast<double>(w[i])));
        return m;
      }();
  }
  return (integer ? quantization : 0) +
         magnitude * 0x1p-24 * std::sqrt(static_cast<double>(integer ? k / 4 : k)) * 2;
}

struct Inputs {
  int64_t rows, k;
  std::vector<float> x;
  Inputs(int64_t rows, int64_t k) : rows(rows), k(k), x(normals(static_cast<size_t>(rows * k))) {
    // Outliers, as activations have them.
    for (int64_t r = 0; r < rows; ++r)
      x[static_cast<size_t>(r * k + uniform(0, static_cast<int>(k) - 1))] *= 300;
  }
  const float* row(int64_t r) const { return x.data() + r * k; }
};

std::vector<float> linear(Backend& cpu, Inputs& in, const Weight& w, int64_t first, int64_t count) {
  std::vector<float> out(static_cast<size_t>(count * w.n), NAN);
  cpu.ops().linear(
      {.x = {in.row(first), DType::f32, count, in.k, in.k}, .w = &w, .out = view(out, count, w.n)});
  return out;
}

TEST(CpuProducts, EveryFormatAgainstDouble) {
  for (CpuSimd simd : simds()) {
    const auto cpu = backend(2, simd);
    for (const FormatInfo& info : format_table()) {
      const int64_t n = 53, k = info.block_weights > 32 ? 768 : 32 * uniform(3, 9);
      const RandomWeight w(info.format, n, k);
      const Weight packed = prepare(*cpu, WeightRole::linear, {&w});
      Inputs in(uniform(13, 18), k);
      for (int64_t rows : {int64_t{1}, int64_t{2}, int64_t{4}, int64_t{7}, in.rows}) {
        const auto out = linear(*cpu, in, packed, 0, rows);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = 0; i < n; ++i) {
            double exact = 0;
            for (int64_t j = 0; j < k; ++j)
              exact += static_cast<double>(in.row(r)[j]) * static_cast<double>(w.row(i)[j]);
            ASSERT_NEAR(out[static_cast<size_t>(r * n + i)], exact,
                        tolerance(in.row(r), w.row(i), k, info.block_weights > 1))
                << info.name << " row " << r << " of " << rows << " output " << i << " simd "
                << static_cast<int>(simd);
          }
      }
    }
  }
}

TEST(CpuProducts, ARowHasTheSameBitsInAnyCompany) {
  for (const FormatInfo& info : format_table()) {
    const int64_t n = 40, k = 2304;  // longer than one panel of 64 blocks
    const RandomWeight w(info.format, n, k);
    Inputs in(61, k);
    std::vector<float> all;
    for (int threads : {1, 2, 3, 4})
      for (CpuSimd simd : simds()) {
        if (simd == CpuSimd::baseline) continue;  // no fused multiply-add: other bits, and says so
        const auto cpu = backend(threads, simd);
        const Weight packed = prepare(*cpu, WeightRole::linear, {&w});
        const auto out = linear(*cpu, in, packed, 0, in.rows);
        if (all.empty()) all = out;
        ASSERT_EQ(std::memcmp(out.data(), all.data(), out.size() * 4), 0)
            << info.name << " threads " << threads;
        for (int64_t rows : {1, 2, 3, 5, 7, 12, 16}) {
          const int64_t first = uniform(0, static_cast<int>(in.rows - rows));
          const auto part = linear(*cpu, in, packed, first, rows);
          ASSERT_EQ(std::memcmp(part.data(), all.data() + first * n, part.size() * 4), 0)
              << info.name << " rows " << rows << " threads " << threads;
        }
      }
  }
}

TEST(CpuProducts, BaselineSaysThatItsBitsDiffer) {
  if (!cpu_has(CpuSimd::avx2)) GTEST_SKIP() << "needs AVX2";
  EXPECT_NE(backend(1, CpuSimd::baseline)->numerics().id(), backend(1, CpuSimd::avx2)->numerics().id());
  EXPECT_EQ(backend(1)->numerics().id(), backend(4)->numerics().id());
  if (cpu_has(CpuSimd::avx512)) {
    EXPECT_EQ(backend(1, CpuSimd::avx512)->numerics().id(), backend(1, CpuSimd::avx2)->numerics().id());
  }
}

TEST(CpuProducts, NormBiasAddAndPermutation) {
  for (CpuSimd simd : simds()) {
    const auto cpu = backend(2, simd);
    const int64_t n = 33, k = 160;
    const RandomWeight w(WeightFormat::q5_1, n, k), norm(WeightFormat::f32, 1, k),
        bias(WeightFormat::f32, 1, n);
    const Weight pw = prepare(*cpu, WeightRole::linear, {&w}),
                 pn = prepare(*cpu, WeightRole::vector, {&norm}),
                 pb = prepare(*cpu, WeightRole::vector, {&bias});
    std::vector<int32_t> perm(static_cast<size_t>(k));
    std::iota(perm.begin(), perm.end(), 0);
    std::shuffle(perm.begin(), perm.end(), rng());
    for (int64_t rows : {1, 3, 17}) {
      Inputs in(rows, k);
      auto out = normals(static_cast<size_t>(rows * n));
      const auto before = out;
      cpu->ops().linear({.x = view(in.x, rows, k),
                         .w = &pw,
                         .out = view(out, rows, n),
                         .norm = {.weight = &pn, .eps = 0.01f},
                         .bias = &pb,
                         .add_to_out = true,
                         .in_perm = perm.data()});
      for (int64_t r = 0; r < rows; ++r) {
        double square = 0;
        for (int64_t j = 0; j < k; ++j)
          square += static_cast<double>(in.row(r)[j]) * static_cast<double>(in.row(r)[j]);
        const double inverse = 1 / std::sqrt(square / static_cast<double>(k) + static_cast<double>(0.01f));
        std::vector<float> y(static_cast<size_t>(k));
        std::vector<double> exact_y(static_cast<size_t>(k));
        for (int64_t j = 0; j < k; ++j) {
          const int32_t from = perm[static_cast<size_t>(j)];
          exact_y[static_cast<size_t>(j)] = static_cast<double>(in.row(r)[from]) * inverse *
                                            static_cast<double>(norm.values[static_cast<size_t>(from)]);
          y[static_cast<size_t>(j)] = static_cast<float>(exact_y[static_cast<size_t>(j)]);
        }
        for (int64_t i = 0; i < n; ++i) {
          double exact = static_cast<double>(before[static_cast<size_t>(r * n + i)]) +
                         static_cast<double>(bias.values[static_cast<size_t>(i)]);
          double size = std::abs(exact);
          for (int64_t j = 0; j < k; ++j) {
            exact += exact_y[static_cast<size_t>(j)] * static_cast<double>(w.row(i)[j]);
            size += std::abs(exact_y[static_cast<size_t>(j)] * static_cast<double>(w.row(i)[j]));
          }
          // The norm itself errs by a few roundings, in every input alike.
          ASSERT_NEAR(out[static_cast<size_t>(r * n + i)], exact,
                      tolerance(y.data(), w.row(i), k, true) + size * 0x1p-21);
        }
      }
    }
  }
}

TEST(CpuProducts, RowsThatAreNotNumbersStayAlone) {
  const auto cpu = backend();
  for (WeightFormat format : {WeightFormat::q4_1, WeightFormat::q6_k, WeightFormat::f16}) {
    const RandomWeight w(format, 32, 256);
    const Weight packed = prepare(*cpu, WeightRole::linear, {&w});
    Inputs in(14, 256);
    const auto good = linear(*cpu, in, packed, 0, 14);
    for (float bad : {NAN, INFINITY}) {
      Inputs poisoned = in;
      poisoned.x[5 * 256 + 77] = bad;
      const auto out = linear(*cpu, poisoned, packed, 0, 14);
      for (size_t r = 0; r < 14; ++r)
        for (size_t i = 0; i < 32; ++i) {
          if (r == 5) {
            ASSERT_FALSE(std::isfinite(out[r * 32 + i]));
          } else {
            ASSERT_EQ(out[r * 32 + i], good[r * 32 + i]);
          }
        }
    }
    std::fill(in.x.begin(), in.x.begin() + 256, 0.0f);  // a row of zeros, and one of the smallest numbers
    std::fill(in.x.begin() + 256, in.x.begin() + 512, 1e-40f);
    const auto out = linear(*cpu, in, packed, 0, 14);
    for (size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(out[i], 0);
      EXPECT_NEAR(out[32 + i], 0, 1e-30);
    }
  }
}

// Its sum of squares is beyond FP32: a norm of 1 / infinity would make zeros of it, and finite logits of a broken model.
TEST(CpuProducts, ARowThatIsTooLargeForTheNormIsNotANumber) {
  for (CpuSimd simd : simds()) {
    const auto cpu = backend(1, simd);
    const int64_t n = 32, k = 32 * uniform(2, 9);
    const RandomWeight w(WeightFormat::q8_0, n, k), norm(WeightFormat::f32, 1, k);
    const Weight pw = prepare(*cpu, WeightRole::linear, {&w}), pn = prepare(*cpu, WeightRole::vector, {&norm});
    Inputs in(3, k);
    const auto run = [&] {
      std::vector<float> out(static_cast<size_t>(3 * n), NAN);
      cpu->ops().linear({.x = view(in.x, 3, k), .w = &pw, .out = view(out, 3, n), .norm = {.weight = &pn, .eps = 1e-5f}});
      return out;
    };
    const auto good = run();
    in.x[static_cast<size_t>(k + uniform(0, static_cast<int>(k) - 1))] = 1e20f;
    const auto out = run();
    for (size_t i = 0; i < out.size(); ++i) {
      if (i / static_cast<size_t>(n) == 1) {
        ASSERT_TRUE(std::isnan(out[i])) << i;
      } else {
        ASSERT_EQ(out[i], good[i]) << i;
      }
    }
  }
}

TEST(CpuProducts, GatedMlpAndProjection) {
  for (CpuSimd simd : simds())
    for (Activation activation : {Activation::silu, Activation::gelu_tanh}) {
      const auto cpu = backend(2, simd);
      const int64_t hidden = 96, ffn = 72;
      const RandomWeight gate(WeightFormat::q4_0, ffn, hidden), up(WeightFormat::q8_0, ffn, hidden),
          norm(WeightFormat::f32, 1, hidden), down(WeightFormat::f16, hidden, ffn),
          post(WeightFormat::f32, 1, hidden);
      const Weight gu = prepare(*cpu, WeightRole::gate_up, {&gate, &up}),
                   pn = prepare(*cpu, WeightRole::vector, {&norm}),
                   pd = prepare(*cpu, WeightRole::linear, {&down}),
                   pp = prepare(*cpu, WeightRole::vector, {&post});
      for (int64_t rows : {1, 2, 19}) {
        Inputs in(rows, hidden);
        std::vector<float> mlp(static_cast<size_t>(rows * ffn), NAN),
            scratch(static_cast<size_t>(rows * 2 * ffn), NAN);
        const StepView step{.rows = static_cast<int32_t>(rows)};
        cpu->ops().mlp_in(step, {.x = view(in.x, rows, hidden),
                                 .norm = {.weight = &pn},
                                 .w = &gu,
                                 .activation = activation,
                                 .gate_up = view(scratch, rows, 2 * ffn),
                                 .out = view(mlp, rows, ffn)});
        // The fine operations give the same bits.
        std::vector<float> gate_up(static_cast<size_t>(rows * 2 * ffn), NAN),
            fine(static_cast<size_t>(rows * ffn), NAN);
        cpu->ops().linear({.x = view(in.x, rows, hidden),
                           .w = &gu,
                           .out = view(gate_up, rows, 2 * ffn),
                           .norm = {.weight = &pn}});
        cpu->ops().gate({.gate_up = view(gate_up, rows, 2 * ffn),
                         .out = view(fine, rows, ffn),
                         .activation = activation});
        ASSERT_EQ(std::memcmp(mlp.data(), fine.data(), mlp.size() * 4), 0);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t i = 0; i < ffn; ++i) {
            const double g = static_cast<double>(gate_up[static_cast<size_t>(r * 2 * ffn + i)]);
            const double u = static_cast<double>(gate_up[static_cast<size_t>(r * 2 * ffn + ffn + i)]);
            const double act =
                activation == Activation::silu
                    ? g / (1 + std::exp(-g))
                    : 0.5 * g * (1 + std::tanh(std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g)));
            // exp to 2 ulp of an argument that is itself rounded: relative 2^-22 (1 + |argument|), and the
            // floor of exp.
            const double argument =
                activation == Activation::silu ? std::abs(g) : std::abs(1.6 * g + 0.0714 * g * g * g);
            ASSERT_NEAR(
                mlp[static_cast<size_t>(r * ffn + i)], act * u,
                (std::abs(act) * 0x1p-22 * (1 + std::min(argument, 90.0)) + 1e-35) * std::abs(u) + 1e-30);
          }
        auto residual = normals(static_cast<size_t>(rows * hidden));
        auto expected = residual;
        std::vector<float> tmp(static_cast<size_t>(rows * hidden), NAN);
        cpu->ops().mlp_out(step, {.x = view(mlp, rows, ffn),
                                  .w = &pd,
                                  .post_norm = {.weight = &pp},
                                  .residual = view(residual, rows, hidden),
                                  .scratch = view(tmp, rows, hidden)});
        std::vector<float> product(static_cast<size_t>(rows * hidden));
        cpu->ops().linear({.x = view(mlp, rows, ffn), .w = &pd, .out = view(product, rows, hidden)});
        cpu->ops().rms_norm(view(product, rows, hidden), {.weight = &pp}, view(product, rows, hidden));
        cpu->ops().add(view(product, rows, hidden), view(expected, rows, hidden));
        ASSERT_EQ(std::memcmp(residual.data(), expected.data(), residual.size() * 4), 0);
      }
    }
}

/// The product with `w` written out in FP16 first, outputs poisoned.
std::vector<float> dequantized_linear(Backend& cpu, const Inputs& in, const Weight& w) {
  std::vector<float> out(static_cast<size_t>(in.rows * w.n), NAN);
  cpu.ops().linear({.x = {in.x.data(), DType::f32, in.rows, in.k, in.k}, .w = &w, .out = view(out, in.rows, w.n), .dequantize_first = true});
  return out;
}

TEST(CpuProducts, DequantizedFirstIsTheProductWithWeightsRoundedToFp16) {
  for (const FormatInfo& info : format_table()) {
    const auto cpu = backend(2);
    const int64_t n = 53, k = info.block_weights > 32 ? 768 : 32 * uniform(3, 9);
    const RandomWeight first(info.format, n, k), second(WeightFormat::q8_0, 20, k);
    const std::vector<const RandomWeight*> parts = k % 32 == 0 ? std::vector{&first, &second} : std::vector{&first};
    const Weight packed = prepare(*cpu, WeightRole::linear, parts);
    std::vector<uint16_t> halves;
    for (const RandomWeight* part : parts)
      for (const float value : part->values) halves.push_back(f32_to_f16(value));
    const HostWeight rounded = {.name = "rounded", .format = WeightFormat::f16, .n = packed.n, .k = k,
                                .bytes = {reinterpret_cast<const uint8_t*>(halves.data()), halves.size() * 2}};
    const Weight dense = cpu->prepare(WeightRole::linear, {&rounded, 1}).value();
    EXPECT_EQ(cpu->ops().dequantized_bytes(packed), static_cast<uint64_t>((packed.n + 15) / 16 * 16 * k * 2));
    EXPECT_EQ(cpu->ops().dequantized_bytes(dense), 0u) << "nothing to write out";
    for (const int64_t rows : {1, 2, 19}) {
      Inputs in(rows, k);
      EXPECT_EQ(dequantized_linear(*cpu, in, packed), linear(*cpu, in, dense, 0, rows)) << info.name << " rows " << rows;
    }
  }
}

// More outputs than the scratch holds at once.
TEST(CpuProducts, DequantizedFirstGoesInRuns) {
  const auto cpu = backend(2);
  const int64_t k = 32768, n = 1500;
  const RandomWeight w(WeightFormat::q8_0, n, k);
  const Weight packed = prepare(*cpu, WeightRole::linear, {&w});
  ASSERT_GT(cpu->ops().dequantized_bytes(packed), uint64_t{64} << 20);
  Inputs in(2, k);
  const auto out = dequantized_linear(*cpu, in, packed);
  for (const int64_t i : {int64_t{0}, int64_t{1007}, int64_t{1008}, int64_t{1023}, int64_t{1024}, n - 1})
    for (int64_t r = 0; r < 2; ++r) {
      double exact = 0;
      std::vector<float> halves(static_cast<size_t>(k));
      for (int64_t j = 0; j < k; ++j) {
        halves[static_cast<size_t>(j)] = f16_to_f32(f32_to_f16(w.row(i)[j]));
        exact += static_cast<double>(in.row(r)[j]) * static_cast<double>(halves[static_cast<size_t>(j)]);
      }
      EXPECT_NEAR(out[static_cast<size_t>(r * n + i)], exact, tolerance(in.row(r), halves.data(), k, false)) << "row " << r << " output " << i;
    }
}

TEST(CpuProducts, HeadGathersItsRows) {
  const auto cpu = backend();
  const RandomWeight w(WeightFormat::q8_0, 77, 64), norm(WeightFormat::f32, 1, 64);
  const Weight pw = prepare(*cpu, WeightRole::head, {&w}), pn = prepare(*cpu, WeightRole::vector, {&norm});
  Inputs in(9, 64);
  const std::vector<int32_t> logit_row{8, 2, 5};
  const StepView step{.rows = 9, .logit_rows = 3, .logit_row = logit_row.data()};
  std::vector<float> gathered(3 * 64, NAN), logits(3 * 77, NAN);
  cpu->ops().head(step, {.x = view(in.x, 9, 64),
                         .norm = {.weight = &pn},
                         .w = &pw,
                         .gathered = view(gathered, 3, 64),
                         .logits = view(logits, 3, 77)});
  for (size_t i = 0; i < 3; ++i) {
    std::vector<float> out(77);
    cpu->ops().linear({.x = {in.row(logit_row[i]), DType::f32, 1, 64, 64},
                       .w = &pw,
                       .out = view(out, 1, 77),
                       .norm = {.weight = &pn}});
    EXPECT_EQ(std::memcmp(out.data(), logits.data() + i * 77, 77 * 4), 0);
  }
}

}  // namespace
}  // namespace quintet::test
