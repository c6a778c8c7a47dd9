// A model that is a hash: its "keys and values" are the tokens, and everything a step says is checked.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <functional>
#include <set>
#include <vector>

#include "backend/sampler.h"
#include "engine/loop.h"

namespace quintet {

inline uint64_t fake_mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0xD6E8FEB86659FD93ull;
  return hash ^ (hash >> 32);
}

struct FakeModel {
  int32_t vocabulary = 50;
  uint32_t nan_one_in = 0;  ///< so often the logits are not finite; 0: never

  uint64_t next(uint64_t context_hash, TokenId token) const {
    return fake_mix(context_hash, static_cast<uint64_t>(token) + 1);
  }

  /// What a row of logits becomes; as in a real model a function of the context, the parameters and nothing
  /// else.
  Sampled sample(uint64_t context_hash, const SampleParams& params, std::span<const TokenId> history,
                 std::span<const TokenId> bias_token, std::span<const float> bias_value) const {
    if (nan_one_in > 0 && context_hash % nan_one_in == 0) return {.status = kSampleNotFinite};
    uint64_t hash = context_hash;
    if (params.temperature > 0) {
      hash = fake_mix(fake_mix(hash, params.seed), static_cast<uint64_t>(params.position));
      hash = fake_mix(hash, std::bit_cast<uint32_t>(params.temperature));
    }
    for (TokenId token : history) hash = fake_mix(hash, static_cast<uint64_t>(token) + 7);
    for (size_t i = 0; i < bias_token.size(); ++i)
      hash = fake_mix(fake_mix(hash, static_cast<uint64_t>(bias_token[i])),
                      std::bit_cast<uint32_t>(bias_value[i]));
    return {.token = static_cast<TokenId>(hash % static_cast<uint64_t>(vocabulary)),
            .logprob = -static_cast<float>(hash % 1000)};
  }
};

/// Runs steps on a FakeModel. Fails the test on: a slot that is not the one of its position's block, a write
/// to a page that somebody else can see, a context that does not lie in the cache as it should, rows out of
/// order.
class FakeExecutor : public Executor {
 public:
  FakeExecutor(const FakeModel& model, const KvTier& kv)
      : model_(model), kv_(kv), slots_(static_cast<size_t>(kv.pages * kv.page.tokens)) {
    written_.reserve(slots_.size());
    for (auto& sampled : sampled_) sampled.reserve(1024);
  }

  /// The loop whose cache decides which pages are private; without one that check is left out.
  void watch(const Loop* loop) { loop_ = loop; }
  void fail_at(uint64_t step) { fail_at_ = step; }

  Result<Buffer> allocate_staging(size_t bytes) override {
    return Buffer(std::calloc(1, bytes), bytes, [](void* data) { std::free(data); });
  }

  Status launch(const StepInputs& inputs) override {
    const StepView& step = inputs.view;
    EXPECT_LT(steps_ - waited_, 2u) << "a third step in flight";
    ++steps_;
    if (steps_ - waited_ == 2) ++chained_;
    rows_ = step.rows;
    if (on_launch) on_launch();
    if (steps_ == fail_at_) return internal_error("the device fell off the bus");
    check_within(inputs);
    written_.clear();
    sampled_[steps_ % 2].clear();
    for (int32_t s = 0; s < step.seqs; ++s)
      for (int32_t row = step.row_begin[s]; row < step.row_begin[s + 1]; ++row) store(step, s, row);
    EXPECT_EQ(step.row_begin[step.seqs], step.rows);
    for (int32_t s = 0; s < step.seqs; ++s) check_context(step, s);
    for (int32_t i = 0; i < step.logit_rows; ++i) sample(step, i);
    return {};
  }

  Status wait(std::span<Sampled> sampled, std::span<Alternative> alternatives) override {
    const std::vector<Sampled>& results = sampled_[++waited_ % 2];
    EXPECT_LE(waited_, steps_);
    EXPECT_EQ(sampled.size(), results.size());
    std::ranges::copy(results, sampled.begin());
    if (waited_ < steps_) return {};  // as on a device, the next step has overwritten the alternatives
    for (size_t i = 0; i < sampled.size(); ++i)
      for (int32_t k = 0; k < kAlternatives; ++k)
        alternatives[i * kAlternatives + static_cast<size_t>(k)] = {.token = sampled[i].token + k,
                                                                    .logprob = -static_cast<float>(k)};
    return {};
  }

  std::function<void()> on_launch;  ///< a fake clock's chance to go on

  uint64_t steps() const { return steps_; }
  uint64_t chained() const { return chained_; }  ///< steps launched before the one before them was waited for
  int32_t rows() const { return rows_; }  ///< of the last step

 private:
  struct Slot {
    TokenId token = -1;
    int32_t pos = -1;
    uint64_t context_hash = 0;  ///< of all tokens up to this one
  };

  Slot& slot_of(const StepView& step, int32_t seq, int32_t pos) {
    const BlockRef ref = step.block_refs[int64_t{seq} * step.max_blocks + pos / kv_.page.tokens];
    EXPECT_LT(ref.page, kv_.pages);
    return slots_[int64_t{ref.page} * kv_.page.tokens + pos % kv_.page.tokens];
  }

  void check_within(const StepInputs& inputs) {
    const auto* begin = inputs.bytes.data();
    const auto* end = begin + inputs.bytes.size();
    const auto within = [&](const auto* first, int64_t count) {
      const auto* at = reinterpret_cast<const uint8_t*>(first);
      return at >= begin && at + count * static_cast<int64_t>(sizeof(*first)) <= end;
    };
    const StepView& step = inputs.view;
    EXPECT_TRUE(within(step.token, step.rows) && within(step.pos, step.rows) &&
                within(step.kv_slot, step.rows) && within(step.row_begin, step.seqs + 1) &&
                within(step.sample, step.logit_rows) &&
                within(step.block_refs, int64_t{step.seqs} * step.max_blocks));
  }

  void store(const StepView& step, int32_t seq, int32_t row) {
    const int32_t pos = step.pos[row];
    EXPECT_EQ(step.seq[row], seq);
    EXPECT_EQ(pos, step.context[seq] - (step.row_begin[seq + 1] - row));
    TokenId token = step.token[row];
    if (token < 0) {  // what the step before sampled
      const auto& before = sampled_[(steps_ - 1) % 2];
      ASSERT_TRUE(step.prev[row] >= 0 && static_cast<size_t>(step.prev[row]) < before.size());
      token = before[static_cast<size_t>(step.prev[row])].token;
    }
    EXPECT_TRUE(token >= 0 && token < model_.vocabulary);
    Slot& slot = slot_of(step, seq, pos);
    EXPECT_EQ(&slot - slots_.data(), step.kv_slot[row]);
    EXPECT_EQ(std::ranges::count(written_, step.kv_slot[row]), 0) << "a slot written twice in a step";
    written_.push_back(step.kv_slot[row]);
    if (loop_) {
      const BlockId block = static_cast<BlockId>(step.kv_slot[row] / kv_.page.tokens);
      EXPECT_EQ(loop_->cache().pool().references(block), 1) << "a write to a shared page";
      EXPECT_FALSE(loop_->cache().index().published(block)) << "a write to a published page";
    }
    const uint64_t before = pos == 0 ? 0 : slot_of(step, seq, pos - 1).context_hash;
    slot = {.token = token, .pos = pos, .context_hash = model_.next(before, token)};
  }

  /// After all rows are stored: what attention would read is one unbroken context.
  void check_context(const StepView& step, int32_t seq) {
    uint64_t hash = 0;
    for (int32_t pos = 0; pos < step.context[seq]; ++pos) {
      const Slot& slot = slot_of(step, seq, pos);
      hash = model_.next(hash, slot.token);
      ASSERT_EQ(slot.pos, pos);
      ASSERT_EQ(slot.context_hash, hash) << "position " << pos << " holds another context's keys";
    }
  }

  void sample(const StepView& step, int32_t i) {
    const SampleParams& params = step.sample[i];
    const int32_t row = step.logit_row[i];
    EXPECT_EQ(params.position, step.pos[row] + 1);
    const auto part = [](const auto* data, int32_t begin, int32_t end) {
      return std::span(data + begin, static_cast<size_t>(end - begin));
    };
    const Slot& own = slot_of(step, step.seq[row], step.pos[row]);
    const auto known = part(step.history, params.history_begin, params.history_end);
    std::vector<TokenId> history(known.begin(), known.end());
    std::ranges::replace(history, -1, own.token);
    sampled_[steps_ % 2].push_back(model_.sample(own.context_hash, params, history,
                                     part(step.bias_token, params.bias_begin, params.bias_end),
                                     part(step.bias_value, params.bias_begin, params.bias_end)));
  }

  FakeModel model_;
  KvTier kv_;
  const Loop* loop_ = nullptr;
  std::vector<Slot> slots_;
  std::vector<int64_t> written_;
  std::array<std::vector<Sampled>, 2> sampled_;  ///< of the step n at n % 2
  uint64_t steps_ = 0, waited_ = 0, chained_ = 0, fail_at_ = 0;
  int32_t rows_ = 0;
};

/// What a request must give, token by token, computed without engine, batch or cache.
struct Expected {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  FinishReason finish = FinishReason::none;
};

inline Expected expected_answer(const FakeModel& model, const Request& request, int32_t context) {
  Expected expected;
  std::vector<TokenId> tokens = request.prompt;
  uint64_t hash = 0;
  for (TokenId token : tokens) hash = model.next(hash, token);
  std::vector<TokenId> bias_token;
  std::vector<float> bias_value;
  for (const LogitBias& bias : request.bias)
    bias_token.push_back(bias.token), bias_value.push_back(bias.value);
  while (true) {
    SampleParams params = request.sampling;
    params.seed = request.seed;
    params.position = static_cast<int64_t>(tokens.size());
    std::vector<TokenId> history;
    if (params.repeat_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0) {
      history = tokens;
      if (request.penalty_window >= 0 && history.size() > static_cast<size_t>(request.penalty_window))
        history.erase(history.begin(), history.end() - request.penalty_window);
    }
    const Sampled sampled = model.sample(hash, params, history, bias_token, bias_value);
    if (sampled.status != 0) return expected.finish = FinishReason::error, expected;
    if (!request.ignore_eos && std::ranges::count(request.stop_ids, sampled.token))
      return expected.finish = FinishReason::stop, expected;
    tokens.push_back(sampled.token);
    hash = model.next(hash, sampled.token);
    expected.tokens.push_back(sampled.token);
    expected.logprobs.push_back(sampled.logprob);
    const bool enough =
        request.max_new_tokens > 0 && expected.tokens.size() >= static_cast<size_t>(request.max_new_tokens);
    if (enough || tokens.size() >= static_cast<size_t>(context))
      return expected.finish = FinishReason::length, expected;
  }
}

}  // namespace quintet
