// `quintet bench` by rows and contexts: whole steps, one JSON object each, beside what the machine can do at all.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/session.h"
#include "engine/step_bench.h"

namespace quintet {

struct StepBenchRequest {
  std::vector<int64_t> rows, context, prompt;  ///< decode: each of rows at each of context; prompts of so many tokens
  bool attention = false;                      ///< attention alone too, at each of rows and context
  bool unfused = false;                        ///< decode and prompts a second time, through UnfusedOps
  int32_t steps = 256;
  bool ceilings = true;
  bool json = false;  ///< one object a line instead of a table
  int threads = 0;  ///< of the CPU's ceilings
};

inline constexpr int32_t kBenchBlock_tokens = 16;

/// A bench for these works, `steps` of each; no_room, with the sum, where they do not fit.
Result<std::unique_ptr<StepBench>> make_step_bench(Session& session, std::span<const StepWork> works, int32_t steps);

/// Prints the ceilings, each work that fits, and for each that does not the sum of the memory it would take.
Status bench_steps(Session& session, const ModelSource& source, const StepBenchRequest& request);

}  // namespace quintet
