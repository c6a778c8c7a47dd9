// RoPE, the paged cache and attention of the CPU backend against double precision, and the bits of a row
// however its prompt was cut, whatever lies in the rest of the cache.
#include <array>
#include <functional>

#include "cpu_weights.h"

namespace quintet::test {
namespace {

struct Shape {
  int heads, kv_heads, head_dim, window, rope_dims;
  RopeStyle style;
  bool norms;
};

/// Sequences of random q, k and v of every position, to be fed in any cuts.
struct Case {
  Shape shape;
  std::vector<int> lengths;
  std::vector<std::vector<float>> qkv;  ///< per sequence [length, (heads + 2 kv_heads) head_dim]
  std::vector<float> inv_freq;
  RandomWeight q_norm, k_norm;
  int layers = 2, layer = 1, page_tokens;

  Case(Shape s, std::vector<int> lengths, int page_tokens = 16)
      : shape(s),
        lengths(std::move(lengths)),
        q_norm(WeightFormat::f32, 1, s.head_dim),
        k_norm(WeightFormat::f32, 1, s.head_dim),
        page_tokens(page_tokens) {
    for (auto* norm : {&q_norm, &k_norm}) {
      norm->values = normals(static_cast<size_t>(s.head_dim));
      std::memcpy(norm->bytes.data(), norm->values.data(), norm->bytes.size());
    }
    for (int length : this->lengths) qkv.push_back(normals(static_cast<size_t>(length * width())));
    for (int i = 0; i < s.rope_dims / 2; ++i)
      inv_freq.push_back(std::pow(10000.0f, -2.0f * static_cast<float>(i) / static_cast<float>(s.rope_dims)));
  }
  int width() const { return (shape.heads + 2 * shape.kv_heads) * shape.head_dim; }
  AttentionSpec spec() const {
    return {
        .layer = layer,
        .heads = shape.heads,
        .kv_heads = shape.kv_heads,
        .head_dim = shape.head_dim,
        .scale = 1 / std::sqrt(static_cast<float>(shape.head_dim)),
        .sliding_window = shape.window,
        .rope = {.style = shape.style, .dims = shape.rope_dims, .inv_freq = inv_freq.data(), .scale = 1.1f}};
  }
};

/// One piece of a sequence in a step.
struct Piece {
  int seq, begin, count;
};

/// Runs steps of pieces (a piece of seq -1 is padding) and collects each position's output.
class Runner {
 public:
  Runner(const Case& c, int threads, CpuSimd simd = CpuSimd::best) : c_(c), cpu_(backend(threads, simd)) {
    page_ = cpu_->page_class(c.layers, c.shape.kv_heads, c.shape.head_dim, c.page_tokens);
    for (int length : c.lengths)
      max_blocks_ = std::max(max_blocks_, (length + c.page_tokens - 1) / c.page_tokens);
    pages_ = static_cast<int>(c.lengths.size()) * max_blocks_ + 3;
    buffer_ = std::move(cpu_->allocate(static_cast<size_t>(pages_ * page_.bytes), BufferUse::kv)).value();
    std::memset(buffer_.data(), 0xFF,
                buffer_.bytes());  // every half a NaN: what is read without being written shows
    std::vector<uint32_t> order(static_cast<size_t>(pages_));
    std::iota(order.begin(), order.end(), 0u);
    std::shuffle(order.begin(), order.end(), rng());
    for (size_t i = 0; i < c.lengths.size() * static_cast<size_t>(max_blocks_); ++i)
      refs_.push_back({.page = order[i]});
    for (int length : c.lengths)
      out.emplace_back(static_cast<size_t>(length * c.shape.heads * c.shape.head_dim), NAN);
    if (c.shape.norms) {
      q_norm_ = prepare(*cpu_, WeightRole::vector, {&c.q_norm});
      k_norm_ = prepare(*cpu_, WeightRole::vector, {&c.k_norm});
    }
  }

  void step(const std::vector<Piece>& pieces, bool fused = true) {
    std::vector<float> qkv;
    std::vector<int32_t> pos, seq;
    std::vector<int64_t> slot;
    for (const Piece& piece : pieces)
      for (int i = 0; i < piece.count; ++i) {
        const int p = piece.begin + i;
        pos.push_back(piece.seq < 0 ? 0 : p);
        seq.push_back(std::max(0, piece.seq));
        if (piece.seq < 0) {
          slot.push_back(-1);
          qkv.insert(qkv.end(), static_cast<size_t>(c_.width()), NAN);
          continue;
        }
        const auto& ref = refs_[static_cast<size_t>(piece.seq * max_blocks_ + p / c_.page_tokens)];
        slot.push_back(int64_t{ref.page} * c_.page_tokens + p % c_.page_tokens);
        const auto& from = c_.qkv[static_cast<size_t>(piece.seq)];
        qkv.insert(qkv.end(), from.begin() + p * c_.width(), from.begin() + (p + 1) * c_.width());
      }
    const auto rows = static_cast<int64_t>(pos.size());
    const int64_t cols = int64_t{c_.shape.heads} * c_.shape.head_dim;
    std::vector<float> result(static_cast<size_t>(rows * cols), NAN);
    const StepView step{.rows = static_cast<int32_t>(rows),
                        .seqs = static_cast<int32_t>(c_.lengths.size()),
                        .max_blocks = max_blocks_,
                        .pos = pos.data(),
                        .seq = seq.data(),
                        .kv_slot = slot.data(),
                        .block_refs = refs_.data()};
    const KvView kv{.base = buffer_.data(), .pages = pages_, .layers = c_.layers, .page = page_};
    const NormArgs qn{.weight = c_.shape.norms ? &q_norm_ : nullptr},
        kn{.weight = c_.shape.norms ? &k_norm_ : nullptr};
    if (fused) {
      cpu_->ops().rope_store_attend(step, {.qkv = view(qkv, rows, c_.width()),
                                           .attention = c_.spec(),
                                           .q_norm = qn,
                                           .k_norm = kn,
                                           .kv = kv,
                                           .out = view(result, rows, cols)});
    } else {
      cpu_->ops().rope_store(
          step,
          {.qkv = view(qkv, rows, c_.width()), .attention = c_.spec(), .q_norm = qn, .k_norm = kn, .kv = kv});
      cpu_->ops().attend(step, {.qkv = view(qkv, rows, c_.width()),
                                .out = view(result, rows, cols),
                                .attention = c_.spec(),
                                .kv = kv});
    }
    int64_t row = 0;
    for (const Piece& piece : pieces) {
      if (piece.seq >= 0)
        std::memcpy(out[static_cast<size_t>(piece.seq)].data() + piece.begin * cols,
                    result.data() + row * cols, static_cast<size_t>(piece.count * cols) * sizeof(float));
      row += piece.count;
    }
  }

  void whole(bool fused = true) {
    std::vector<Piece> pieces;
    for (size_t s = 0; s < c_.lengths.size(); ++s) pieces.push_back({static_cast<int>(s), 0, c_.lengths[s]});
    step(pieces, fused);
  }

  std::vector<std::vector<float>> out;

 private:
  const Case& c_;
  std::unique_ptr<Backend> cpu_;
  PageClass page_;
  int max_blocks_ = 0, pages_ = 0;
  Buffer buffer_;
  std::vector<BlockRef> refs_;
  Weight q_norm_, k_norm_;
};

/// Norm and RoPE of a head in double; the angle itself is a float product by definition.
std::vector<double> turned(const Case& c, const float* head, const RandomWeight& norm, int pos) {
  const Shape& s = c.shape;
  std::vector<double> y(head, head + s.head_dim);
  if (s.norms) {
    double square = 0;
    for (double v : y) square += v * v;
    const double inverse = 1 / std::sqrt(square / s.head_dim + static_cast<double>(1e-5f));
    for (size_t i = 0; i < y.size(); ++i) y[i] *= inverse * static_cast<double>(norm.values[i]);
  }
  for (int i = 0; i < s.rope_dims / 2; ++i) {
    const double angle = static_cast<double>(static_cast<float>(pos) * c.inv_freq[static_cast<size_t>(i)]);
    const auto a = static_cast<size_t>(s.style == RopeStyle::halves ? i : 2 * i);
    const auto b = static_cast<size_t>(s.style == RopeStyle::halves ? i + s.rope_dims / 2 : 2 * i + 1);
    const double x0 = y[a], x1 = y[b], cs = std::cos(angle) * static_cast<double>(1.1f),
                 sn = std::sin(angle) * static_cast<double>(1.1f);
    y[a] = x0 * cs - x1 * sn;
    y[b] = x1 * cs + x0 * sn;
  }
  return y;
}

TEST(CpuAttention, AgainstDouble) {
  const std::vector<Shape> shapes{
      {9, 3, 64, 0, 64, RopeStyle::pairs, false},    {4, 4, 80, 0, 40, RopeStyle::halves, false},
      {14, 2, 64, 0, 64, RopeStyle::halves, false},  {4, 1, 256, 70, 256, RopeStyle::halves, true},
      {8, 1, 128, 33, 128, RopeStyle::halves, true}, {2, 1, 24, 0, 16, RopeStyle::pairs, false}};
  for (CpuSimd simd : simds())
    for (const Shape& s : shapes) {
      const Case c(s, {uniform(290, 330), uniform(1, 70)}, uniform(1, 3) * 16);
      Runner run(c, 2, simd);
      run.whole(uniform(0, 1) == 1);
      for (size_t n = 0; n < c.lengths.size(); ++n) {
        std::vector<std::vector<double>> keys;  // [kv head * length + position]
        for (int g = 0; g < s.kv_heads; ++g)
          for (int p = 0; p < c.lengths[n]; ++p)
            keys.push_back(
                turned(c, c.qkv[n].data() + p * c.width() + (s.heads + g) * s.head_dim, c.k_norm, p));
        for (int trial = 0; trial < 60; ++trial) {
          const int p = trial == 0 ? c.lengths[n] - 1 : uniform(0, c.lengths[n] - 1),
                    h = uniform(0, s.heads - 1);
          const int g = h / (s.heads / s.kv_heads);
          const auto q = turned(c, c.qkv[n].data() + p * c.width() + h * s.head_dim, c.q_norm, p);
          const int first = s.window ? std::max(0, p - s.window + 1) : 0;
          std::vector<double> score;
          double largest = -1e300, slack = 0;
          for (int j = first; j <= p; ++j) {
            double dot = 0, size = 0;
            const auto& key = keys[static_cast<size_t>(g * c.lengths[n] + j)];
            for (size_t d = 0; d < q.size(); ++d) dot += q[d] * key[d], size += std::abs(q[d] * key[d]);
            score.push_back(dot / std::sqrt(s.head_dim));
            largest = std::max(largest, score.back());
            // Keys are rounded to 11 bits; roundings of a product are independent, so their sum grows with
            // the root.
            slack = std::max(slack, size / std::sqrt(s.head_dim) * 0x1p-11 / std::sqrt(s.head_dim) * 6);
          }
          double total = 0;
          for (double& x : score) total += (x = std::exp(x - largest));
          for (int d = 0; d < s.head_dim; ++d) {
            double exact = 0, size = 0;
            for (int j = first; j <= p; ++j) {
              const double v = static_cast<double>(
                  c.qkv[n][static_cast<size_t>(j * c.width() + (s.heads + s.kv_heads + g) * s.head_dim + d)]);
              exact += score[static_cast<size_t>(j - first)] / total * v;
              size += score[static_cast<size_t>(j - first)] / total * std::abs(v);
            }
            // A score that errs by e scales its weight by 1 + e, so the output errs by at most 2 e of its
            // magnitude; a value is rounded to 11 bits.
            ASSERT_NEAR(run.out[n][static_cast<size_t>((p * s.heads + h) * s.head_dim + d)], exact,
                        size * (2 * slack + 0x1p-11) + 1e-7)
                << "head_dim " << s.head_dim << " position " << p << " head " << h;
          }
        }
      }
    }
}

void expect_same(const Runner& a, const Runner& b, const std::string& what) {
  for (size_t n = 0; n < a.out.size(); ++n)
    for (size_t i = 0; i < a.out[n].size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(a.out[n][i]), std::bit_cast<uint32_t>(b.out[n][i]))
          << what << " sequence " << n << " at " << i << ": " << a.out[n][i] << " and " << b.out[n][i];
}

TEST(CpuAttention, ARowHasTheSameBitsHoweverThePromptWasCut) {
  for (const Shape& s :
       {Shape{9, 3, 64, 0, 64, RopeStyle::pairs, false}, Shape{2, 1, 96, 100, 96, RopeStyle::halves, true},
        Shape{7, 1, 64, 0, 64, RopeStyle::halves, false}}) {
    const Case c(s, {600, 37, 300});
    Runner whole(c, 1);
    whole.whole();
    for (int threads : {1, 2, 3, 4})
      for (CpuSimd simd : simds()) {
        if (simd == CpuSimd::baseline) continue;
        Runner cut(c, threads, simd);
        std::array<int, 3> done{};
        for (;;) {  // random pieces of random sequences, with padding between them
          std::vector<Piece> pieces;
          for (int n = 0; n < 3; ++n) {
            const int left = c.lengths[static_cast<size_t>(n)] - done[static_cast<size_t>(n)];
            if (left == 0 || uniform(0, 2) == 0) continue;
            const int sizes[] = {1, 1, 2, 7, 16, 64, 300};
            const int count = std::min(left, sizes[uniform(0, 6)]);
            if (uniform(0, 3) == 0) pieces.push_back({-1, 0, uniform(1, 3)});
            pieces.push_back({n, done[static_cast<size_t>(n)], count});
            done[static_cast<size_t>(n)] += count;
          }
          if (!pieces.empty()) cut.step(pieces, uniform(0, 1) == 1);
          if (done == std::array<int, 3>{600, 37, 300}) break;
        }
        expect_same(whole, cut, "threads " + std::to_string(threads));
      }
  }
}

TEST(CpuAttention, LongContextsAreSplitOverThreadsWithoutChangingBits) {
  const Case c({2, 1, 64, 0, 64, RopeStyle::halves, false}, {2100});
  Runner one(c, 1), four(c, 4);
  for (Runner* run : {&one, &four}) {
    run->step({{0, 0, 2090}});
    for (int p = 2090; p < 2100; ++p) run->step({{0, p, 1}});
  }
  expect_same(one, four, "decode");
}

TEST(CpuAttention, ANotANumberStaysInItsRow) {
  const Shape s{3, 1, 64, 0, 64, RopeStyle::halves, false};
  Case c(s, {100});
  Runner good(c, 2);
  good.whole();
  std::fill(c.qkv[0].begin() + 90 * c.width(), c.qkv[0].begin() + 91 * c.width(), NAN);
  Runner bad(c, 2);
  bad.whole();
  const size_t cols = 3 * 64;
  EXPECT_EQ(std::memcmp(good.out[0].data(), bad.out[0].data(), 90 * cols * sizeof(float)), 0);
  for (size_t i = 90 * cols; i < 91 * cols; ++i) EXPECT_TRUE(std::isnan(bad.out[0][i]));
}

}  // namespace
}  // namespace quintet::test
