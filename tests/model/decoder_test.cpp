// The forward pass itself: what it calls in which order, what it allocates, and sequences side by side.
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>
#include <random>

#include "backend/reference/reference.h"
#include "model/bad_folder.h"
#include "model/decoder.h"
#include "model/model.h"

namespace {
std::atomic<int64_t> allocations = 0;
}  // namespace

// Counts every allocation of this test program. Not inlined: GCC would take one half of a pair for a mismatch.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* data = std::malloc(bytes)) return data;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  ++allocations;
  return std::malloc(bytes > 0 ? bytes : 1);
}
[[gnu::noinline]] void operator delete(void* data) noexcept { std::free(data); }
[[gnu::noinline]] void operator delete(void* data, size_t) noexcept { std::free(data); }

namespace quintet::testing {
namespace {

/// Notes what is called and computes nothing. Fixed arrays: it must not allocate either.
class RecordingOps final : public Ops {
 public:
  enum Call : uint8_t {
    embed_,
    attn_in_,
    attend_,
    attn_out_,
    mlp_in_,
    mlp_out_,
    head_,
    sample_,
    begin_,
    end_
  };
  std::array<Call, 64> calls{};
  size_t count = 0;
  const Weight* hint = nullptr;
  bool hints_agree = true;

  void embed(const StepView&, const EmbedArgs&) override { note(embed_); }
  void linear(const LinearArgs&) override {}
  void rms_norm(ConstMatrixView, const NormArgs&, MatrixView) override {}
  void rope_store(const StepView&, const RopeStoreArgs&) override {}
  void attend(const StepView&, const AttendArgs&) override {}
  void gate(const GateArgs&) override {}
  void add(ConstMatrixView, MatrixView) override {}
  void gather(const StepView&, ConstMatrixView, MatrixView) override {}
  void sample(const StepView&, const SampleArgs&) override { note(sample_); }
  void attn_in(const StepView&, const AttnInArgs& args) override { note(attn_in_, args.w, args.next_weight); }
  void rope_store_attend(const StepView&, const RopeStoreAttendArgs&) override { note(attend_); }
  void attn_out(const StepView&, const ProjectArgs& args) override {
    note(attn_out_, args.w, args.next_weight);
  }
  void mlp_in(const StepView&, const MlpInArgs& args) override { note(mlp_in_, args.w, args.next_weight); }
  void mlp_out(const StepView&, const ProjectArgs& args) override {
    note(mlp_out_, args.w, args.next_weight);
  }
  void head(const StepView&, const HeadArgs& args) override { note(head_, args.w, nullptr); }
  void begin_layer(int) override { note(begin_); }
  void end_layer(int) override { note(end_); }

 private:
  void note(Call call) { calls[count++] = call; }
  void note(Call call, const Weight* weight, const Weight* next) {
    note(call);
    hints_agree = hints_agree && (!hint || hint == weight);  // the hint named the product that came
    hint = next;
  }
};

class Decoder : public ::testing::Test {
 protected:
  void SetUp() override {
    auto model = load_model(kTiny + "llama3", *backend_, {});
    ASSERT_TRUE(model.has_value()) << model.error().message;
    model_ = std::move(model).value();
    auto workspace = Workspace::make(*backend_, model_->config, limits_);
    ASSERT_TRUE(workspace.has_value());
    workspace_ = std::move(workspace).value();
    kv_.page =
        backend_->page_class(model_->config.layers, model_->config.kv_heads, model_->config.head_dim, 4);
    kv_.layers = model_->config.layers;
    kv_.pages = 8;
    pages_.assign(static_cast<size_t>(kv_.pages * kv_.page.bytes),
                  0xFF);  // NaN: what was not written must not be read
    kv_.base = pages_.data();
  }

  /// One row of a step: a token of a sequence at a position; sequence s has pages 4 s to 4 s + 3.
  struct Row {
    int32_t seq;
    int32_t pos;
    TokenId token;
    int32_t prev = 0;
    bool padding = false;
  };

  /// Runs rows (of one sequence contiguous) and gives the logits of all of them.
  std::vector<float> run(const std::vector<Row>& rows, bool sampled = false) {
    std::vector<TokenId> token;
    std::vector<int32_t> prev, pos, seq, row_begin, context, logit_row;
    std::vector<int64_t> slot;
    std::vector<BlockRef> blocks;
    std::vector<SampleParams> params(rows.size());
    int32_t seqs = 0, last = -1;
    for (size_t r = 0; r < rows.size(); ++r) {
      if (rows[r].seq != last) {
        last = rows[r].seq;
        ++seqs;
        row_begin.push_back(static_cast<int32_t>(r));
        context.push_back(0);
        for (uint32_t b = 0; b < 4; ++b) blocks.push_back({.page = static_cast<uint32_t>(last) * 4 + 3 - b});
      }
      token.push_back(rows[r].token);
      prev.push_back(rows[r].prev);
      pos.push_back(rows[r].pos);
      seq.push_back(seqs - 1);
      context.back() = rows[r].pos + 1;
      slot.push_back(rows[r].padding ? -1
                                     : int64_t{rows[r].seq * 4 + 3 - rows[r].pos / 4} * 4 + rows[r].pos % 4);
      logit_row.push_back(static_cast<int32_t>(r));
    }
    row_begin.push_back(static_cast<int32_t>(rows.size()));
    const StepView step{.rows = static_cast<int32_t>(rows.size()),
                        .seqs = seqs,
                        .logit_rows = static_cast<int32_t>(rows.size()),
                        .max_blocks = 4,
                        .token = token.data(),
                        .prev = prev.data(),
                        .pos = pos.data(),
                        .seq = seq.data(),
                        .kv_slot = slot.data(),
                        .row_begin = row_begin.data(),
                        .context = context.data(),
                        .block_refs = blocks.data(),
                        .logit_row = logit_row.data(),
                        .sample = params.data()};
    const ForwardArgs args{.model = model_.get(), .step = &step, .kv = kv_, .workspace = &workspace_};
    forward(backend_->ops(), args);
    const MatrixView logits = workspace_.logits(step.logit_rows);
    std::vector<float> out(logits.row<float>(0), logits.row<float>(0) + logits.rows * logits.cols);
    if (sampled) sample(backend_->ops(), args, false);
    return out;
  }

  std::vector<float> row_of(const std::vector<float>& logits, size_t row) const {
    const auto width = static_cast<size_t>(model_->config.vocabulary);
    return {logits.begin() + static_cast<int64_t>(row * width),
            logits.begin() + static_cast<int64_t>((row + 1) * width)};
  }

  std::unique_ptr<Backend> backend_ = make_reference_backend();
  std::unique_ptr<Model> model_;
  WorkspaceLimits limits_{.rows = 12, .seqs = 3, .logit_rows = 12, .context = 16};
  Workspace workspace_;
  KvView kv_;
  std::vector<uint8_t> pages_;
};

TEST_F(Decoder, CallsInOrderAndAllocatesNothing) {
  using C = RecordingOps;
  RecordingOps ops;
  const SampleParams params;
  const int32_t logit_row = 0;
  const StepView step{.rows = 1, .seqs = 1, .logit_rows = 1, .logit_row = &logit_row, .sample = &params};
  const ForwardArgs args{.model = model_.get(), .step = &step, .kv = kv_, .workspace = &workspace_};
  const int64_t before = allocations;
  forward(ops, args);
  sample(ops, args, true);
  EXPECT_EQ(allocations, before);
  const std::vector<C::Call> layer = {C::begin_,  C::attn_in_, C::attend_, C::attn_out_,
                                      C::mlp_in_, C::mlp_out_, C::end_};
  std::vector<C::Call> wanted = {C::embed_};
  for (int i = 0; i < 2; ++i) wanted.insert(wanted.end(), layer.begin(), layer.end());
  wanted.insert(wanted.end(), {C::head_, C::sample_});
  EXPECT_EQ(std::vector<C::Call>(ops.calls.begin(), ops.calls.begin() + static_cast<int64_t>(ops.count)),
            wanted);
  EXPECT_TRUE(ops.hints_agree);
}

TEST_F(Decoder, ChunksWithoutLogitsSkipTheHead) {
  RecordingOps ops;
  const StepView step{.rows = 3, .seqs = 1, .logit_rows = 0};
  forward(ops, {.model = model_.get(), .step = &step, .kv = kv_, .workspace = &workspace_});
  EXPECT_EQ(ops.calls[ops.count - 1], RecordingOps::end_);
}

/// Counts what the workspace asks for.
TEST_F(Decoder, WorkspaceIsWhatTheCountingPassSays) {
  const ModelConfig& c = model_->config;
  const uint64_t rows = 12,
                 floats =
                     rows * static_cast<uint64_t>(c.hidden + (c.heads + 2 * c.kv_heads) * c.head_dim +
                                                  c.heads * c.head_dim + 3 * c.ffn + c.hidden + c.vocabulary);
  const uint64_t bytes = Workspace::bytes_needed(c, limits_, DType::f32);
  EXPECT_GE(bytes, floats * 4 + rows * (sizeof(Sampled) + 20 * sizeof(Alternative)));
  EXPECT_LE(bytes, floats * 4 + rows * (sizeof(Sampled) + 20 * sizeof(Alternative)) + 10 * 256);
  const StepLimits limits = step_limits(c, limits_);
  EXPECT_EQ(limits.max_k, 128);
  EXPECT_EQ(limits.max_n, 256);
}

TEST_F(Decoder, SequencesSideBySideAreAsAlone) {
  std::mt19937 random{std::random_device{}()};
  std::vector<TokenId> a(9), b(9);
  for (TokenId& t : a) t = static_cast<TokenId>(random() % 256);
  for (TokenId& t : b) t = static_cast<TokenId>(random() % 256);
  std::vector<std::vector<float>> alone_a, alone_b;
  for (int32_t p = 0; p < 9; ++p) alone_a.push_back(run({{0, p, a[p]}}));
  for (int32_t p = 0; p < 9; ++p) alone_b.push_back(run({{1, p, b[p]}}));
  std::fill(pages_.begin(), pages_.end(), 0xFF);

  // A prompt chunk of one beside a decode token of the other, padding at the end.
  const auto first = run({{0, 0, a[0]},
                          {0, 1, a[1]},
                          {0, 2, a[2]},
                          {0, 3, a[3]},
                          {0, 4, a[4]},
                          {1, 0, b[0]},
                          {1, 0, 0, 0, true}});
  for (size_t p = 0; p < 5; ++p) EXPECT_EQ(row_of(first, p), alone_a[p]) << p;
  EXPECT_EQ(row_of(first, 5), alone_b[0]);
  const auto second = run({{1, 1, b[1]}, {1, 2, b[2]}, {0, 5, a[5]}});
  EXPECT_EQ(row_of(second, 0), alone_b[1]);
  EXPECT_EQ(row_of(second, 1), alone_b[2]);
  EXPECT_EQ(row_of(second, 2), alone_a[5]);
}

TEST_F(Decoder, SampledTokensFeedTheNextStep) {
  const auto first = run({{0, 0, 10}, {1, 0, 20}}, true);
  std::vector<TokenId> best;
  for (size_t r = 0; r < 2; ++r) {
    const auto row = row_of(first, r);
    best.push_back(static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin()));
    EXPECT_EQ(workspace_.sampled()[r].token, best[r]);
  }
  const auto by_id = run({{0, 1, best[0]}, {1, 1, best[1]}});
  run({{0, 0, 10}, {1, 0, 20}}, true);
  const auto by_reference = run({{0, 1, -1, 0}, {1, 1, -1, 1}});
  EXPECT_EQ(by_reference, by_id);
  const auto crossed = run({{0, 1, -1, 1}, {1, 1, -1, 0}});
  if (best[0] != best[1]) {
    EXPECT_NE(crossed, by_id);
  }
}

}  // namespace
}  // namespace quintet::testing
