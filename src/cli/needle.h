// Retrieval from long texts: a pass key among sentences that say nothing (Mohtashami and Jaggi, "Landmark Attention", 2023).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/interrupt.h"
#include "cli/session.h"

namespace quintet {

struct NeedleResult {
  int64_t tokens = 0;  ///< of the prompt, at most
  int found = 0, asked = 0;
};

/// The text with `key` hidden at `depth` (0: at the beginning, 1: at the end), as many sentences as fit into `tokens`.
std::string needle_prompt(const Tokenizer& tokenizer, int64_t tokens, double depth, int key);

/// Five depths of each length, greedy. bad_input where a length has no room for the question itself.
Result<std::vector<NeedleResult>> find_needles(Session& session, const std::vector<int64_t>& lengths,
                                               const Interrupts& interrupts);

}  // namespace quintet
