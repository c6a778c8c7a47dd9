// Random schedules over a fake model and a fake clock: every request gets its own tokens, no block is lost.
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "engine/loop.h"
#include "engine/request_check.h"
#include "fake_executor.h"
#include "sanitized.h"

namespace quintet {
namespace {

struct World {
  FakeModel model;
  LoopOptions options;
  int64_t now_us = 1;

  explicit World(std::mt19937& random) {
    const auto pick = [&](int32_t from, int32_t to) {
      return from + static_cast<int32_t>(random() % static_cast<uint32_t>(to - from + 1));
    };
    model.nan_one_in = random() % 4 == 0 ? 150 : 0;
    const int32_t block_tokens = pick(1, 6);
    const int32_t context = pick(8, 60);
    // From a pool that holds one sequence at most to one that holds all.
    const int32_t pages = (context + block_tokens - 1) / block_tokens * pick(1, 5) + pick(0, 3);
    options = {.limits = {.context = context,
                          .sequences = pick(1, 7),
                          .waiting = 64,
                          .kv_tokens = int64_t{pages} * block_tokens},
               .step_tokens = pick(0, 3) == 0 ? pick(1, 3) : pick(4, 40),
               .chain_steps = pick(0, 1) == 1,
               .kv = {.page = {.tokens = block_tokens, .bytes = 256}, .pages = pages},
               .numerics_id = random(),
               .batch_patience_us = pick(0, 300),
               .clock_us = [this] { return now_us; }};
  }
};

Request random_request(std::mt19937& random, RequestId id, const World& world) {
  const int32_t context = world.options.limits.context;
  Request request{.id = id, .seed = random()};
  // Few letters and common beginnings, so that prefixes meet.
  const uint32_t family = random() % 3;
  const int32_t length = 1 + static_cast<int32_t>(random() % static_cast<uint32_t>(context - 1));
  const int32_t common = static_cast<int32_t>(random() % static_cast<uint32_t>(context));
  for (int32_t i = 0; i < length; ++i)
    request.prompt.push_back(i < common ? static_cast<TokenId>((family + static_cast<uint32_t>(i)) % 5)
                                        : static_cast<TokenId>(random() % 4));
  request.max_new_tokens = random() % 3 ? 1 + static_cast<int32_t>(random() % 20) : 0;
  request.cls = random() % 3 ? RequestClass::interactive : RequestClass::batch;
  request.salt = random() % 4 ? "" : "other";
  if (random() % 2) request.sampling.temperature = 0.5f;
  if (random() % 4 == 0) request.sampling.frequency_penalty = 0.5f;
  request.penalty_window = static_cast<int32_t>(random() % 12) - 1;
  if (random() % 5 == 0) request.sampling.logprobs = 1 + static_cast<int32_t>(random() % 5);
  if (random() % 3 == 0)
    request.stop_ids = {static_cast<TokenId>(random() % 50), static_cast<TokenId>(random() % 50)};
  request.ignore_eos = random() % 8 == 0;
  if (random() % 5 == 0) request.bias = {{.token = 3, .value = static_cast<float>(random() % 9)}};
  return request;
}

/// Everything that is known of a request from outside.
struct Watched {
  Request request;  ///< as first submitted
  Expected expected;
  size_t received = 0;
  bool cancelled = false;
  bool finished = false;
};

class Schedule {
 public:
  explicit Schedule(uint32_t seed)
      : random_(seed), world_(random_), executor_(world_.model, world_.options.kv) {
    auto loop = Loop::make(executor_, world_.options);
    loop_ = std::move(loop).value();
    executor_.watch(loop_.get());
    // Steps of any length: the chunks that the loop makes of prompts follow.
    executor_.on_launch = [this] {
      world_.now_us += static_cast<int64_t>(random_() % (random_() % 2 ? 10 : 2'000'000));
    };
  }

  void run(int requests) {
    int64_t work = 0;
    uint64_t steps = 0;
    int submitted = 0;
    while (submitted < requests || !loop_->idle()) {
      world_.now_us += static_cast<int64_t>(random_() % 20);
      const uint32_t action = random_() % 8;
      if (submitted < requests && (action < 3 || loop_->idle())) {
        const RequestId id = static_cast<RequestId>(++submitted);
        Watched watched{.request = random_request(random_, id, world_)};
        ASSERT_TRUE(check_request(watched.request, world_.options.limits, world_.model.vocabulary));
        watched.expected = expected_answer(world_.model, watched.request, world_.options.limits.context);
        work += static_cast<int64_t>(watched.request.prompt.size() + watched.expected.tokens.size()) + 1;
        watched_[id] = watched;
        loop_->submit(watched.request, events_);
      } else if (action == 3 && random_() % 3 == 0 && !watched_.empty()) {
        // Cancels some request, perhaps one that is gone, and sometimes resumes it under the same id.
        const RequestId id = 1 + random_() % static_cast<uint32_t>(submitted);
        Watched& watched = watched_[id];
        watched.cancelled = !watched.finished;
        loop_->cancel(id, "", events_);
        take_events();
        if (::testing::Test::HasFatalFailure()) return;
        ASSERT_TRUE(watched.finished);
        if (watched.cancelled && random_() % 2) {
          Request again = watched.request;
          again.generated.assign(watched.expected.tokens.begin(),
                                 watched.expected.tokens.begin() + static_cast<ptrdiff_t>(watched.received));
          watched.finished = watched.cancelled = false;
          work += static_cast<int64_t>(again.prompt.size() + watched.expected.tokens.size()) + 1;
          loop_->submit(again, events_);
        }
      }
      ASSERT_TRUE(loop_->step(events_));
      ++steps;
      take_events();
      check_blocks();
      if (::testing::Test::HasFailure()) return;
      // Somebody advances in every step, and what preemption throws away is bounded.
      ASSERT_LT(static_cast<int64_t>(steps), 3 * work + 100) << "no end in sight";
    }
    for (const auto& [id, watched] : watched_) ASSERT_TRUE(watched.finished) << id;
    ASSERT_EQ(loop_->stats().kv_blocks_free, loop_->stats().kv_blocks_total) << "blocks were lost";
    // What is idle can all be given up: no block is held by the index and a ghost.
    ASSERT_EQ(loop_->cache().pool().free_blocks() + loop_->cache().index().idle_blocks(),
              world_.options.kv.pages);
  }

  uint64_t chained() const { return executor_.chained(); }
  uint64_t preemptions() const { return loop_->preemptions(); }
  int64_t cached_tokens() const { return cached_tokens_; }

 private:
  void take_events() {
    for (const TokenEvent& event : events_) {
      ASSERT_TRUE(watched_.contains(event.id));
      Watched& watched = watched_[event.id];
      ASSERT_FALSE(watched.finished) << "an event after the last one";
      ASSERT_EQ(event.index, static_cast<int32_t>(watched.received));
      if (event.token >= 0) {
        ASSERT_LT(watched.received, watched.expected.tokens.size());
        ASSERT_EQ(event.token, watched.expected.tokens[watched.received]);
        ASSERT_EQ(event.logprob, watched.expected.logprobs[watched.received]);
        ASSERT_EQ(event.alternatives.size(), static_cast<size_t>(watched.request.sampling.logprobs));
        ++watched.received;
      }
      if (event.finish == FinishReason::none) continue;
      watched.finished = true;
      if (watched.cancelled) {
        ASSERT_EQ(event.finish, FinishReason::cancelled);
      } else {
        ASSERT_EQ(event.finish, watched.expected.finish);
        ASSERT_EQ(watched.received, watched.expected.tokens.size());
      }
      ASSERT_EQ(event.finish == FinishReason::error, !event.message.empty());
      ASSERT_EQ(event.usage.prompt_tokens, static_cast<int32_t>(watched.request.prompt.size()));
      ASSERT_EQ(event.usage.completion_tokens, static_cast<int32_t>(watched.received));
      ASSERT_LE(event.usage.cached_tokens, event.usage.prompt_tokens);
      ASSERT_GE(event.usage.queue_us, 0);
      ASSERT_GE(event.usage.prefill_us, 0);
      ASSERT_GE(event.usage.decode_us, 0);
      cached_tokens_ += event.usage.cached_tokens;
    }
    events_.clear();
  }

  void check_blocks() {
    const EngineStats stats = loop_->stats();
    EXPECT_LE(stats.running, world_.options.limits.sequences);
    EXPECT_GE(stats.kv_blocks_free, 0);
    EXPECT_LE(stats.kv_blocks_free, stats.kv_blocks_total);
    EXPECT_LE(executor_.rows(), world_.options.step_tokens + world_.options.limits.sequences);
  }

  std::mt19937 random_;
  World world_;
  FakeExecutor executor_;
  std::unique_ptr<Loop> loop_;
  std::map<RequestId, Watched> watched_;
  std::vector<TokenEvent> events_;
  int64_t cached_tokens_ = 0;
};

TEST(LoopProperty, AnyScheduleGivesEachRequestItsOwnTokens) {
  const uint32_t base = std::random_device{}();
  uint64_t preemptions = 0, chained = 0;
  int64_t cached_tokens = 0;
  for (uint32_t i = 0; i < 12000 / kPart; ++i) {
    SCOPED_TRACE(fmt::format("seed {}", base + i));
    Schedule schedule(base + i);
    schedule.run(12);
    if (HasFailure()) return;
    preemptions += schedule.preemptions();
    chained += schedule.chained();
    cached_tokens += schedule.cached_tokens();
  }
  // The schedules are worth something only where room ran out, prefixes met and steps overlapped.
  EXPECT_GT(preemptions, 1000u / kPart);
  EXPECT_GT(chained, 12000u / kPart);
  EXPECT_GT(cached_tokens, 12000 / kPart);
}

}  // namespace
}  // namespace quintet
