// A request on its way: its tokens, its blocks and how far the cache has followed.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/request.h"
#include "kv/kv_cache.h"

namespace quintet {

/// Owned by the loop; one thread.
struct Sequence {
  Request request;              ///< its prompt and generated have moved into `tokens`
  std::vector<TokenId> tokens;  ///< prompt, then everything generated; capacity for the longest it may become
  int32_t prompt_tokens = 0;
  int32_t max_tokens = 0;   ///< tokens.size() at which it ends for want of room or wish
  uint64_t order = 0;       ///< ascending with submission
  int64_t priority_us = 0;  ///< lower goes first; ties by `order`

  int32_t computed_tokens = 0;   ///< leading tokens whose keys and values are in `blocks`
  std::vector<BlockId> blocks;   ///< held: [0, ceil(computed / block_tokens)) and those of the planned step
  int32_t published_blocks = 0;  ///< leading blocks that the prefix index knows
  SpaceId space = 0;

  std::vector<BlockId> hits;      ///< while waiting: blocks found in the index, not held
  uint64_t hits_version = ~0ull;  ///< of the index, when `hits` was found

  int32_t cached_tokens = -1;  ///< of the prompt, found at the first admission; -1: not admitted yet
  int64_t submitted_us = 0, first_step_us = 0, first_token_us = 0, last_token_us = 0;

  int32_t known_tokens() const { return static_cast<int32_t>(tokens.size()); }
  int32_t generated_tokens() const { return known_tokens() - prompt_tokens; }
};

}  // namespace quintet
