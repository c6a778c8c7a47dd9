// Byte-pair merging of one word, by ranked merges or by the scores of SentencePiece, in n log n.
// Sennrich et al., "Neural Machine Translation of Rare Words with Subword Units", ACL 2016.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "text/tokenizer_vocab.h"

namespace quintet {

/// A pair that may be merged: what it becomes, and how early (lower first; equal keys from left to right).
struct MergeCandidate {
  uint64_t key = 0;
  TokenId id = -1;  ///< -1: the pair does not merge
};

/// A piece of a word: a token, or a character that is none (-1), and where it lies.
struct Symbol {
  TokenId id = -1;
  uint32_t begin = 0, bytes = 0;
  uint32_t chars = 0;
};

/// Merges listed in order (byte-level BPE, and SentencePiece-like vocabularies that list them).
class RankedMerges {
 public:
  void reserve(size_t merges);
  /// False where the pair is there already.
  bool insert(TokenId left, TokenId right, uint32_t rank, TokenId merged);
  MergeCandidate find(std::string_view word, const Symbol& left, const Symbol& right) const;

 private:
  struct Slot {
    uint64_t pair = UINT64_MAX;
    uint32_t rank = 0;
    TokenId merged = -1;
  };
  std::vector<Slot> slots_;
};

/// Merges implied by the vocabulary: two neighbours become the token that they spell, the best score first.
/// Ties are broken as in the merge lists that Transformers makes of such vocabularies: the longer left part,
/// then the longer right part, then the lower id.
class ScoredMerges {
 public:
  /// `mergeable[id]`: tokens that merges may make. The table holds the tokens' texts.
  ScoredMerges(const StringTable& table, const std::vector<double>& scores,
               const std::vector<bool>& mergeable, size_t longest_bytes);
  MergeCandidate find(std::string_view word, const Symbol& left, const Symbol& right) const;

  /// More tokens than this do not fit the keys.
  static constexpr size_t kMaxTokens = 1U << 22;

 private:
  const StringTable& table_;
  std::vector<uint32_t> order_;  // by id: place among the distinct scores, best first
  std::vector<bool> mergeable_;
  size_t longest_bytes_;
};

/// Merges the symbols of `word` until no pair merges. `merges.find()` says which pairs do.
template <class Merges>
void merge_word(const Merges& merges, std::string_view word, std::vector<Symbol>& symbols);

extern template void merge_word(const RankedMerges&, std::string_view, std::vector<Symbol>&);
extern template void merge_word(const ScoredMerges&, std::string_view, std::vector<Symbol>&);

}  // namespace quintet
