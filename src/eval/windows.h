// How a text longer than a model's context is cut for scoring.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"

namespace quintet {

/// Tokens [begin, end) of a text are read together; those of [scored, end) are scored, each given the ones
/// before it in the window.
struct Window {
  int64_t begin = 0, scored = 0, end = 0;
};

/// Windows of `context` tokens, `stride` apart, as Hugging Face's guide to perplexity cuts them: a token is
/// scored in the first window that reaches it, so with stride < context it has at least context - stride
/// tokens before it. `bos`: each window begins with BOS, which takes one place; without it the first token of
/// a window has nothing to be predicted from and is not scored. 1 <= stride <= context, context >= 2.
std::vector<Window> cut_windows(int64_t tokens, int32_t context, int32_t stride, bool bos);

/// A text as one model reads it.
struct ScoredText {
  std::vector<TokenId> tokens;  ///< without BOS
  std::optional<TokenId> bos;   ///< what each window begins with
  std::vector<Window> windows;

  int64_t scored_tokens() const;
};

}  // namespace quintet
