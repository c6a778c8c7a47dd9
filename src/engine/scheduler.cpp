// One pass over all sequences in order of priority.
#include "engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace quintet {
namespace {

/// Of a step's prompt tokens, one in so many is left beside streams.
constexpr int32_t kStreamShare = 4;
/// How long a step should take at most: what a cancel, or the next token of a stream, waits for.
constexpr double kStep_s = 1, kStepBesideStreams_s = 0.2;
/// The chunk while the speed is not known, and the shortest one: below that the weights are read again and
/// again for few rows.
constexpr int32_t kFirstChunk_tokens = 64, kShortestChunk_tokens = 32;

bool before(const SequenceState& a, const SequenceState& b) {
  return a.priority_us != b.priority_us ? a.priority_us < b.priority_us : a.order < b.order;
}

/// The state of one planning pass.
struct Pass {
  const SchedulerLimits& limits;
  const SchedulerInput& input;
  StepPlan& plan;
  int64_t available_blocks;
  int32_t prompt_budget;  ///< prompt tokens left in this step
  size_t victims_from;    ///< running sequences from here on are preempted
  /// A newcomer of this plan shares blocks that run already: preempting their holder would not make them
  /// available, so nobody is preempted until the next step.
  bool newcomer_shares = false;

  int64_t blocks_for(int32_t tokens) const {
    return (int64_t{tokens} + limits.block_tokens - 1) / limits.block_tokens;
  }
  int32_t running() const { return static_cast<int32_t>(victims_from + plan.admit.size()); }

  void preempt_last() {
    --victims_from;
    plan.preempt.push_back(static_cast<uint32_t>(victims_from));
    available_blocks += input.running[victims_from].releasable_blocks;
  }

  void add_item(uint32_t sequence, const SequenceState& state, int32_t tokens) {
    plan.items.push_back({.sequence = sequence,
                          .first = state.computed_tokens,
                          .tokens = tokens,
                          .sample = state.computed_tokens + tokens == state.known_tokens});
    plan.rows += tokens;
  }

  void run(size_t index) {
    const SequenceState& state = input.running[index];
    const bool decode = state.computed_tokens + 1 == state.known_tokens;
    int32_t tokens = decode ? 1 : std::min(state.known_tokens - state.computed_tokens, prompt_budget);
    if (tokens <= 0) return;
    // Whoever comes later gives way, the last first.
    while (blocks_for(state.computed_tokens + tokens) - state.held_blocks > available_blocks &&
           victims_from > index + 1 && !newcomer_shares)
      preempt_last();
    // With nobody left to give way, as much of the chunk as there is room for.
    const int64_t room = (state.held_blocks + available_blocks) * limits.block_tokens - state.computed_tokens;
    tokens = static_cast<int32_t>(std::min<int64_t>(tokens, room));
    if (tokens <= 0) return;
    available_blocks -= std::max<int64_t>(0, blocks_for(state.computed_tokens + tokens) - state.held_blocks);
    if (!decode) prompt_budget -= tokens;
    add_item(static_cast<uint32_t>(index), state, tokens);
  }

  /// False: it has to wait, and with it everything behind it.
  bool admit(size_t index) {
    const SequenceState& state = input.waiting[index];
    if (prompt_budget <= 0) return false;
    // What a preempted sequence gave back is not for those behind it.
    if (victims_from < input.running.size() && !before(state, input.running[victims_from])) return false;
    // An interactive request takes the place of batch ones that come after it, never of its own kind: those
    // are sure to end, and a place for a place gains nothing. These come later in this pass: no row of theirs
    // is planned yet.
    const auto may_preempt = [&] {
      return victims_from > 0 && state.cls == RequestClass::interactive &&
             input.running[victims_from - 1].cls == RequestClass::batch &&
             before(state, input.running[victims_from - 1]);
    };
    // Room for all that is known and one block more, and a block for each running sequence, so that a
    // newcomer is not thrown out by the next decode steps. Alone it may take all there is.
    const int64_t hit_blocks = state.computed_tokens / limits.block_tokens;
    const auto has_room = [&] {
      if (running() >= limits.sequences) return false;
      // Blocks found in the index may have been held by a sequence that this plan preempts: count them all as
      // idle then.
      const int64_t idle_hits = plan.preempt.empty() ? state.idle_hit_blocks : hit_blocks;
      const int64_t need = blocks_for(state.known_tokens) - hit_blocks + idle_hits;
      return need + (running() > 0 ? running() + 1 : 0) <= available_blocks;
    };
    if (!has_room()) {
      if (newcomer_shares) return false;
      // Nobody is thrown out unless that is enough.
      int64_t gain = 0, places = 0;
      for (size_t i = victims_from;
           i-- > 0 && input.running[i].cls == RequestClass::batch && before(state, input.running[i]);) {
        gain += input.running[i].releasable_blocks;
        ++places;
      }
      const int64_t left = running() - places;
      if (left >= limits.sequences) return false;
      if (blocks_for(state.known_tokens) + (left > 0 ? left + 1 : 0) > available_blocks + gain) return false;
      while (!has_room() && may_preempt()) preempt_last();
      if (!has_room()) return false;
    }
    const int32_t tokens = std::min(state.known_tokens - state.computed_tokens, prompt_budget);
    available_blocks -= blocks_for(state.computed_tokens + tokens) - hit_blocks +
                        (plan.preempt.empty() ? state.idle_hit_blocks : hit_blocks);
    newcomer_shares |= state.idle_hit_blocks < hit_blocks;
    prompt_budget -= tokens;
    plan.admit.push_back(static_cast<uint32_t>(index));
    add_item(static_cast<uint32_t>(input.running.size() + index), state, tokens);
    return true;
  }
};

}  // namespace

int32_t Scheduler::prompt_tokens(double rows_per_s, bool streams) const {
  // Never nothing, so that many streams cannot keep newcomers out.
  const int32_t most = streams ? std::max(1, limits_.step_tokens / kStreamShare) : limits_.step_tokens;
  if (rows_per_s <= 0) return std::min(most, kFirstChunk_tokens);
  const double in_time = rows_per_s * (streams ? kStepBesideStreams_s : kStep_s);
  return static_cast<int32_t>(std::clamp<double>(in_time, std::min(most, kShortestChunk_tokens), most));
}

void Scheduler::plan(const SchedulerInput& input, StepPlan& plan) const {
  plan.preempt.clear();
  plan.admit.clear();
  plan.items.clear();
  plan.rows = 0;
  const bool streams = std::ranges::any_of(input.running, [](const SequenceState& state) {
    return state.computed_tokens + 1 == state.known_tokens;
  });
  Pass pass{.limits = limits_,
            .input = input,
            .plan = plan,
            .available_blocks = input.available_blocks,
            .prompt_budget = prompt_tokens(input.rows_per_s, streams),
            .victims_from = input.running.size()};
  // Merge by priority. Running sequences below victims_from still run.
  size_t next_running = 0, next_waiting = 0;
  bool admitting = true;
  while (true) {
    const bool has_running = next_running < pass.victims_from;
    const bool has_waiting = admitting && next_waiting < input.waiting.size();
    if (has_waiting && (!has_running || before(input.waiting[next_waiting], input.running[next_running]))) {
      admitting = pass.admit(next_waiting++);
    } else if (has_running) {
      pass.run(next_running++);
    } else {
      break;
    }
  }
  // (A stable partition would allocate.)
  const auto rank = [](const PlanItem& item) {
    return std::pair(item.tokens > 1 || !item.sample, item.sequence);
  };
  std::ranges::sort(plan.items, [&](const PlanItem& a, const PlanItem& b) { return rank(a) < rank(b); });
}

}  // namespace quintet
