// SentencePiece's precompiled normalization map (a Darts double array and the texts it points to).
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quintet {

/// Immutable; safe for many threads.
class Charsmap {
 public:
  /// `blob`: the trie's size in bytes (little-endian u32), the trie's u32 units, then texts that end in NUL.
  static Result<Charsmap> parse(std::span<const uint8_t> blob);

  /// Replaces grapheme clusters of less than six bytes as a whole by what their shortest known prefix maps
  /// to, others character by character: what Hugging Face tokenizers do (SentencePiece itself takes the
  /// longest prefix).
  std::string run(std::string_view text) const;

 private:
  /// What the shortest known prefix of `chunk` maps to; false where it has none.
  bool transform(std::string_view chunk, std::string_view& mapped) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace quintet
