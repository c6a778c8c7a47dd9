// The policy, one situation at a time.
#include "engine/scheduler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quintet {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class SchedulerTest : public ::testing::Test {
 protected:
  void run(int32_t known, int32_t computed, RequestClass cls = RequestClass::interactive) {
    const int64_t held = (computed + kBlockTokens - 1) / kBlockTokens;
    running.push_back({.cls = cls,
                       .known_tokens = known,
                       .computed_tokens = computed,
                       .priority_us = priority_us++,
                       .held_blocks = held,
                       .releasable_blocks = held});
  }
  void wait(int32_t known, RequestClass cls = RequestClass::interactive) {
    waiting.push_back({.cls = cls, .known_tokens = known, .priority_us = priority_us++});
  }
  const StepPlan& plan(int64_t available_blocks) {
    Scheduler(limits).plan({.running = running, .waiting = waiting, .available_blocks = available_blocks},
                           result);
    return result;
  }

  static constexpr int32_t kBlockTokens = 4;
  SchedulerLimits limits{
      .sequences = 4, .step_tokens = 16, .block_tokens = kBlockTokens, .batch_patience_us = 1000};
  std::vector<SequenceState> running, waiting;
  int64_t priority_us = 1;
  StepPlan result;
};

TEST_F(SchedulerTest, DecodesRunAlongsideAChunkOfALongPrompt) {
  run(100, 20);  // the long prompt was first, and still every stream gets its token
  run(10, 9);
  run(11, 10);
  const StepPlan& step = plan(100);
  EXPECT_EQ(step.rows, 6);
  EXPECT_THAT(step.items,
              ElementsAre(PlanItem{1, 9, 1, true}, PlanItem{2, 10, 1, true}, PlanItem{0, 20, 4, false}));
  running.resize(1);
  EXPECT_EQ(plan(100).rows, 16);
}

TEST_F(SchedulerTest, ChunksFollowTheSpeedOfTheMachine) {
  limits.step_tokens = 512;
  const Scheduler scheduler(limits);
  EXPECT_EQ(scheduler.prompt_tokens(0, false), 64);  // not known yet
  EXPECT_EQ(scheduler.prompt_tokens(10'000, false), 512);
  EXPECT_EQ(scheduler.prompt_tokens(10'000, true), 128);
  EXPECT_EQ(scheduler.prompt_tokens(300, false), 300);  // a second
  EXPECT_EQ(scheduler.prompt_tokens(300, true), 60);    // a fifth of one
  EXPECT_EQ(scheduler.prompt_tokens(5, false), 32);
  EXPECT_EQ(scheduler.prompt_tokens(5, true), 32);
  limits.step_tokens = 8;
  EXPECT_EQ(Scheduler(limits).prompt_tokens(5, false), 8);
  EXPECT_EQ(Scheduler(limits).prompt_tokens(5, true), 2);
}

TEST_F(SchedulerTest, ManyStreamsStillLeaveRoomForPrompts) {
  limits.step_tokens = 4;
  for (int i = 0; i < 3; ++i) run(10, 9);
  limits.sequences = 8;
  for (int i = 0; i < 4; ++i) run(10, 9);
  wait(9);
  EXPECT_EQ(plan(100).items.back(), (PlanItem{7, 0, 1, false}));
  EXPECT_EQ(result.rows, 8);
  EXPECT_LE(result.rows, Scheduler(limits).max_rows());
}

TEST_F(SchedulerTest, AdmitsInOrderWhileThereAreRowsPlacesAndBlocks) {
  wait(6);
  wait(6);
  wait(40);
  wait(1);
  EXPECT_THAT(plan(100).admit, ElementsAre(0, 1, 2));  // no rows left for the last
  EXPECT_THAT(result.items,
              ElementsAre(PlanItem{0, 0, 6, true}, PlanItem{1, 0, 6, true}, PlanItem{2, 0, 4, false}));
  EXPECT_THAT(plan(12).admit, ElementsAre(0, 1));  // the third has no room, and nobody overtakes it
  limits.sequences = 1;
  EXPECT_THAT(plan(100).admit, ElementsAre(0));
}

TEST_F(SchedulerTest, ANewcomerLeavesEachStreamABlock) {
  run(5, 4);
  wait(8);
  EXPECT_THAT(plan(4).admit,
              IsEmpty());  // 1 for the stream, 2 for the newcomer, and one more for each of them
  EXPECT_THAT(plan(5).admit, ElementsAre(0));
}

TEST_F(SchedulerTest, AloneASequenceMayTakeThePool) {
  wait(16);
  EXPECT_THAT(plan(4).admit, ElementsAre(0));
  EXPECT_THAT(plan(3).admit, IsEmpty());
}

TEST_F(SchedulerTest, WhoComesLastGivesWay) {
  run(5, 4);
  run(9, 8);
  run(13, 12);
  EXPECT_THAT(plan(0).preempt, ElementsAre(2));
  EXPECT_THAT(result.items, ElementsAre(PlanItem{0, 4, 1, true}, PlanItem{1, 8, 1, true}));
  EXPECT_THAT(plan(3).preempt, IsEmpty());
  // Without anybody behind it a sequence waits, or takes what is there.
  running.resize(1);
  EXPECT_THAT(plan(0).items, IsEmpty());
  run(40, 8);
  EXPECT_THAT(plan(2).items, ElementsAre(PlanItem{0, 4, 1, true}, PlanItem{1, 8, 4, false}));
}

TEST_F(SchedulerTest, WhatAPreemptedSequenceGaveIsNotForThoseBehindIt) {
  run(5, 4);
  run(41, 40);
  wait(4);
  EXPECT_THAT(plan(0).preempt, ElementsAre(1));
  EXPECT_THAT(result.admit, IsEmpty());
}

TEST_F(SchedulerTest, AnInteractiveRequestTakesThePlaceOfABatchOne) {
  limits.sequences = 2;
  run(5, 5 - 1);
  priority_us = Scheduler(limits).priority_us(RequestClass::batch, 1);
  EXPECT_EQ(priority_us, 1001);
  run(5, 4, RequestClass::batch);
  priority_us = 500;
  wait(6);
  EXPECT_THAT(plan(100).preempt, ElementsAre(1));
  EXPECT_THAT(result.admit, ElementsAre(0));
  // One that arrives after the batch request's patience does not.
  waiting[0].priority_us = 1002;
  EXPECT_THAT(plan(100).preempt, IsEmpty());
  EXPECT_THAT(result.admit, IsEmpty());
  // Nor does one of the same kind, and nobody is thrown out in vain.
  waiting[0].priority_us = 500;
  waiting[0].cls = RequestClass::batch;
  EXPECT_THAT(plan(100).preempt, IsEmpty());
  waiting[0].cls = RequestClass::interactive;
  waiting[0].known_tokens = 50;
  EXPECT_THAT(plan(3).preempt, IsEmpty());
}

TEST_F(SchedulerTest, FoundBlocksAreNotPaidForTwiceNorTakenForFree) {
  wait(12);
  waiting[0].computed_tokens = 8;
  waiting[0].idle_hit_blocks = 0;
  EXPECT_THAT(plan(1).admit, ElementsAre(0));  // two blocks are held by others already
  waiting[0].idle_hit_blocks = 2;
  EXPECT_THAT(plan(2).admit, IsEmpty());
  EXPECT_THAT(plan(3).admit, ElementsAre(0));
  EXPECT_THAT(result.items, ElementsAre(PlanItem{0, 8, 4, true}));
}

TEST_F(SchedulerTest, NobodyIsPreemptedForBlocksThatANewcomerShares) {
  // The newcomer goes first and shares the blocks of the last running sequence, which would therefore free
  // nothing.
  wait(12);
  waiting[0].computed_tokens = 8;
  run(5, 4);
  run(9, 8);
  EXPECT_THAT(plan(4).admit, ElementsAre(0));
  EXPECT_THAT(result.preempt, IsEmpty());
  waiting[0].idle_hit_blocks = 2;
  running[0].known_tokens = 20;
  limits.step_tokens = 128;
  EXPECT_THAT(plan(6).admit, ElementsAre(0));
  EXPECT_THAT(result.preempt, ElementsAre(1));  // shares nothing: preempting frees what it says
  waiting[0].idle_hit_blocks = 0;
  EXPECT_THAT(plan(4).admit, ElementsAre(0));
  EXPECT_THAT(result.preempt, IsEmpty());
}

}  // namespace
}  // namespace quintet
