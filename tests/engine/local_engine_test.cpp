// The client's contract over a fake model: queues, limits, readers that are slow or gone, a device that dies.
#include "engine/local_engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <map>

#include "base/units.h"
#include "fake_executor.h"

namespace quintet {
namespace {

using ::testing::HasSubstr;

class LocalEngineTest : public ::testing::Test {
 protected:
  LocalEngineTest() {
    options.loop = {.limits = {.context = 64, .sequences = 4, .waiting = 8, .kv_tokens = 256},
                    .step_tokens = 16,
                    .kv = {.page = {.tokens = 4, .bytes = 256}, .pages = 64},
                    .clock_us = now_us};
    options.vocabulary = model.vocabulary;
  }

  void start(uint64_t fail_at = 0) {
    auto executor = std::make_unique<FakeExecutor>(model, options.loop.kv);
    executor->fail_at(fail_at);
    engine = LocalEngine::start(std::move(executor), options).value();
  }

  Request request(RequestId id, int32_t max_new_tokens = 5) {
    return {.id = id, .prompt = {1, 2, static_cast<TokenId>(id % 50)}, .max_new_tokens = max_new_tokens};
  }

  /// Polls until `count` requests have ended.
  std::map<RequestId, std::vector<TokenEvent>> collect(size_t count) {
    std::map<RequestId, std::vector<TokenEvent>> all;
    size_t ended = 0;
    while (ended < count) {
      const auto events = engine->poll(10'000'000);
      if (events.empty()) {
        ADD_FAILURE() << "no event in ten seconds";
        break;
      }
      for (const TokenEvent& event : events) {
        all[event.id].push_back(event);
        ended += event.finish != FinishReason::none;
      }
    }
    return all;
  }

  FakeModel model;
  LocalEngine::Options options;
  std::unique_ptr<LocalEngine> engine;
};

TEST_F(LocalEngineTest, StreamsTokensThenTheEnd) {
  start();
  const Request asked = request(7);
  ASSERT_TRUE(engine->submit(asked));
  const auto events = collect(1)[7];
  const Expected expected = expected_answer(model, asked, 64);
  ASSERT_EQ(events.size(), expected.tokens.size());
  for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i].token, expected.tokens[i]);
  EXPECT_EQ(events.back().finish, FinishReason::length);
  EXPECT_EQ(events.back().usage.prompt_tokens, 3);
  EXPECT_EQ(events.back().usage.completion_tokens, 5);
  EXPECT_TRUE(engine->poll(0).empty());
  EXPECT_EQ(engine->stats().running, 0);
  EXPECT_EQ(engine->stats().waiting, 0);
  EXPECT_EQ(engine->stats().generated_tokens, 5u);
  EXPECT_EQ(engine->stats().prompt_tokens, 3u);
}

TEST_F(LocalEngineTest, PollWaitsNoLongerThanItIsTold) {
  start();
  const int64_t before_us = now_us();
  EXPECT_TRUE(engine->poll(20'000).empty());
  EXPECT_GE(now_us() - before_us, 20'000);
  EXPECT_TRUE(engine->poll(0).empty());
  EXPECT_TRUE(engine->poll(-1).empty());
  ASSERT_TRUE(engine->submit(request(1)));
  EXPECT_FALSE(engine->poll(std::numeric_limits<int64_t>::max()).empty());
}

TEST_F(LocalEngineTest, RefusesWhatCanNeverRun) {
  start();
  const auto refused = [&](auto change, const char* field) {
    Request bad = request(1);
    change(bad);
    const Status status = engine->submit(bad);
    ASSERT_FALSE(status) << field;
    EXPECT_EQ(status.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(status.error().message, HasSubstr(field));
    EXPECT_THAT(status.error().message, HasSubstr("found"));
    EXPECT_THAT(status.error().message, HasSubstr("allowed are"));
  };
  refused([](Request& r) { r.prompt.clear(); }, "prompt: found 0 tokens");
  refused([](Request& r) { r.prompt.assign(64, 1); }, "prompt: found 64 tokens, allowed are 1 to 63");
  refused([](Request& r) { r.prompt[1] = 50; }, "prompt[1]: found token 50, allowed are 0 to 49");
  refused([](Request& r) { r.prompt[0] = -1; }, "prompt[0]");
  refused([](Request& r) { r.max_new_tokens = -1; }, "max_new_tokens");
  refused([](Request& r) { r.generated.assign(6, 1); }, "generated");
  refused([](Request& r) { r.generated.assign(62, 1), r.max_new_tokens = 0; }, "generated");
  refused([](Request& r) { r.generated = {50}; }, "generated[0]");
  refused([](Request& r) { r.stop_ids = {-2}; }, "stop_ids[0]");
  refused([](Request& r) { r.stop_ids.assign(2000, 1); }, "stop_ids");
  refused([](Request& r) { r.salt.assign(5000, 'x'); }, "salt");
  refused([](Request& r) { r.arrival_us = -5; }, "arrival_us");
  refused([](Request& r) { r.penalty_window = -2; }, "penalty_window");
  refused([](Request& r) { r.bias = {{99, 1.0f}}; }, "bias[0]");
  refused([](Request& r) { r.bias = {{1, NAN}}; }, "bias[0]");
  refused([](Request& r) { r.bias.assign(kMaxBias + 1, {1, 1.0f}); }, "bias");
  refused([](Request& r) { r.sampling.temperature = -1; }, "temperature");
  EXPECT_TRUE(engine->submit(request(1)));
  EXPECT_THAT(engine->submit(request(1)).error().message, HasSubstr("id: found 1"));
}

TEST_F(LocalEngineTest, AFullQueueRefusesAndRecovers) {
  start();
  for (RequestId id = 1; id <= 12; ++id) ASSERT_TRUE(engine->submit(request(id)));
  const Status full = engine->submit(request(13));
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, ErrorKind::no_room);
  collect(12);
  EXPECT_TRUE(engine->submit(request(13)));
  collect(1);
}

TEST_F(LocalEngineTest, CancelEndsARequestOnce) {
  model.vocabulary = 1 << 20;
  options.vocabulary = model.vocabulary;
  options.loop.limits.context = 1 << 14;
  options.loop.kv.pages = 1 << 13;
  start();
  Request endless = request(1, 0);
  ASSERT_TRUE(engine->submit(endless));
  EXPECT_FALSE(engine->poll(10'000'000).empty());
  engine->cancel(1);
  engine->cancel(1);
  engine->cancel(99);
  const auto events = collect(1)[1];
  EXPECT_EQ(events.back().finish, FinishReason::cancelled);
  EXPECT_EQ(events.back().token, -1);
  EXPECT_EQ(events.back().usage.completion_tokens, events.back().index);
  engine->cancel(1);
  EXPECT_TRUE(engine->poll(10'000).empty());
  EXPECT_EQ(engine->stats().kv_blocks_free, engine->stats().kv_blocks_total);
}

TEST_F(LocalEngineTest, AReaderThatIsGoneIsCancelledNotBuffered) {
  options.unread_events = 10;
  options.loop.limits.context = 1 << 12;
  options.loop.kv.pages = 1 << 11;
  start();
  ASSERT_TRUE(engine->submit(request(1, 0)));
  while (engine->stats().running + engine->stats().waiting > 0) std::this_thread::yield();
  const auto events = engine->poll(1'000'000);
  EXPECT_LE(events.size(), 12u);
  EXPECT_EQ(events.back().finish, FinishReason::cancelled);
  EXPECT_THAT(events.back().message, HasSubstr("not read"));
}

TEST_F(LocalEngineTest, ALostDeviceEndsEveryRequestAndTheNextOnesAreTold) {
  start(3);
  ASSERT_TRUE(engine->submit(request(1, 50)));
  const bool in_time = static_cast<bool>(engine->submit(request(2, 50)));  // three steps may have passed by now
  const auto all = collect(in_time ? 2 : 1);
  for (const auto& [id, events] : all) {
    EXPECT_EQ(events.back().finish, FinishReason::error);
    EXPECT_THAT(events.back().message, HasSubstr("fell off the bus"));
  }
  const Status status = engine->submit(request(3));
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().kind, ErrorKind::internal);
  EXPECT_THAT(status.error().message, HasSubstr("fell off the bus"));
  engine->cancel(1);
}

TEST_F(LocalEngineTest, NotFiniteLogitsFailTheirRequestAlone) {
  model.nan_one_in = 30;
  start();
  std::map<RequestId, Expected> expected;
  for (RequestId id = 1; id <= 12; ++id) {
    const Request asked = request(id, 20);
    expected[id] = expected_answer(model, asked, 64);
    ASSERT_TRUE(engine->submit(asked));
  }
  auto all = collect(12);
  int errors = 0;
  for (const auto& [id, events] : all) {
    EXPECT_EQ(events.back().finish, expected[id].finish);
    errors += events.back().finish == FinishReason::error;
    if (events.back().finish == FinishReason::error) {
      EXPECT_THAT(events.back().message, HasSubstr("not finite"));
    }
  }
  EXPECT_GT(errors, 0);
  EXPECT_LT(errors, 12);
}

TEST_F(LocalEngineTest, ACompletedAnswerResumesToItsEnd) {
  start();
  Request done = request(1);
  done.generated = expected_answer(model, done, 64).tokens;
  ASSERT_TRUE(engine->submit(done));
  auto events = collect(1)[1];
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].finish, FinishReason::length);
  EXPECT_EQ(events[0].index, 5);
  Request stopped = request(2);
  stopped.generated = {9};
  stopped.stop_ids = {9};
  ASSERT_TRUE(engine->submit(stopped));
  EXPECT_EQ(collect(1)[2].back().finish, FinishReason::stop);
}

TEST_F(LocalEngineTest, GoesWhileRequestsRun) {
  options.loop.limits.context = 1 << 12;
  options.loop.kv.pages = 1 << 11;
  start();
  for (RequestId id = 1; id <= 6; ++id) ASSERT_TRUE(engine->submit(request(id, 0)));
  engine->poll(1'000'000);
  engine.reset();
}

TEST_F(LocalEngineTest, ManyThreadsSubmitAndCancelWhileOnePolls) {
  options.loop.limits.waiting = 1000;
  start();
  constexpr int kThreads = 4, kRequests = 100;
  std::map<RequestId, Expected> expected;
  std::vector<Request> requests;
  for (RequestId id = 0; id < kThreads * kRequests; ++id) {
    requests.push_back(request(id, 1 + static_cast<int32_t>(id % 20)));
    expected[id] = expected_answer(model, requests.back(), 64);
  }
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < kRequests; ++i) {
        const RequestId id = static_cast<RequestId>(t * kRequests + i);
        EXPECT_TRUE(engine->submit(requests[id]));
        if (i % 5 == 4) engine->cancel(id - 2);
        engine->stats();
      }
    });
  auto all = collect(kThreads * kRequests);
  for (std::thread& thread : threads) thread.join();
  for (const auto& [id, events] : all) {
    const Expected& right = expected[id];
    for (const TokenEvent& event : events)
      if (event.token >= 0) {
        EXPECT_EQ(event.token, right.tokens[static_cast<size_t>(event.index)]);
      }
    if (events.back().finish != FinishReason::cancelled) {
      EXPECT_EQ(events.back().usage.completion_tokens, static_cast<int32_t>(right.tokens.size()));
    }
  }
  EXPECT_EQ(engine->stats().kv_blocks_free, engine->stats().kv_blocks_total);
}

}  // namespace
}  // namespace quintet
