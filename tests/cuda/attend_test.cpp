// Attention over long contexts: near the softmax in double, and a row's bits are its own, whatever lies beside it.
#include <map>

#include "cuda_fixture.h"
#include "flat_inputs.h"

namespace quintet {
namespace {

struct Geometry {
  int32_t heads, kv_heads, dim, page_tokens, window;
};

class CudaAttend : public CudaTest {
 protected:
  static constexpr int32_t kPages = 96, kMostContext = 9000, kMostRows = 64;

  void use(const Geometry& geometry) {
    g_ = geometry;
    class_ = backend_->page_class(1, g_.kv_heads, g_.dim, g_.page_tokens);
    const int32_t columns = g_.heads * g_.dim;
    ASSERT_TRUE(backend_->reserve({.rows = kMostRows, .seqs = kMostRows, .logit_rows = 1, .context = kMostContext, .hidden = 128, .max_k = columns, .max_n = 128,
                                   .vocabulary = 64, .max_heads = g_.heads, .max_head_dim = g_.dim}));
    halves_.resize(static_cast<size_t>(kPages * class_.bytes / 2));
    for (uint16_t& half : halves_) half = f32_to_f16(normal_(random_));
    pages_ = backend_->allocate(halves_.size() * 2, BufferUse::kv).value();
    ASSERT_TRUE(backend_->write({reinterpret_cast<const uint8_t*>(halves_.data()), halves_.size() * 2}, pages_.data()));
    // All sequences see the same pages, each in an order of its own.
    refs_.clear();
    for (int32_t i = 0; i < kMostRows * blocks(); ++i) refs_.push_back({.page = static_cast<uint32_t>(random_() % kPages)});
    q_ = random_values(static_cast<size_t>(kMostRows * columns));
  }
  int32_t blocks() const { return (kMostContext + g_.page_tokens - 1) / g_.page_tokens; }

  /// A sequence of a step: `tokens` rows at the end of its context, with queries and pages by `id`.
  struct Member {
    int32_t id, context, tokens;
  };
  /// Each row of a step, members in order.
  std::vector<std::vector<float>> attend(const std::vector<Member>& members) {
    testing::FlatInputs flat(*backend_);
    std::vector<int32_t> row_begin = {0}, context, pos;
    std::vector<BlockRef> refs;
    std::vector<float> q;
    const auto columns = static_cast<size_t>(g_.heads * g_.dim);
    for (const Member& member : members) {
      for (int32_t position = member.context - member.tokens; position < member.context; ++position) {
        pos.push_back(position);
        const auto from = q_.begin() + static_cast<std::ptrdiff_t>(query(member.id, position) * columns);
        q.insert(q.end(), from, from + static_cast<std::ptrdiff_t>(columns));
      }
      row_begin.push_back(static_cast<int32_t>(pos.size()));
      context.push_back(member.context);
      refs.insert(refs.end(), refs_.begin() + member.id * blocks(), refs_.begin() + (member.id + 1) * blocks());
    }
    const auto rows = static_cast<int32_t>(pos.size());
    const auto staged = flat.stage({.view = {.rows = rows, .seqs = static_cast<int32_t>(members.size()), .max_blocks = blocks(), .pos = pos.data(), .row_begin = row_begin.data(),
                                             .context = context.data(), .block_refs = refs.data()}});
    EXPECT_TRUE(staged);
    const Matrix in = upload(q, rows, static_cast<int64_t>(columns), DType::f16), out = poisoned(rows, static_cast<int64_t>(columns), DType::f16);
    backend_->ops().attend(*staged, {.qkv = in.view, .out = out.view,
                                     .attention = {.heads = g_.heads, .kv_heads = g_.kv_heads, .head_dim = g_.dim, .scale = scale(), .sliding_window = g_.window},
                                     .kv = {.base = pages_.data(), .pages = kPages, .layers = 1, .page = class_}});
    const std::vector<float> all = download(out.view);
    std::vector<std::vector<float>> by_row;
    for (int32_t row = 0; row < rows; ++row) by_row.emplace_back(all.begin() + row * static_cast<std::ptrdiff_t>(columns), all.begin() + (row + 1) * static_cast<std::ptrdiff_t>(columns));
    return by_row;
  }

  static size_t query(int32_t id, int32_t position) { return static_cast<size_t>((id * 5 + position) % kMostRows); }
  float scale() const { return 1.f / std::sqrt(static_cast<float>(g_.dim)); }

  /// A row by the definition; `weight`: the same sum over the values' magnitudes.
  void reference(int32_t id, int32_t pos, std::vector<double>& out, std::vector<double>& weight) const {
    out.assign(static_cast<size_t>(g_.heads * g_.dim), 0);
    weight = out;
    const int32_t first = g_.window ? std::max(0, pos - g_.window + 1) : 0;
    std::vector<double> p(static_cast<size_t>(pos + 1 - first));
    const auto halves = [&](int which, int32_t kv_head, int32_t position) {
      const BlockRef& ref = refs_[static_cast<size_t>(id * blocks() + position / g_.page_tokens)];
      return halves_.data() + ref.page * class_.bytes / 2 + ((which * g_.kv_heads + kv_head) * g_.page_tokens + position % g_.page_tokens) * g_.dim;
    };
    for (int32_t head = 0; head < g_.heads; ++head) {
      const int32_t kv_head = head / (g_.heads / g_.kv_heads);
      const auto at = static_cast<size_t>(head * g_.dim);
      double sum = 0, largest = -INFINITY;
      for (size_t i = 0; i < p.size(); ++i) {
        const uint16_t* k = halves(0, kv_head, first + static_cast<int32_t>(i));
        double score = 0;
        const float* q = q_.data() + query(id, pos) * static_cast<size_t>(g_.heads * g_.dim) + at;
        for (int32_t d = 0; d < g_.dim; ++d) score += static_cast<double>(f16_to_f32(k[d])) * static_cast<double>(f16_to_f32(f32_to_f16(q[d])));
        p[i] = score * static_cast<double>(scale());
        largest = std::max(largest, p[i]);
      }
      for (double& x : p) sum += x = std::exp(x - largest);
      for (size_t i = 0; i < p.size(); ++i) {
        const uint16_t* v = halves(1, kv_head, first + static_cast<int32_t>(i));
        for (int32_t d = 0; d < g_.dim; ++d) {
          const double value = static_cast<double>(f16_to_f32(v[d])) * p[i] / sum;
          out[at + static_cast<size_t>(d)] += value, weight[at + static_cast<size_t>(d)] += std::abs(value);
        }
      }
    }
  }

  Geometry g_;
  PageClass class_;
  Buffer pages_;
  std::vector<uint16_t> halves_;
  std::vector<BlockRef> refs_;
  std::vector<float> q_;
  std::normal_distribution<float> normal_{0, 1};
};

// Few and many pairs of sequence and kv head, contexts alike and not, so that blocks attend for whole pairs, for parts of them, and for splits of
// all; with sequences without a token among them. Alone a sequence's splits have a block each, up to more than are resident at once.
TEST_F(CudaAttend, ARowsBitsAreItsOwn) {
  for (const Geometry& geometry : {Geometry{64, 8, 128, 16, 0}, Geometry{28, 4, 128, 24, 0}, Geometry{32, 8, 128, 32, 700}, Geometry{24, 8, 64, 4, 0}, Geometry{20, 4, 64, 16, 300}}) {
    SCOPED_TRACE(fmt::format("{} heads of {}, {} kv heads, pages of {}, window {}", geometry.heads, geometry.dim, geometry.kv_heads, geometry.page_tokens, geometry.window));
    ASSERT_NO_FATAL_FAILURE(use(geometry));
    std::vector<Member> alike, unlike;
    for (int32_t id = 0; id < 32; ++id) alike.push_back({id, 1800 + static_cast<int32_t>(random_() % 250), 1});
    for (const int32_t context : {5000, 300, 1, 2049, 0, 257, 1024, 9000}) unlike.push_back({32 + static_cast<int32_t>(unlike.size()), context, std::min(context, 1)});
    std::vector<std::vector<Member>> steps = {unlike, {unlike[0]}, {unlike[3], unlike[4], unlike[1]}, alike, unlike};
    for (const size_t count : {8, 16}) steps.emplace_back(alike.begin(), alike.begin() + static_cast<std::ptrdiff_t>(count));
    steps.back()[5].tokens = 0;
    steps[4].insert(steps[4].begin() + 3, alike.begin(), alike.end());
    for (const int32_t tokens : {2, 3}) {
      steps.push_back(unlike);
      for (Member& member : steps.back()) member.tokens = std::min(member.context, tokens);
    }
    std::map<std::pair<int32_t, int32_t>, std::vector<float>> alone;  // by id and position
    for (const auto& step : steps) {
      const auto together = attend(step);
      size_t row = 0;
      for (const Member& member : step)
        for (int32_t position = member.context - member.tokens; position < member.context; ++position, ++row) {
          auto& own = alone[{member.id, position}];
          if (own.empty()) own = attend({{member.id, position + 1, 1}})[0];
          EXPECT_EQ(std::memcmp(together[row].data(), own.data(), own.size() * sizeof(float)), 0)
              << step.size() << " sequences, sequence " << member.id << ", position " << position << ", " << member.tokens << " tokens";
        }
    }
    for (const int32_t context : {5000, 257, 1}) {
      const auto at = std::ranges::find(unlike, context, &Member::context);
      std::vector<double> want, weight;
      reference(at->id, context - 1, want, weight);
      const std::vector<float>& got = alone[{at->id, context - 1}];
      // Probabilities and the result are rounded to halves, small probabilities to multiples of 2^-24; scores are FP32 sums.
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(got[i], want[i], 0x1.1p-10 * weight[i] + 0x1p-18) << "context " << context << ", column " << i;
    }
  }
}

}  // namespace
}  // namespace quintet
