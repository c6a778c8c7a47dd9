// Products on the GPU: weights come back bit for bit, results agree with double accumulation, and a row's bits do not
// depend on the rows beside it.
#include <array>
#include <utility>

#include "cuda_fixture.h"

namespace quintet {
namespace {

class CudaLinear : public CudaTest {
 protected:
  void check_dequantized(WeightFormat format, int64_t k);
};

/// By how much of their size products round a format's weights (formats/int4.cuh, kquant.cuh, nf4.cuh).
double rounding(WeightFormat format) {
  const std::string_view name = format_info(format).name;
  if (name == "q5_k" || name == "q4_k" || name == "q3_k" || name == "q2_k") return 0x1p-9;  // scale x number and minimum first, numbers up to twice the size
  if (name.starts_with("int3") || name.starts_with("int4") || name.starts_with("q4_")) return 0x1p-11;
  return format == WeightFormat::nf4_dq ? 0x1p-12 : 0;
}

TEST_F(CudaLinear, PackedWeightsDecodeAsTheScalarCodecDoes) {
  for (const WeightFormat format : gpu_formats())
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{576, 576}, {40, 64}, {129, 1536}, {16, 32}, {1000, 896}, {48, 256}, {200, 768}}) {
      if (k % format_info(format).block_weights) continue;
      const RandomWeight weight = random_weight(format, n, k);
      const HostWeight parts[] = {weight.host};
      auto prepared = backend_->prepare(WeightRole::linear, parts);
      ASSERT_TRUE(prepared) << prepared.error().message;
      std::vector<float> back(weight.values.size(), NAN);
      ASSERT_TRUE(backend_->unpack(*prepared, 0, n, back.data()));
      EXPECT_EQ(std::memcmp(back.data(), weight.values.data(), back.size() * 4), 0) << format_info(format).name << " " << n << " x " << k;
    }
}

TEST_F(CudaLinear, GateAndUpDecodeInLogicalOrder) {
  for (const WeightFormat format : gpu_layouts()) {
    const double share = format == WeightFormat::int4_g128 ? 0.01 : 0;
    const RandomWeight gate = random_weight(format, 1536, 768, "gate", share), up = random_weight(format, 1536, 768, "up", share);
    const HostWeight parts[] = {gate.host, up.host};
    auto prepared = backend_->prepare(WeightRole::gate_up, parts);
    ASSERT_TRUE(prepared) << prepared.error().message;
    std::vector<float> back(gate.values.size() * 2, NAN);
    ASSERT_TRUE(backend_->unpack(*prepared, 0, 3072, back.data()));
    EXPECT_EQ(std::memcmp(back.data(), gate.values.data(), gate.values.size() * 4), 0);
    EXPECT_EQ(std::memcmp(back.data() + gate.values.size(), up.values.data(), up.values.size() * 4), 0);
  }
}

// More chunks of four megabytes than threads that send them, so that each fills its two buffers anew (upload.cpp).
TEST_F(CudaLinear, WeightsOfManyChunksDecodeToo) {
  constexpr int64_t kRows = 10001, kInputs = 8192;
  const RandomWeight weight = random_weight(WeightFormat::q8_0, kRows, kInputs);
  ASSERT_GT(weight.bytes.size(), size_t{80} << 20);
  const HostWeight parts[] = {weight.host};
  auto prepared = backend_->prepare(WeightRole::linear, parts);
  ASSERT_TRUE(prepared) << prepared.error().message;
  std::vector<float> back(weight.values.size(), NAN);
  ASSERT_TRUE(backend_->unpack(*prepared, 0, kRows, back.data()));
  EXPECT_EQ(std::memcmp(back.data(), weight.values.data(), back.size() * 4), 0);
}

TEST_F(CudaLinear, SidesDecodeAsTheOracleDoes) {
  for (const bool permuted : {false, true}) {
    const double share = permuted ? 0 : 0.02;
    const RandomWeight q = random_weight(WeightFormat::int4_g64, 256, 320, "q", share, permuted), kv[] = {
        random_weight(WeightFormat::int8, 256, 320, "k", 0, permuted), random_weight(WeightFormat::bf16, 51, 320, "v", share, permuted)};
    HostWeight parts[] = {q.host, kv[0].host, kv[1].host};
    if (permuted) parts[1].in_perm = parts[2].in_perm = parts[0].in_perm;
    const auto prepared = backend_->prepare(WeightRole::qkv, parts);
    ASSERT_TRUE(prepared) << prepared.error().message;
    EXPECT_EQ(backend_->packed_bytes(WeightRole::qkv, parts).value(), prepared->bytes);
    std::vector<float> back(563 * 320, NAN), row(320);
    ASSERT_TRUE(backend_->unpack(*prepared, 0, 563, back.data()));
    int64_t at = 0;
    for (const HostWeight& part : parts)
      for (int64_t i = 0; i < part.n; ++i, ++at) {
        decode_row(part, i, row.data());
        ASSERT_EQ(std::memcmp(back.data() + at * 320, row.data(), 320 * 4), 0) << part.name << " row " << i;
      }
  }
  const RandomWeight a = random_weight(WeightFormat::int4_g64, 64, 128, "first", 0, true), b = random_weight(WeightFormat::int4_g64, 64, 128, "second", 0, true);
  const HostWeight parts[] = {a.host, b.host};
  const auto refused = backend_->prepare(WeightRole::gate_up, parts);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("second"), std::string::npos) << refused.error().message;
}

TEST_F(CudaLinear, HeadsLieOneBehindTheOther) {
  const RandomWeight q = random_weight(WeightFormat::int4_g64, 192, 128, "q", 0, false), k = random_weight(WeightFormat::int8, 64, 128, "k", 0, false),
                     v = random_weight(WeightFormat::int8, 64, 128, "v", 0, false);
  const HostWeight parts[] = {q.host, k.host, v.host};
  const auto refused = backend_->prepare(WeightRole::qkv, parts);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "tensor k: found another format behind 192 rows of q and k, allowed on the GPU are multiples of 256");
}

TEST_F(CudaLinear, AgreesWithDoubleAndKeepsARowsBits) {
  struct Case {
    WeightFormat format;
    double share = 0;
    bool permuted = false;
  };
  std::vector<Case> cases;
  for (const WeightFormat format : gpu_layouts()) cases.push_back({format});
  for (const WeightFormat format : {WeightFormat::int4_g128, WeightFormat::int4_g64_asym, WeightFormat::bf16, WeightFormat::q8_0}) {
    cases.push_back({format, 0.02, false});
    cases.push_back({format, 0, true});
  }
  for (const auto& [format, share, permuted] : cases) {
    backend_ = make_cuda_backend({.path = tested_path()}).value();
    bool reserved = false;
    // The last: more outputs than what outliers add is formed of at a time by all warps that do (outliers_beside.cuh).
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{960, 576}, {40, 64}, {576, 1536}, {129, 896}, {200, 768}, {1024, 2048}, {9000, 256}}) {
      if (n == 9000 && share == 0) continue;
      if (k % format_info(format).block_weights) continue;
      SCOPED_TRACE(fmt::format("{} {} x {}, outliers {}, {}", format_info(format).name, n, k, share, permuted ? "permuted" : "in order"));
      const RandomWeight weight = random_weight(format, n, k, "test.weight", share, permuted);
      const HostWeight parts[] = {weight.host};
      const Weight prepared = backend_->prepare(WeightRole::linear, parts).value();
      if (!std::exchange(reserved, true)) {
        ASSERT_TRUE(backend_->reserve({.rows = 320, .seqs = 8, .logit_rows = 8, .context = 1024, .hidden = 2048, .max_k = 2048, .max_n = 9024,
                                       .vocabulary = 256, .max_heads = 8, .max_head_dim = 64}));
      }
      const std::vector<float> x = random_values(static_cast<size_t>(300 * k));
      std::vector<double> rounded(x.size());
      for (size_t i = 0; i < x.size(); ++i) rounded[i] = f16_to_f32(f32_to_f16(x[i]));
      std::vector<float> row0;
      for (const int64_t rows : {1, 2, 7, 8, 16, 17, 33, 64, 65, 300}) {
        Matrix in = upload({x.begin(), x.begin() + rows * k}, rows, k, DType::f16), out = poisoned(rows, n, DType::f32);
        backend_->ops().linear({.x = in.view, .w = &prepared, .out = out.view});
        const std::vector<float> got = download(out.view);
        if (rows == 1) row0 = {got.begin(), got.begin() + n};
        EXPECT_EQ(std::memcmp(got.data(), row0.data(), row0.size() * 4), 0) << "rows " << rows;
        for (int64_t row = 0; row < rows; row += std::max<int64_t>(1, rows / 3))
          for (int64_t i = 0; i < n; ++i) {
            double want = 0, magnitude = 0;
            for (int64_t j = 0; j < k; ++j) {
              const double product = rounded[static_cast<size_t>(row * k + j)] * weight.values[static_cast<size_t>(i * k + j)];
              want += product, magnitude += std::fabs(product);
            }
            // FP32 sums of k exact products: at most (k / 16 + 16 + groups) roundings of 2^-24 of the magnitudes met. A
            // grid that is not centred (Q4_1) sums numbers up to 15 where the weights are smaller: the factor of 16. NF4's levels
            // are rounded to halves (formats/nf4.cuh), weights of four bits too (formats/int4.cuh).
            const double tolerance = magnitude * ((static_cast<double>(k) / 16 + 48) * 0x1p-24 * 32 + rounding(format)) + 1e-6;
            ASSERT_NEAR(got[static_cast<size_t>(row * n + i)], want, tolerance) << "rows " << rows << " row " << row << " output " << i;
          }
      }
    }
  }
}

/// By how much writing a format's weights out in FP16 changes what products of it compute: nothing where they take halves anyway.
double expansion(WeightFormat format) {
  const bool takes_halves = format == WeightFormat::f16 || (rounding(format) > 0 && format != WeightFormat::nf4_dq);
  return takes_halves ? 0 : 0x1p-11;
}

/// A product by written-out weights and the fused one, of `k` inputs.
void CudaLinear::check_dequantized(WeightFormat format, int64_t k) {
  constexpr int64_t n = 1000;
  backend_ = make_cuda_backend({.path = tested_path()}).value();
  const double share = format == WeightFormat::int4_g128 ? 0.01 : 0;
  SCOPED_TRACE(fmt::format("{}, {} inputs", format_info(format).name, k));
  const RandomWeight gate = random_weight(format, n, k, "gate", share), up = random_weight(format, n, k, "up", share);
  const RandomWeight head = random_weight(format, 2 * n, k, "head");
  const HostWeight parts[] = {gate.host, up.host}, table[] = {head.host};
  const Weight both = backend_->prepare(WeightRole::gate_up, parts).value(), logits = backend_->prepare(WeightRole::head, table).value();
  ASSERT_TRUE(backend_->reserve({.rows = 320, .seqs = 8, .logit_rows = 320, .context = 1024, .hidden = 768, .max_k = 1024, .max_n = 2000, .vocabulary = 2000,
                                 .max_heads = 8, .max_head_dim = 64, .unfused = true}));
  EXPECT_EQ(backend_->ops().dequantized_bytes(logits), format == WeightFormat::f16 ? 0u : static_cast<uint64_t>(2048 * k * 2));
  const std::vector<float> x = random_values(static_cast<size_t>(300 * k));
  for (const int64_t rows : {1, 7, 16, 33, 64, 300})
    for (const Weight* weight : {&both, &logits}) {
      Matrix in = upload({x.begin(), x.begin() + rows * k}, rows, k, DType::f16);
      Matrix first = poisoned(rows, 2 * n, DType::f32), out = poisoned(rows, 2 * n, DType::f32);
      backend_->ops().linear({.x = in.view, .w = weight, .out = first.view});
      backend_->ops().linear({.x = in.view, .w = weight, .out = out.view, .dequantize_first = true});
      const std::vector<float> want = download(first.view), got = download(out.view);
      // Four slices of pieces of 128 inputs begin where four of pieces of 64 do.
      if (expansion(format) == 0 && k % 512 == 0) {
        EXPECT_EQ(std::memcmp(want.data(), got.data(), got.size() * 4), 0) << "rows " << rows;
      }
      const auto value_of = [&](int64_t i, int64_t j) {
        const RandomWeight& part = weight == &logits ? head : i < n ? gate : up;
        return static_cast<double>(part.values[static_cast<size_t>((weight == &logits ? i : i % n) * k + j)]);
      };
      for (int64_t row = 0; row < rows; row += std::max<int64_t>(1, rows / 2))
        for (int64_t i = 0; i < 2 * n; i += 37) {
          double magnitude = 0;
          for (int64_t j = 0; j < k; ++j) magnitude += std::fabs(f16_to_f32(f32_to_f16(x[static_cast<size_t>(row * k + j)])) * value_of(i, j));
          const auto at = static_cast<size_t>(row * 2 * n + i);
          // As AgreesWithDoubleAndKeepsARowsBits has it, for both of them.
          ASSERT_NEAR(got[at], want[at], magnitude * ((static_cast<double>(k) / 16 + 48) * 0x1p-24 * 64 + rounding(format) + expansion(format)) + 1e-6)
              << "rows " << rows << " row " << row << " output " << i;
        }
    }
}

TEST_F(CudaLinear, DequantizedFirstIsTheSameProductWithWeightsInFp16) {
  for (const WeightFormat format : gpu_layouts())
    for (const int64_t k : {int64_t{1024}, format_info(format).block_weights == 256 ? int64_t{768} : int64_t{896}}) check_dequantized(format, k);
}

/// As LargeScalesTakeALargerUnit: the scale of a format's group is at most `most` times what begins its block, and meets products
/// times `factor`; without larger scales products are over `unit`.
struct UnitCase {
  WeightFormat format;
  float most, factor, unit;
  int roundings;  ///< below the unit: of the weight, and of the minimum before
  std::array<float, 3> largest;
};

// Scales beyond what the packed format holds at its own unit: then products take a larger one, without a loss.
TEST_F(CudaLinear, LargeScalesTakeALargerUnit) {
  const UnitCase cases[] = {{WeightFormat::int4_g128, 1, 0x1p22f, 64, 1, {3, 700, 60000}},
                            {WeightFormat::q5_k, 63, 0x1p24f, 64, 2, {0.02f, 0.4f, 3}}};
  for (int which = 0; which < 6; ++which) {
    const UnitCase& of = cases[which / 3];
    const float largest = of.largest[static_cast<size_t>(which % 3)];
    SCOPED_TRACE(format_info(of.format).name);
    backend_ = make_cuda_backend({.path = tested_path()}).value();
    constexpr int64_t kN = 200, kK = 768;
    const FormatInfo& info = format_info(of.format);
    const int64_t blocks = kN * kK / info.block_weights;
    RandomWeight weight = random_weight(of.format, kN, kK);
    for (const size_t block : {size_t{5}, static_cast<size_t>(random_()) % static_cast<size_t>(blocks)}) {
      const uint16_t bits = f32_to_f16(largest);
      uint8_t* at = &weight.bytes[block * static_cast<size_t>(info.block_bytes)];
      at[0] = static_cast<uint8_t>(bits), at[1] = static_cast<uint8_t>(bits >> 8);
    }
    info.decode(weight.bytes.data(), blocks, weight.values.data());
    const HostWeight parts[] = {weight.host};
    const Weight prepared = backend_->prepare(WeightRole::linear, parts).value();
    std::vector<float> back(weight.values.size(), NAN);
    ASSERT_TRUE(backend_->unpack(prepared, 0, kN, back.data()));
    ASSERT_TRUE(backend_->reserve({.rows = 320, .seqs = 8, .logit_rows = 8, .context = 1024, .hidden = 768, .max_k = 768, .max_n = 256,
                                   .vocabulary = 256, .max_heads = 8, .max_head_dim = 64}));
    const std::vector<float> x = random_values(static_cast<size_t>(300 * kK));
    std::vector<float> row0;
    for (const int64_t rows : {1, 3, 16, 40, 300}) {
      Matrix in = upload({x.begin(), x.begin() + rows * kK}, rows, kK, DType::f16), out = poisoned(rows, kN, DType::f32);
      backend_->ops().linear({.x = in.view, .w = &prepared, .out = out.view});
      const std::vector<float> got = download(out.view);
      if (rows == 1) row0 = {got.begin(), got.begin() + kN};
      EXPECT_EQ(std::memcmp(got.data(), row0.data(), row0.size() * 4), 0) << largest << ", rows " << rows;
      for (int64_t i = 0; i < kN; ++i) {
        double want = 0, magnitude = 0, inputs = 0;
        for (int64_t j = 0; j < kK; ++j) {
          const double input = f16_to_f32(f32_to_f16(x[static_cast<size_t>((rows - 1) * kK + j)])), product = input * weight.values[static_cast<size_t>(i * kK + j)];
          want += product, magnitude += std::fabs(product), inputs += std::fabs(input);
        }
        // Weights far below the largest lose what a half below the unit cannot hold: half of 2^-24 units.
        double unit = of.unit;
        while (largest * of.most * of.factor / unit > 65504) unit *= 16;
        ASSERT_NEAR(got[static_cast<size_t>((rows - 1) * kN + i)], want, magnitude * (rounding(of.format) + 0x1p-11) + inputs * unit * of.roundings * 0x1p-25)
            << largest << ", rows " << rows << ", output " << i;
      }
    }
    EXPECT_EQ(std::memcmp(back.data(), weight.values.data(), back.size() * 4), 0) << largest;
  }
}

// More panels of outputs than multiprocessors, of so many inputs that blocks share them: what one block hands to another.
TEST_F(CudaLinear, PanelsSharedByBlocksKeepARowsBits) {
  for (const WeightFormat format : {WeightFormat::int4_g128, WeightFormat::q4_k, WeightFormat::f16}) {
    backend_ = make_cuda_backend({.path = tested_path()}).value();
    bool reserved = false;
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{10240, 4096}, {64 * 133, 8192}, {4096, 8192}}) {
      const RandomWeight weight = random_weight(format, n, k);
      const HostWeight part[] = {weight.host};
      const Weight prepared = backend_->prepare(WeightRole::linear, part).value();
      if (!std::exchange(reserved, true)) {
        ASSERT_TRUE(backend_->reserve({.rows = 8, .seqs = 8, .logit_rows = 8, .context = 1024, .hidden = 8192, .max_k = 8192, .max_n = 10240,
                                       .vocabulary = 256, .max_heads = 8, .max_head_dim = 64}));
      }
      const std::vector<float> x = random_values(static_cast<size_t>(2 * k));
      std::vector<float> alone;
      for (const int64_t rows : {1, 2, 1, 1}) {
        Matrix in = upload({x.begin(), x.begin() + rows * k}, rows, k, DType::f16), out = poisoned(rows, n, DType::f32);
        backend_->ops().linear({.x = in.view, .w = &prepared, .out = out.view});
        const std::vector<float> got = download(out.view);
        if (alone.empty()) alone = {got.begin(), got.begin() + n};
        EXPECT_EQ(std::memcmp(got.data(), alone.data(), alone.size() * 4), 0) << format_info(format).name << " " << n << "x" << k << " rows " << rows;
      }
    }
  }
}

TEST_F(CudaLinear, RefusesScalesThatAreNotFinite) {
  RandomWeight weight = random_weight(WeightFormat::q8_0, 64, 64, "blk.3.bad.weight");
  weight.bytes[34 * 5] = 0x00, weight.bytes[34 * 5 + 1] = 0x7e;
  const HostWeight parts[] = {weight.host};
  const auto prepared = backend_->prepare(WeightRole::linear, parts);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().kind, ErrorKind::bad_input);
  EXPECT_NE(prepared.error().message.find("blk.3.bad.weight"), std::string::npos) << prepared.error().message;
}

TEST_F(CudaLinear, RefusesFloatsThatAreNotFinite) {
  for (const auto& [format, at, byte] : {std::tuple{WeightFormat::fp8, 64 * 3 + 5, 0xff}, {WeightFormat::bf16, 2 * (64 * 9 + 7) + 1, 0x7f}, {WeightFormat::f16, 2 * 70 + 1, 0xfc}}) {
    RandomWeight weight = random_weight(format, 64, 64, "blk.5.bad.weight");
    weight.bytes[static_cast<size_t>(at)] = static_cast<uint8_t>(byte);
    if (format == WeightFormat::bf16) weight.bytes[static_cast<size_t>(at) - 1] = 0x80;
    const HostWeight parts[] = {weight.host};
    const auto prepared = backend_->prepare(WeightRole::linear, parts);
    ASSERT_FALSE(prepared) << format_info(format).name;
    EXPECT_NE(prepared.error().message.find("blk.5.bad.weight"), std::string::npos) << prepared.error().message;
  }
}

}  // namespace
}  // namespace quintet
