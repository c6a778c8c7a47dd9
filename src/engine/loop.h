// The engine's heart: plan, launch, commit, on the thread of local_engine.cpp. One step at a time, or, where a device works
// on its own, with the next step of the same streams launched before the last one is waited for.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/batch_builder.h"
#include "engine/engine_client.h"
#include "engine/executor.h"
#include "engine/scheduler.h"
#include "engine/sequence.h"
#include "kv/kv_cache.h"

namespace quintet {

struct LoopOptions {
  EngineLimits limits;  ///< kv_tokens is the pool's size: at least `context`
  int32_t step_tokens = 512;
  bool chain_steps = false;  ///< launch a decode step before the one that samples its tokens is waited for
  KvTier kv;
  uint64_t numerics_id = 0;
  int64_t batch_patience_us = 30'000'000;
  std::function<int64_t()> clock_us;
};

class Loop {
 public:
  static Result<std::unique_ptr<Loop>> make(Executor& executor, LoopOptions options);

  /// A request that check_request() let pass, with an id that is not in use. One whose `generated` is
  /// complete already ends at once.
  void submit(Request request, std::vector<TokenEvent>& events);
  /// Ends a request between two steps; an unknown id is ignored.
  void cancel(RequestId id, const std::string& why, std::vector<TokenEvent>& events);
  /// Waits for one step, the one in flight or a new one if anything can run, and appends what it gave. An error means that the device is lost:
  /// every request has ended with FinishReason::error, and nothing may be submitted any more.
  Status step(std::vector<TokenEvent>& events);

  bool idle() const { return running_.empty() && waiting_.empty() && !step_.in_flight(); }
  EngineStats stats() const;
  const KvCache& cache() const { return cache_; }
  /// Preemptions so far.
  uint64_t preemptions() const { return preemptions_; }

 private:
  /// Some tokens of one sequence in a launched step.
  struct LaunchedItem {
    Sequence* sequence;  ///< null: it ended while the step was in flight, and what the step gives for it is dropped
    int32_t first, tokens;
    int32_t logit_row;  ///< -1: none
  };
  struct LaunchedStep {
    std::vector<LaunchedItem> items;  ///< empty: not in flight
    int32_t rows = 0, logit_rows = 0;
    int64_t begin_us = 0;
    bool in_flight() const { return !items.empty(); }
  };

  Loop(Executor& executor, LoopOptions options, BatchBuilder::Staging staging);

  void make_plan();
  void apply_plan(int64_t now_us);
  void add_blocks(Sequence& sequence, int32_t tokens);
  Status launch_plan();
  bool can_chain() const;
  Status launch_chained();
  Status launch(LaunchedStep& step);
  Status wait(std::vector<TokenEvent>& events);
  void measure(const LaunchedStep& step, int64_t end_us);
  void commit(int64_t now_us, std::vector<TokenEvent>& events);
  void commit_item(const LaunchedItem& item, int64_t now_us, std::vector<TokenEvent>& events);
  void publish_blocks(Sequence& sequence);
  void add_alternatives(const Sequence& sequence, size_t logit_row, TokenEvent& event) const;
  void preempt(Sequence& sequence);
  void finish(Sequence& sequence, TokenEvent event, FinishReason reason, std::vector<TokenEvent>& events);
  void fail_all(const std::string& message, std::vector<TokenEvent>& events);
  SequenceState state_of(const Sequence& sequence) const;
  Sequence& planned(uint32_t index) { return *planned_[index]; }

  Executor& executor_;
  LoopOptions options_;
  Scheduler scheduler_;
  KvCache cache_;
  BatchBuilder builder_;
  std::unordered_map<RequestId, std::unique_ptr<Sequence>> sequences_;
  std::vector<Sequence*> running_, waiting_;  ///< by priority
  uint64_t submitted_ = 0;
  double rows_per_s_ = 0;  ///< of steps with prompts, a moving average; 0: none yet
  uint64_t preemptions_ = 0;
  EngineStats stats_;

  // Of the step at hand; capacity for the largest.
  StepPlan plan_;
  std::vector<SequenceState> running_states_, waiting_states_;
  std::vector<Sequence*> planned_;  ///< what PlanItem::sequence means: running, then waiting ones
  std::vector<BatchItem> items_;
  LaunchedStep step_;     ///< the step to be waited for next
  LaunchedStep chained_;  ///< launched behind it
  std::vector<Sampled> sampled_;
  std::vector<Alternative> alternatives_;  ///< [logit_rows, kAlternatives]
};

}  // namespace quintet
