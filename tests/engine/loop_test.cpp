// The loop's promises one by one: streams that never pause, nobody who starves, times and prefix hits.
#include "engine/loop.h"

#include <gtest/gtest.h>

#include <map>

#include "fake_executor.h"

namespace quintet {
namespace {

class LoopTest : public ::testing::Test {
 protected:
  void start() {
    executor = std::make_unique<FakeExecutor>(model, options.kv);
    loop = Loop::make(*executor, options).value();
    executor->watch(loop.get());
  }

  Request request(RequestId id, int32_t prompt_tokens, int32_t max_new_tokens) {
    Request request{.id = id, .seed = id, .max_new_tokens = max_new_tokens};
    for (int32_t i = 0; i < prompt_tokens; ++i)
      request.prompt.push_back(static_cast<TokenId>((static_cast<uint64_t>(i) * 7 + id) % 50));
    return request;
  }

  /// One step of 10 us; what it gave, by request.
  std::map<RequestId, std::vector<TokenEvent>> step() {
    std::vector<TokenEvent> events;
    now_us += 10;
    EXPECT_TRUE(loop->step(events));
    return sorted(events);
  }
  std::vector<TokenEvent> step_of(RequestId id) { return step()[id]; }
  std::map<RequestId, std::vector<TokenEvent>> submit(const Request& request) {
    std::vector<TokenEvent> events;
    loop->submit(request, events);
    return sorted(events);
  }
  TokenEvent run_to_end(RequestId id) {
    for (int i = 0; i < 10000; ++i)
      for (const TokenEvent& event : step_of(id))
        if (event.finish != FinishReason::none) return event;
    ADD_FAILURE() << id << " does not end";
    return {};
  }
  static std::map<RequestId, std::vector<TokenEvent>> sorted(const std::vector<TokenEvent>& events) {
    std::map<RequestId, std::vector<TokenEvent>> by_request;
    for (const TokenEvent& event : events) by_request[event.id].push_back(event);
    return by_request;
  }

  FakeModel model;
  int64_t now_us = 1000;
  LoopOptions options{.limits = {.context = 2000, .sequences = 4, .waiting = 100, .kv_tokens = 8000},
                      .step_tokens = 16,
                      .kv = {.page = {.tokens = 8, .bytes = 256}, .pages = 1000},
                      .batch_patience_us = 1000,
                      .clock_us = [this] { return now_us; }};
  std::unique_ptr<FakeExecutor> executor;
  std::unique_ptr<Loop> loop;
};

TEST_F(LoopTest, ALongPromptFreezesNoStream) {
  start();
  submit(request(1, 3, 500));
  submit(request(2, 4, 500));
  step();
  submit(request(3, 1500, 5));
  int steps = 0;
  for (bool begun = false; !begun; ++steps) {
    auto events = step();
    ASSERT_EQ(events[1].size(), 1u);
    ASSERT_EQ(events[2].size(), 1u);
    begun = !events[3].empty();
  }
  EXPECT_EQ(steps, 1500 / 4);  // a quarter of a step's tokens was the prompt's
}

TEST_F(LoopTest, ABatchRequestEndsUnderAFloodOfInteractiveOnes) {
  options.limits.sequences = 2;
  start();
  Request batch = request(1, 20, 30);
  batch.cls = RequestClass::batch;
  submit(batch);
  RequestId next = 2;
  int steps = 0;
  for (bool ended = false; !ended; ++steps) {
    while (loop->stats().waiting < 4) submit(request(next++, 10, 10));
    for (const TokenEvent& event : step_of(1)) ended = event.finish != FinishReason::none;
    // Patience is 100 steps; whoever came before that is served first, two at a time, ten steps each.
    ASSERT_LT(steps, 400);
  }
  EXPECT_GT(steps, 100);
}

TEST_F(LoopTest, AnInteractiveRequestTakesABatchPlaceAndTheBatchGoesOnWithoutALostToken) {
  options.limits.sequences = 1;
  start();
  Request batch = request(1, 20, 40);
  batch.cls = RequestClass::batch;
  const Expected expected = expected_answer(model, batch, options.limits.context);
  submit(batch);
  std::vector<TokenId> tokens;
  const auto take = [&](const std::vector<TokenEvent>& events) {
    for (const TokenEvent& event : events)
      if (event.token >= 0) tokens.push_back(event.token);
  };
  for (int i = 0; i < 10; ++i) take(step_of(1));
  submit(request(2, 4, 3));
  EXPECT_EQ(step_of(2).size(), 1u);  // at once
  EXPECT_EQ(loop->preemptions(), 1u);
  run_to_end(2);
  while (!loop->idle()) take(step_of(1));
  EXPECT_EQ(tokens, expected.tokens);
}

TEST_F(LoopTest, UsageTellsTimesAndCounts) {
  options.limits.sequences = 1;
  start();
  submit(request(1, 30, 4));  // steps of 16 and 14 rows, then three of one row
  submit(request(2, 5, 1));
  const TokenEvent first = run_to_end(1);
  EXPECT_EQ(first.usage.prompt_tokens, 30);
  EXPECT_EQ(first.usage.completion_tokens, 4);
  EXPECT_EQ(first.usage.queue_us, 10);
  EXPECT_EQ(first.usage.prefill_us,
            10);  // from the first step's begin to the second's end, on a clock that stands within a step
  EXPECT_EQ(first.usage.decode_us, 30);
  const TokenEvent second = run_to_end(2);
  EXPECT_EQ(second.usage.queue_us, 60);
  EXPECT_EQ(second.usage.prefill_us, 0);
  EXPECT_EQ(second.usage.decode_us, 0);
  EXPECT_EQ(loop->stats().steps, 6u);
  EXPECT_EQ(loop->stats().prompt_tokens, 35u);
  EXPECT_EQ(loop->stats().generated_tokens, 5u);
}

TEST_F(LoopTest, FindsPrefixesOfItsSaltAndOnlyOfThat) {
  start();
  Request one = request(1, 40, 9);
  one.salt = "a";
  submit(one);
  EXPECT_EQ(run_to_end(1).usage.cached_tokens, 0);
  one.id = 2;
  submit(one);
  EXPECT_EQ(run_to_end(2).usage.cached_tokens,
            32);  // the block with the last token is computed for its logits
  one.id = 3;
  one.prompt.push_back(7);
  submit(one);
  EXPECT_EQ(run_to_end(3).usage.cached_tokens, 40);
  one.id = 4;
  one.salt = "b";
  submit(one);
  EXPECT_EQ(run_to_end(4).usage.cached_tokens, 0);
}

TEST_F(LoopTest, AnAnswerBecomesAPrefixForTheNextTurn) {
  start();
  Request turn = request(1, 20, 21);
  const Expected answer = expected_answer(model, turn, options.limits.context);
  submit(turn);
  run_to_end(1);
  turn.id = 2;
  turn.prompt.insert(turn.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  turn.prompt.push_back(3);
  submit(turn);
  EXPECT_EQ(run_to_end(2).usage.cached_tokens, 40);
}

TEST_F(LoopTest, TheContextEndsAnAnswerThatHasNoLimit) {
  options.limits.context = 50;
  start();
  submit(request(1, 20, 0));
  const TokenEvent last = run_to_end(1);
  EXPECT_EQ(last.finish, FinishReason::length);
  EXPECT_EQ(last.usage.completion_tokens, 30);
  submit(request(2, 49, 10));
  EXPECT_EQ(run_to_end(2).usage.completion_tokens, 1);
}

TEST_F(LoopTest, TheStopIdItselfIsNoPartOfTheAnswer) {
  start();
  Request asked = request(1, 5, 100);
  const Expected all = expected_answer(model, asked, options.limits.context);
  asked.stop_ids = {all.tokens[6]};
  const Expected expected = expected_answer(model, asked, options.limits.context);
  ASSERT_EQ(expected.finish, FinishReason::stop);
  submit(asked);
  const TokenEvent last = run_to_end(1);
  EXPECT_EQ(last.finish, FinishReason::stop);
  EXPECT_EQ(last.token, -1);
  EXPECT_EQ(last.index, static_cast<int32_t>(expected.tokens.size()));
  asked.id = 2;
  asked.ignore_eos = true;
  submit(asked);
  EXPECT_EQ(run_to_end(2).usage.completion_tokens, 100);
}

TEST_F(LoopTest, AStepIsChainedToTheOneThatSamplesItsTokens) {
  options.chain_steps = true;
  start();
  const Request one = request(1, 3, 40), two = request(2, 30, 20);
  const Expected first = expected_answer(model, one, 2000), second = expected_answer(model, two, 2000);
  submit(one);
  submit(two);
  std::map<RequestId, std::vector<TokenId>> tokens;
  for (int i = 0; i < 100 && !loop->idle(); ++i)
    for (const auto& [id, events] : step())
      for (const TokenEvent& event : events) tokens[id].push_back(event.token);
  EXPECT_EQ(tokens[1], first.tokens);
  EXPECT_EQ(tokens[2], second.tokens);
  // All but the steps with chunks of the second prompt.
  EXPECT_GT(executor->chained(), 30u);
  EXPECT_EQ(executor->steps(), loop->stats().steps);
  EXPECT_EQ(loop->stats().kv_blocks_free, loop->stats().kv_blocks_total);
}

TEST_F(LoopTest, ANewcomerWaitsForTheStepsInFlightAlone) {
  options.chain_steps = true;
  start();
  submit(request(1, 3, 500));
  for (int i = 0; i < 5; ++i) step();
  submit(request(2, 4, 3));
  EXPECT_TRUE(step_of(2).empty());  // this one was launched before it came
  EXPECT_EQ(step_of(2).size(), 1u);
}

TEST_F(LoopTest, WhatEndsInFlightIsDroppedAndHarmsNobody) {
  options.chain_steps = true;
  start();
  Request stopping = request(1, 5, 100);
  stopping.stop_ids = {expected_answer(model, stopping, 2000).tokens[6]};
  const Expected expected = expected_answer(model, stopping, 2000), other = expected_answer(model, request(2, 5, 60), 2000);
  ASSERT_EQ(expected.finish, FinishReason::stop);
  submit(stopping);
  submit(request(2, 5, 60));
  std::map<RequestId, std::vector<TokenId>> tokens;
  for (int i = 0; i < 200 && !loop->idle(); ++i) {
    if (i == 12) submit(request(3, 9, 4));  // takes the place and the blocks of the first
    if (i == 20) {
      submit(request(4, 9, 400));
      step();
      step();
      std::vector<TokenEvent> events;
      loop->cancel(4, "", events);  // with a step of it in flight
      ASSERT_EQ(events.size(), 1u);
      EXPECT_EQ(events[0].finish, FinishReason::cancelled);
      tokens.clear();
      break;
    }
    for (const auto& [id, events] : step())
      for (const TokenEvent& event : events)
        if (event.token >= 0) tokens[id].push_back(event.token);
    if (i == 19) {
      EXPECT_EQ(tokens[1], expected.tokens);
      EXPECT_EQ(tokens[3], expected_answer(model, request(3, 9, 4), 2000).tokens);
    }
  }
  EXPECT_EQ(run_to_end(2).index, 59);
  EXPECT_EQ(loop->stats().kv_blocks_free, loop->stats().kv_blocks_total);
  EXPECT_TRUE(loop->idle());
}

TEST_F(LoopTest, AlternativesAreNotChained) {
  options.chain_steps = true;
  start();
  Request curious = request(2, 3, 20);
  curious.sampling.logprobs = 3;
  submit(curious);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(step_of(2).front().alternatives.size(), 3u);
  EXPECT_EQ(executor->chained(), 0u);
}

TEST_F(LoopTest, PenaltiesCountTokensThatAreNotKnownYet) {
  options.chain_steps = true;
  start();
  for (const int32_t window : {-1, 0, 1, 5}) {
    const uint64_t chained = executor->chained();
    Request penalised = request(static_cast<RequestId>(window + 2), 3, 20);
    penalised.sampling.frequency_penalty = 0.5f;
    penalised.sampling.repeat_penalty = 1.3f;
    penalised.penalty_window = window;
    submit(penalised);
    std::vector<TokenId> tokens;
    while (tokens.size() < 20)
      for (const TokenEvent& event : step_of(penalised.id))
        if (event.token >= 0) tokens.push_back(event.token);
    EXPECT_EQ(tokens, expected_answer(model, penalised, 2000).tokens) << window;
    EXPECT_GT(executor->chained(), chained + 10);
  }
}

}  // namespace
}  // namespace quintet
