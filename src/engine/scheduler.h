// Which sequences run in the next step and how many tokens of each: pure policy, no state, no clock.
//
// Every sequence has a fixed priority: its arrival time, a batch request counting as that much later.
// Everything is decided in that order, so the first of all sequences always gets its rows and its blocks, and
// so ends; then the next is first. Nothing starves, and no two sequences can take blocks from each other in
// turns.
#pragma once

#include <cstdint>
#include <span>

#include "engine/request.h"
#include "engine/step_plan.h"

namespace quintet {

struct SchedulerLimits {
  int32_t sequences = 0;  ///< running at once
  int32_t step_tokens =
      0;  ///< most prompt tokens of a step; a quarter of that beside decode tokens, which always go
  int32_t block_tokens = 0;
  int64_t batch_patience_us =
      0;  ///< a batch request goes before interactive ones that arrive this much later
};

/// A sequence as the policy sees it.
struct SequenceState {
  RequestClass cls = RequestClass::interactive;
  int32_t known_tokens = 0;  ///< prompt and answer so far
  int32_t computed_tokens =
      0;  ///< running: of these, in the cache; waiting: found in the prefix index, whole blocks
  int64_t priority_us = 0;
  uint64_t order = 0;             ///< breaks ties
  int64_t held_blocks = 0;        ///< running
  int64_t releasable_blocks = 0;  ///< running: how many become available if it is preempted
  int64_t idle_hit_blocks =
      0;  ///< waiting: of the blocks found, those that are available to others until held
};

struct SchedulerInput {
  std::span<const SequenceState> running;  ///< by priority
  std::span<const SequenceState> waiting;  ///< by priority; the first few suffice
  int64_t available_blocks = 0;
  double rows_per_s = 0;  ///< speed of prompts, as measured; 0: not known yet
};

class Scheduler {
 public:
  explicit Scheduler(const SchedulerLimits& limits) : limits_(limits) {}

  /// The time that a request's priority is: see the top of this file.
  int64_t priority_us(RequestClass cls, int64_t arrival_us) const {
    return cls == RequestClass::batch ? arrival_us + limits_.batch_patience_us : arrival_us;
  }
  /// Most rows of a step.
  int32_t max_rows() const { return limits_.step_tokens + limits_.sequences; }

  /// Prompt tokens of the next step: no more than take about a second, or a fifth of one beside streams,
  /// which all wait for the whole step. Chunks may depend on the clock, since they change no bits.
  int32_t prompt_tokens(double rows_per_s, bool streams) const;

  /// Fills `plan`. Where anything runs or waits, and the pool holds the longest sequence, at least one item
  /// comes out.
  void plan(const SchedulerInput& input, StepPlan& plan) const;

 private:
  SchedulerLimits limits_;
};

}  // namespace quintet
