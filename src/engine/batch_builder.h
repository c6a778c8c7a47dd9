// From a plan to the flat arrays of a step, in memory that was allocated once.
#pragma once

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
};

class BatchBuilder {
 public:
  /// `staging` holds at least bytes_needed(limits).
  BatchBuilder(const BatchLimits& limits, Buffer staging);
  /// Most of it is room for penalties over whole contexts, which costs nothing until it is touched.
  static size_t bytes_needed(const BatchLimits& limits);

  /// Blocks of every item's sequence already reach its end. Logit rows come in the order of the items. The
  /// inputs stay valid until the next call, and their pointers until the builder goes.
  StepInputs build(std::span<const BatchItem> items, const Residency& residency);

 private:
  struct Counts;
  struct Arrays;
  class Arena;
  static Arrays lay_out(const Counts& counts, Arena& arena);

  BatchLimits limits_;
  Buffer staging_;
  uint64_t step_id_ = 0;
};

}  // namespace quintet
