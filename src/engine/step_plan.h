// What one step does, decided before anything is touched.
#pragma once

#include <cstdint>
#include <vector>

namespace quintet {

/// Some tokens of one sequence: a chunk of its prompt, or the one token that was sampled last.
struct PlanItem {
  uint32_t sequence =
      0;              ///< index into the running sequences, or, counted on from them, into the waiting ones
  int32_t first = 0;  ///< position of the first token
  int32_t tokens = 0;
  bool sample = false;  ///< the chunk reaches the end of what is known: its last row's logits become a token

  bool operator==(const PlanItem&) const = default;
};

/// Applied in this order: preempt, admit, then blocks for the items. An item's blocks are certain to be
/// there.
struct StepPlan {
  std::vector<uint32_t> preempt;  ///< running sequences that give their blocks back and wait again
  std::vector<uint32_t> admit;    ///< waiting sequences that start to run
  std::vector<PlanItem> items;    ///< decode tokens first
  int32_t rows = 0;               ///< tokens of all items
};

}  // namespace quintet
