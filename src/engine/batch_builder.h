// From a plan to the flat arrays of a step, in memory that was allocated once.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "engine/executor.h"
#include "engine/sequence.h"
#include "engine/step_plan.h"

namespace quintet {

inline constexpr size_t kMaxBias = 1024;  ///< entries of one request's logit bias

struct BatchLimits {
  int32_t rows = 0;
  int32_t seqs = 0;
  int32_t logit_rows = 0;
  int32_t context = 0;
  int32_t block_tokens = 0;
};

/// One chunk of one sequence, and which of its rows' logits are wanted.
struct BatchItem {
  const Sequence* sequence = nullptr;
  int32_t first = 0;
  int32_t tokens = 0;
  int32_t logit_rows = 0;  ///< the last so many rows
  int32_t prev_logit_row = -1;  ///< not -1: the one token is not known yet, the step launched before samples it in
                                ///< this logit row
};

class BatchBuilder {
 public:
  using Staging = std::array<Buffer, 2>;
  /// Staging memory of bytes_needed(limits) each; built in by turns.
  static Result<Staging> allocate(Executor& executor, const BatchLimits& limits);
  BatchBuilder(const BatchLimits& limits, Staging staging);
  /// Most of it is room for penalties over whole contexts, which costs nothing until it is touched.
  static size_t bytes_needed(const BatchLimits& limits);

  /// Blocks of every item's sequence already reach its end. Logit rows come in the order of the items. The
  /// inputs stay valid until the second call after this one, and their pointers until the builder goes.
  StepInputs build(std::span<const BatchItem> items, const Residency& residency);

 private:
  struct Counts;
  struct Arrays;
  class Arena;
  static Arrays lay_out(const Counts& counts, Arena& arena);

  BatchLimits limits_;
  Staging staging_;
  uint64_t step_id_ = 0;
};

}  // namespace quintet
