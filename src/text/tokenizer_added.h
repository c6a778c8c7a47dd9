// Finding added tokens (special ones, user-defined ones) in a text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/prefix_tree.h"
#include "text/tokenizer.h"

namespace quintet {

/// Immutable; safe for many threads.
class AddedTokenFinder {
 public:
  /// `tokens` must outlive it and not move; `normalized`: takes those with that flag, searching `texts` of
  /// the same order.
  AddedTokenFinder(const std::vector<AddedToken>& tokens, std::vector<std::string_view> texts,
                   bool normalized);

  /// A stretch of text: an added token, or what lies between (-1).
  struct Stretch {
    TokenId id = -1;
    size_t begin = 0, end = 0;
  };
  /// Cuts `text` at added tokens, the leftmost and there the longest. Special ones are passed over unless
  /// `options` has parse_special, and where they begin at one of its not_special_at. Empty stretches are left
  /// out.
  void cut(std::string_view text, const EncodeOptions& options, std::vector<Stretch>& out) const;
  bool empty() const { return index_.empty(); }

 private:
  const std::vector<AddedToken>& tokens_;
  PrefixTree index_;  // to indices of tokens_
};

}  // namespace quintet
