// The reference operations against formulas written another way, on random inputs.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "backend/reference/reference.h"
#include "tensor/half.h"

namespace quintet {
namespace {

using Floats = std::vector<float>;

Floats random_floats(std::mt19937& random, size_t count, float scale = 1) {
  std::normal_distribution<float> normal(0, scale);
  Floats out(count);
  for (float& value : out) value = normal(random);
  return out;
}

MatrixView view_of(Floats& values, int64_t rows) {
  const int64_t cols = static_cast<int64_t>(values.size()) / rows;
  return {values.data(), DType::f32, rows, cols, cols};
}

Weight prepare(Backend& backend, WeightRole role, const Floats& values, int64_t n) {
  const HostWeight part{.name = "w",
                        .format = WeightFormat::f32,
                        .n = n,
                        .k = static_cast<int64_t>(values.size()) / n,
                        .bytes = {reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4}};
  auto weight = backend.prepare(role, {&part, 1});
  EXPECT_TRUE(weight.has_value());
  return std::move(weight).value();
}

class ReferenceOps : public ::testing::Test {
 protected:
  void TearDown() override {
    if (HasFailure()) ADD_FAILURE() << "seed " << seed_;
  }
  const uint32_t seed_ = std::random_device{}();
  std::mt19937 random_{seed_};
  std::unique_ptr<Backend> backend_ = make_reference_backend();
  Ops& ops_ = backend_->ops();
};

/// Sums of k products of about unit size in double, rounded to float once: half an ulp of the result. Two
/// ulps leave room for another order of the double additions.
void expect_near(double found, double wanted) {
  EXPECT_NEAR(found, wanted, 0x1p-22 * std::abs(wanted) + 1e-9);
}

TEST_F(ReferenceOps, LinearIsNormProductBiasAndResidual) {
  const int64_t k = 48, n = 20;
  for (int64_t rows : {1, 3, 16, 21}) {
    Floats x = random_floats(random_, static_cast<size_t>(rows * k)),
           w = random_floats(random_, static_cast<size_t>(n * k));
    Floats norm = random_floats(random_, static_cast<size_t>(k)),
           bias = random_floats(random_, static_cast<size_t>(n));
    Floats before = random_floats(random_, static_cast<size_t>(rows * n)), out = before;
    std::vector<int32_t> perm(static_cast<size_t>(k));
    std::iota(perm.begin(), perm.end(), 0);
    std::shuffle(perm.begin(), perm.end(), random_);
    const Weight weight = prepare(*backend_, WeightRole::linear, w, n),
                 norm_weight = prepare(*backend_, WeightRole::vector, norm, 1),
                 bias_weight = prepare(*backend_, WeightRole::vector, bias, 1);
    ops_.linear({.x = view_of(x, rows),
                 .w = &weight,
                 .out = view_of(out, rows),
                 .norm = {&norm_weight, 1e-5f},
                 .bias = &bias_weight,
                 .add_to_out = true,
                 .in_perm = perm.data()});
    for (int64_t r = 0; r < rows; ++r) {
      double squares = 0;
      for (int64_t c = k - 1; c >= 0; --c) squares += std::pow(static_cast<double>(x[r * k + c]), 2);
      const double scale = std::pow(squares / k + static_cast<double>(1e-5f), -0.5);
      for (int64_t o = 0; o < n; ++o) {
        double sum = before[r * n + o], size = std::abs(sum) + std::abs(bias[o]);
        for (int64_t c = k - 1; c >= 0; --c) {
          const double product = x[r * k + perm[c]] * scale * norm[perm[c]] * w[o * k + c];
          sum += product;
          size += std::abs(product);
        }
        // The normed x is rounded to float: 2^-24 of each product.
        EXPECT_NEAR(out[r * n + o], sum + bias[o], 0x1p-23 * size) << rows << " rows";
      }
    }
  }
}

TEST_F(ReferenceOps, RowsDoNotDependOnTheirNeighbours) {
  const int64_t k = 100, n = 30, rows = 37;
  Floats x = random_floats(random_, rows * k), w = random_floats(random_, n * k), all(rows * n);
  const Weight weight = prepare(*backend_, WeightRole::linear, w, n);
  ops_.linear({.x = view_of(x, rows), .w = &weight, .out = view_of(all, rows)});
  for (int64_t first : {0, 5, 36}) {
    for (int64_t count : {1, 2, 6}) {
      if (first + count > rows) continue;
      Floats some(static_cast<size_t>(count * n));
      const MatrixView part{x.data() + first * k, DType::f32, count, k, k};
      ops_.linear({.x = part, .w = &weight, .out = view_of(some, count)});
      EXPECT_EQ(std::memcmp(some.data(), all.data() + first * n, some.size() * 4), 0)
          << first << ' ' << count;
    }
  }
}

TEST_F(ReferenceOps, UnpackIsTheCodec) {
  for (const FormatInfo& format : format_table()) {
    const int64_t n = 3, k = 2 * std::max(format.block_weights, 32);
    std::vector<uint8_t> bytes(format_bytes_of(format.format, static_cast<uint64_t>(n * k)));
    // Small bytes keep half-precision scales finite whatever their place in a block.
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random_() % 60);
    const HostWeight part{.name = "w", .format = format.format, .n = n, .k = k, .bytes = bytes};
    const auto weight = backend_->prepare(WeightRole::linear, {&part, 1});
    ASSERT_TRUE(weight.has_value()) << format.name << ": " << weight.error().message;
    Floats wanted(static_cast<size_t>(n * k)), found(static_cast<size_t>(n * k));
    format.decode(bytes.data(), static_cast<size_t>(n * k / format.block_weights), wanted.data());
    ASSERT_TRUE(backend_->unpack(*weight, 0, n, found.data()).has_value());
    EXPECT_EQ(std::memcmp(found.data(), wanted.data(), found.size() * 4), 0) << format.name;
  }
}

TEST_F(ReferenceOps, StackedPartsOfDifferentFormats) {
  const int64_t k = 32;
  const Floats top = random_floats(random_, 2 * k), low = random_floats(random_, 3 * k);
  std::vector<uint16_t> halves;
  for (float value : low) halves.push_back(f32_to_f16(value));
  const HostWeight parts[] = {
      {.name = "a",
       .format = WeightFormat::f32,
       .n = 2,
       .k = k,
       .bytes = {reinterpret_cast<const uint8_t*>(top.data()), top.size() * 4}},
      {.name = "b",
       .format = WeightFormat::f16,
       .n = 3,
       .k = k,
       .bytes = {reinterpret_cast<const uint8_t*>(halves.data()), halves.size() * 2}}};
  const auto weight = backend_->prepare(WeightRole::qkv, parts);
  ASSERT_TRUE(weight.has_value());
  EXPECT_EQ(weight->n, 5);
  EXPECT_EQ(weight->part_rows, (std::vector<int64_t>{2, 3}));
  Floats found(static_cast<size_t>(2 * k));
  ASSERT_TRUE(backend_->unpack(*weight, 1, 2, found.data()).has_value());
  for (int64_t c = 0; c < k; ++c) {
    EXPECT_EQ(found[c], top[k + c]);
    EXPECT_EQ(found[k + c], f16_to_f32(halves[c]));
  }
  EXPECT_FALSE(backend_->unpack(*weight, 4, 2, found.data()).has_value());
}

TEST_F(ReferenceOps, ValuesThatCannotBeAreNamed) {
  Floats values(64, 1.0f);
  values[40] = std::nanf("");
  const HostWeight part{.name = "blk.3.attn_q.weight",
                        .format = WeightFormat::f32,
                        .n = 2,
                        .k = 32,
                        .bytes = {reinterpret_cast<const uint8_t*>(values.data()), values.size() * 4}};
  const auto weight = backend_->prepare(WeightRole::linear, {&part, 1});
  ASSERT_FALSE(weight.has_value());
  EXPECT_EQ(weight.error().kind, ErrorKind::bad_input);
  EXPECT_NE(weight.error().message.find("blk.3.attn_q.weight"), std::string::npos);
  EXPECT_NE(weight.error().message.find("row 1, column 8"), std::string::npos);
}

TEST_F(ReferenceOps, EmbedScalesRowsAndContinuesSampledOnes) {
  const int64_t k = 16, n = 10;
  const Floats table = random_floats(random_, n * k);
  const Weight weight = prepare(*backend_, WeightRole::embedding_and_head, table, n);
  // A first step samples token 7 greedily for its only logit row.
  Floats logits(n, 0.0f);
  logits[7] = 1;
  const SampleParams greedy;
  Sampled sampled;
  StepView step{.rows = 1, .logit_rows = 1, .sample = &greedy};
  ops_.sample(step, {.logits = view_of(logits, 1), .out = &sampled});
  EXPECT_EQ(sampled.token, 7);

  const TokenId tokens[] = {3, -1};
  const int32_t prev[] = {0, 0};
  step = {.rows = 2, .token = tokens, .prev = prev};
  Floats out(static_cast<size_t>(2 * k));
  ops_.embed(step, {.table = &weight, .scale = 2.5f, .out = view_of(out, 2)});
  for (int64_t c = 0; c < k; ++c) {
    EXPECT_EQ(out[c], table[3 * k + c] * 2.5f);
    EXPECT_EQ(out[k + c], table[7 * k + c] * 2.5f);
  }
}

TEST_F(ReferenceOps, Gates) {
  Floats gate_up = random_floats(random_, 4 * 10, 3), out(4 * 5);
  for (const Activation activation : {Activation::silu, Activation::gelu_tanh}) {
    ops_.gate({.gate_up = view_of(gate_up, 4), .out = view_of(out, 4), .activation = activation});
    for (int64_t r = 0; r < 4; ++r) {
      for (int64_t c = 0; c < 5; ++c) {
        const double g = gate_up[r * 10 + c], up = gate_up[r * 10 + 5 + c];
        const double z = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
        // tanh as 1 - 2 / (e^2z + 1)
        const double active = activation == Activation::silu ? g * (1 - 1 / (1 + std::exp(g)))
                                                             : g * (1 - 1 / (std::exp(2 * z) + 1));
        expect_near(out[r * 5 + c], active * up);
      }
    }
  }
}

/// A step of one sequence over pages in a scattered order.
struct OneSequence {
  OneSequence(int32_t first, int32_t rows, const PageClass& page) {
    blocks = {{.page = 3}, {.page = 1}, {.page = 4}, {.page = 0}};
    for (int32_t r = 0; r < rows; ++r) {
      pos.push_back(first + r);
      seq.push_back(0);
      slot.push_back(int64_t{blocks[static_cast<size_t>((first + r) / page.tokens)].page} * page.tokens +
                     (first + r) % page.tokens);
    }
    row_begin = {0, rows};
    context = {first + rows};
    view = {.rows = rows,
            .seqs = 1,
            .max_blocks = 4,
            .pos = pos.data(),
            .seq = seq.data(),
            .kv_slot = slot.data(),
            .row_begin = row_begin.data(),
            .context = context.data(),
            .block_refs = blocks.data()};
  }
  std::vector<BlockRef> blocks;
  std::vector<int32_t> pos, seq, row_begin, context;
  std::vector<int64_t> slot;
  StepView view;
};

TEST_F(ReferenceOps, AttentionEqualsADenseOne) {
  const int32_t heads = 4, kv_heads = 2, dim = 8, tokens = 19, layers = 2, layer = 1;
  const PageClass page = backend_->page_class(layers, kv_heads, dim, 5);
  const int64_t width = (heads + 2 * kv_heads) * dim;
  for (const RopeStyle style : {RopeStyle::halves, RopeStyle::pairs}) {
    for (const int32_t window : {0, 1, 6}) {
      std::vector<uint8_t> memory(static_cast<size_t>(5 * page.bytes));
      const KvView kv{.base = memory.data(), .pages = 5, .layers = layers, .page = page};
      const Floats inv_freq = {1.0f, 0.3f, 0.01f};  // six of eight dimensions turn
      const AttentionSpec spec{
          .layer = layer,
          .heads = heads,
          .kv_heads = kv_heads,
          .head_dim = dim,
          .scale = 0.4f,
          .sliding_window = window,
          .rope = {.style = style, .dims = 6, .inv_freq = inv_freq.data(), .scale = 1.1f}};
      const Floats norm_q = random_floats(random_, dim), norm_k = random_floats(random_, dim);
      const Weight q_norm = prepare(*backend_, WeightRole::vector, norm_q, 1),
                   k_norm = prepare(*backend_, WeightRole::vector, norm_k, 1);
      const Floats raw = random_floats(random_, static_cast<size_t>(tokens * width));
      Floats out(static_cast<size_t>(tokens * heads * dim));
      // Two steps: what the second sees of the first comes from the cache.
      for (const auto& [first, rows] : {std::pair{0, 11}, std::pair{11, 8}}) {
        const OneSequence step(first, rows, page);
        Floats qkv(raw.begin() + first * width, raw.begin() + (first + rows) * width);
        ops_.rope_store_attend(step.view, {.qkv = view_of(qkv, rows),
                                           .attention = spec,
                                           .q_norm = {&q_norm, 1e-6f},
                                           .k_norm = {&k_norm, 1e-6f},
                                           .kv = kv,
                                           .out = {out.data() + first * heads * dim, DType::f32, rows,
                                                   heads * dim, heads * dim}});
      }

      // The same with complex rotations, all keys at once.
      const auto turned = [&](int32_t t, int32_t head, const Floats& norm) {
        std::vector<double> h(dim);
        double squares = 0;
        for (int32_t d = 0; d < dim; ++d)
          squares += std::pow(static_cast<double>(raw[t * width + head * dim + d]), 2);
        for (int32_t d = 0; d < dim; ++d)
          h[d] = raw[t * width + head * dim + d] / std::sqrt(squares / dim + 1e-6) * norm[d];
        for (int32_t i = 0; i < 3; ++i) {
          const int32_t a = style == RopeStyle::halves ? i : 2 * i,
                        b = style == RopeStyle::halves ? i + 3 : 2 * i + 1;
          const double angle = static_cast<double>(static_cast<float>(t) * inv_freq[i]);
          const double length = std::hypot(h[a], h[b]) * static_cast<double>(1.1f),
                       phase = std::atan2(h[b], h[a]) + angle;
          h[a] = length * std::cos(phase);
          h[b] = length * std::sin(phase);
        }
        return h;
      };
      for (int32_t t = 0; t < tokens; ++t) {
        for (int32_t head = 0; head < heads; ++head) {
          const auto q = turned(t, head, norm_q);
          std::vector<double> mixed(dim);
          double total = 0;
          for (int32_t p = 0; p <= t; ++p) {
            if (window > 0 && t - p >= window) continue;
            const auto key = turned(p, heads + head / 2, norm_k);
            const double weight = std::exp(static_cast<double>(0.4f) *
                                           std::inner_product(q.begin(), q.end(), key.begin(), 0.0));
            total += weight;
            for (int32_t d = 0; d < dim; ++d)
              mixed[d] += weight * raw[p * width + (heads + kv_heads + head / 2) * dim + d];
          }
          // q and k are rounded to float: 2^-24 of scores up to about 10.
          for (int32_t d = 0; d < dim; ++d)
            EXPECT_NEAR(out[(t * heads + head) * dim + d], mixed[d] / total, 1e-5)
                << "window " << window << ", token " << t;
        }
      }
    }
  }
}

TEST_F(ReferenceOps, PaddingIsNeverStored) {
  const int32_t dim = 8;
  const PageClass page = backend_->page_class(1, 1, dim, 5);
  std::vector<uint8_t> memory(static_cast<size_t>(5 * page.bytes), 0xEE);
  const std::vector<uint8_t> untouched = memory;
  OneSequence step(0, 3, page);
  step.slot.assign(3, -1);
  Floats qkv = random_floats(random_, 3 * 3 * dim), out(3 * dim);
  ops_.rope_store_attend(step.view, {.qkv = view_of(qkv, 3),
                                     .attention = {.heads = 1, .kv_heads = 1, .head_dim = dim, .scale = 1},
                                     .kv = {.base = memory.data(), .pages = 5, .layers = 1, .page = page},
                                     .out = view_of(out, 3)});
  EXPECT_EQ(memory, untouched);
}

TEST_F(ReferenceOps, HalfPrecisionActivations) {
  const int64_t k = 32, n = 8;
  const Floats x = random_floats(random_, k), w = random_floats(random_, n * k);
  std::vector<uint16_t> halves, out(n);
  for (float value : x) halves.push_back(f32_to_bf16(value));
  const Weight weight = prepare(*backend_, WeightRole::linear, w, n);
  ops_.linear(
      {.x = {halves.data(), DType::bf16, 1, k, k}, .w = &weight, .out = {out.data(), DType::f16, 1, n, n}});
  for (int64_t o = 0; o < n; ++o) {
    double sum = 0;
    for (int64_t c = 0; c < k; ++c) sum += static_cast<double>(bf16_to_f32(halves[c])) * w[o * k + c];
    EXPECT_EQ(out[o], f32_to_f16(static_cast<float>(sum)));
  }
}

}  // namespace
}  // namespace quintet
