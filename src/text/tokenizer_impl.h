// The one implementation of Tokenizer: its tables (tokenizer_build.cpp) and the ways through them
// (tokenizer.cpp).
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe.h"
#include "text/tokenizer.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_pre.h"
#include "text/tokenizer_vocab.h"
#include "text/unigram.h"

namespace quintet {

inline constexpr std::string_view kSpaceMark = "\u2581";  // ▁, by which SentencePiece writes a space

class TokenizerImpl final : public Tokenizer {
 public:
  /// Builds the tables; `spec` is checked and its families are expanded.
  static Result<std::unique_ptr<Tokenizer>> build(TokenizerSpec spec);

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override;
  std::string piece(TokenId token, bool special) const override;
  std::string decode(const std::vector<TokenId>& tokens, bool special) const override;
  std::string_view token_text(TokenId token) const override;
  std::optional<TokenId> find(std::string_view token_text) const override;
  int32_t vocabulary() const override { return static_cast<int32_t>(spec_.tokens.size()); }
  bool is_special(TokenId token) const override;
  const TokenizerSpec& spec() const override { return spec_; }
  const std::vector<TokenId>& end_tokens() const override { return end_tokens_; }

 private:
  /// What a whole word gives, once known: looked up instead of merged.
  enum Whole : uint8_t { kUntried, kIsToken, kIsNot };

  /// Buffers of one encode() call.
  struct Scratch {
    explicit Scratch(const PreTokenizer& pre_tokenizer) : cutter(pre_tokenizer) {}
    PreTokenizer::Cutter cutter;
    std::vector<AddedTokenFinder::Stretch> stretches, inner;
    std::vector<Symbol> symbols;
    std::vector<Unigram::Piece> pieces;
    std::vector<TokenId> out;
    size_t max_tokens = EncodeOptions::kAll;
    bool unknown_last = false;  ///< the last id is the unknown token, for fuse_unknown

    bool full() const { return out.size() > max_tokens; }
  };

  TokenizerImpl(TokenizerSpec spec, Normalizer normalizer, PreTokenizer pre_tokenizer)
      : spec_(std::move(spec)),
        normalizer_(std::move(normalizer)),
        pre_tokenizer_(std::move(pre_tokenizer)) {}

  Status build_tables();
  /// Takes a token into the tables by id; true where it is one that merging may make.
  bool enter_token(TokenId token);
  Status check_unique() const;
  Status build_merges();
  void find_end_tokens();
  void note_inner_marks(std::string_view text);
  bool is_mergeable(size_t id) const;

  void encode_raw(std::string_view text, bool at_start, const EncodeOptions& options, Scratch& scratch) const;
  void encode_words(std::string_view text, bool at_start, Scratch& scratch) const;
  void encode_word(std::string_view word, Scratch& scratch) const;
  void encode_word_as_symbols(std::string_view word, Scratch& scratch) const;
  size_t least_tokens(std::string_view word) const;
  bool fits(std::string_view word, Scratch& scratch) const;
  void put_unknown(std::string_view text, Scratch& scratch) const;

  TokenizerSpec spec_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  StringArena bytes_;             // by id: the bytes that a token stands for (with ▁ still in it)
  StringTable by_bytes_{bytes_};  // of those that text may become: no control tokens
  std::vector<std::string> added_texts_;
  std::optional<AddedTokenFinder> added_raw_, added_normalized_;
  std::vector<uint8_t> special_;      // by id
  std::vector<TokenId> byte_tokens_;  // [256], -1: none
  size_t longest_bytes_ = 1;          // of the tokens that text may become
  std::optional<RankedMerges> ranked_;
  std::optional<ScoredMerges> scored_;
  std::optional<Unigram> unigram_;
  std::vector<std::pair<std::string_view, TokenId>>
      by_text_;  // those that by_bytes_ lacks, sorted, for find()
  /// By id, filled as words come: a token is not always what merging its own text gives. Any thread may
  /// write, all write the same.
  mutable std::vector<std::atomic<uint8_t>> whole_;
  bool cut_at_marks_ = false;  // a text may be cut before a ▁ that follows something else, but for
  std::vector<bool>
      spanned_;  // [256 x 256] places between such bytes (before it, after the ▁), which a token spans
  std::vector<TokenId> end_tokens_;
};

/// What a place between `before` and a ▁ with `after` behind it is called in spanned_.
inline size_t place_of(char before, char after) {
  return static_cast<size_t>(static_cast<uint8_t>(before)) << 8 | static_cast<uint8_t>(after);
}

}  // namespace quintet
