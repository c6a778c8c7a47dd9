// What fits, what is chosen, and what the refusal says.
#include "plan/memory_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quintet {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kMiB = 1 << 20;

class MemoryPlanTest : public ::testing::Test {
 protected:
  MemoryPlanTest() {
    config.layers = 2, config.hidden = 64, config.ffn = 128, config.heads = 4, config.kv_heads = 2,
    config.head_dim = 16;
    config.vocabulary = 1000, config.context = 8192;
  }
  MemoryQuestion question() {
    // 16 tokens of 64 KiB each.
    return {.config = config,
            .page = {.tokens = 16, .bytes = 1 << 20},
            .weights_bytes = 100 * kMiB,
            .free_bytes = uint64_t{64} << 30,
            .sequences = 4,
            .step_tokens = 128};
  }
  static std::string refusal(const MemoryQuestion& question, ErrorKind kind) {
    const auto plan = plan_memory(question);
    if (plan) return "it was accepted: " + plan->sum();
    EXPECT_EQ(plan.error().kind, kind);
    return plan.error().message;
  }

  ModelConfig config;
};

TEST_F(MemoryPlanTest, ChoosesRoomForManyUsualSequencesOrOneLongOne) {
  const MemoryPlan many = plan_memory(question()).value();
  EXPECT_EQ(many.context, 8192);
  EXPECT_EQ(many.kv_blocks, 4 * 4096 / 16);
  EXPECT_EQ(many.kv_bytes, many.kv_blocks * kMiB);
  EXPECT_EQ(many.workspace_limits.rows, 132);
  EXPECT_EQ(many.workspace_bytes, Workspace::bytes_needed(config, many.workspace_limits, DType::f32));
  MemoryQuestion one = question();
  one.sequences = 1;
  EXPECT_EQ(plan_memory(one).value().kv_blocks, 8192 / 16);
}

TEST_F(MemoryPlanTest, CountsTheBackendsScratch) {
  MemoryQuestion with = question();
  with.scratch_bytes = [&](const StepLimits& limits) -> Result<uint64_t> {
    EXPECT_EQ(limits.rows, 132);
    EXPECT_EQ(limits.context, 8192);
    EXPECT_EQ(limits.max_heads, 4);
    return 7 * kMiB;
  };
  EXPECT_EQ(plan_memory(with).value().workspace_bytes, plan_memory(question()).value().workspace_bytes + 7 * kMiB);
  with.scratch_bytes = [](const StepLimits&) -> Result<uint64_t> { return bad_input("heads of 63"); };
  EXPECT_EQ(refusal(with, ErrorKind::bad_input), "heads of 63");
}

TEST_F(MemoryPlanTest, WhatIsLeftToChooseShrinksToTheMemory) {
  MemoryQuestion tight = question();
  tight.free_bytes = 400 * kMiB;
  const MemoryPlan plan = plan_memory(tight).value();
  EXPECT_LE(plan.kv_bytes + plan.workspace_bytes + 64 * kMiB, tight.free_bytes);
  EXPECT_GT(plan.kv_blocks, 300);
  EXPECT_EQ(plan.context, plan.kv_blocks * 16);  // a sequence never outgrows the pool
  // Weights that are not loaded yet take their part.
  tight.weights_are_loaded = false;
  EXPECT_EQ(plan_memory(tight).value().kv_blocks, plan.kv_blocks - 100);
}

TEST_F(MemoryPlanTest, WhatWasAskedForIsGivenOrRefusedWithTheSum) {
  MemoryQuestion tight = question();
  tight.free_bytes = 400 * kMiB;
  tight.context = 8192;
  const std::string message = refusal(tight, ErrorKind::no_room);
  EXPECT_THAT(message, HasSubstr("weights 100.0 MiB + workspace"));
  EXPECT_THAT(message, HasSubstr("KV cache 512.0 MiB (8192 tokens of 64.0 KiB)"));
  EXPECT_THAT(message, HasSubstr("free are 400.0 MiB beside the weights"));
  tight.context = 2048;
  EXPECT_EQ(plan_memory(tight).value().context, 2048);
  tight.kv_tokens = 8192;
  EXPECT_THAT(refusal(tight, ErrorKind::no_room), HasSubstr("the model does not fit"));
  tight.kv_tokens = 4096;
  EXPECT_EQ(plan_memory(tight).value().kv_blocks, 256);
  tight.free_bytes = kMiB;
  tight.kv_tokens = 0, tight.context = 0;
  EXPECT_THAT(refusal(tight, ErrorKind::no_room), HasSubstr("the model does not fit"));
}

TEST_F(MemoryPlanTest, UnknownMemoryIsTakenForEnough) {
  MemoryQuestion unknown = question();
  unknown.free_bytes = 0;
  EXPECT_EQ(plan_memory(unknown).value().kv_blocks, 1024);
}

TEST_F(MemoryPlanTest, RefusesWishesOutsideTheirRange) {
  MemoryQuestion bad = question();
  bad.context = 8193;
  EXPECT_EQ(refusal(bad, ErrorKind::bad_input),
            "context: found 8193 tokens, allowed are 2 to 8192 (what the model was made for)");
  bad.context = -1;
  EXPECT_THAT(refusal(bad, ErrorKind::bad_input), HasSubstr("context: found -1"));
  bad.context = 4096;
  bad.kv_tokens = 4095;
  EXPECT_THAT(refusal(bad, ErrorKind::bad_input), HasSubstr("kv_tokens: found 4095, allowed are 4096"));
  bad.kv_tokens = int64_t{1} << 40;
  EXPECT_THAT(refusal(bad, ErrorKind::bad_input), HasSubstr("kv_tokens: found"));
}

TEST_F(MemoryPlanTest, ASmallCacheBoundsTheContext) {
  MemoryQuestion small = question();
  small.kv_tokens = 100;
  const MemoryPlan plan = plan_memory(small).value();
  EXPECT_EQ(plan.kv_blocks, 7);
  EXPECT_EQ(plan.context, 112);
}

}  // namespace
}  // namespace quintet
