// Text to token ids and back.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace quintet {

/// One change of the text before it is cut into words. Patterns are Oniguruma regular expressions (the dialect of
/// tokenizer.json) where `regex`, plain text where not.
struct NormalizerStep {
  enum class Kind : uint8_t { nfc, nfd, nfkc, nfkd, lowercase, replace, prepend, strip, charsmap };

  Kind kind = Kind::nfc;
  std::string pattern;   ///< replace
  bool regex = false;    ///< replace
  std::string content;   ///< replace, prepend
  bool left = true;      ///< strip
  bool right = true;     ///< strip
};

/// One cut of the text into words; merges never cross a cut.
struct PreTokenizerStep {
  enum class Kind : uint8_t { split, digits, byte_level, metaspace, punctuation, whitespace, whitespace_split };
  enum class Behavior : uint8_t { removed, isolated, merged_with_previous, merged_with_next, contiguous };
  enum class Prepend : uint8_t { never, first, always };

  Kind kind = Kind::split;
  std::string pattern;                      ///< split; metaspace: what stands for a space
  bool regex = true;                        ///< split
  Behavior behavior = Behavior::isolated;   ///< split, punctuation
  bool invert = false;                      ///< split: what does not match is the delimiter
  bool individual = true;                   ///< digits: one by one
  bool add_prefix_space = false;            ///< byte_level
  bool use_regex = true;                    ///< byte_level: cut with the pattern of GPT-2
  Prepend prepend = Prepend::always;        ///< metaspace
  bool split_words = true;                  ///< metaspace: cut before each of them
};

/// A token that is searched in the text before anything else is done to it.
struct AddedToken {
  TokenId id = 0;
  std::string text;
  bool special = false;      ///< found only with EncodeOptions::parse_special, gives no text
  bool lstrip = false;       ///< swallows white space before it
  bool rstrip = false;       ///< swallows white space after it
  bool single_word = false;  ///< only where no word character touches it
  bool normalized = false;   ///< searched in the normalized text
};

/// Everything that defines a tokenizer, as read from GGUF metadata (model/tokenizer_gguf.cpp) or from a
/// tokenizer.json (text/tokenizer_json.cpp). Plain data; make_tokenizer() checks it.
struct TokenizerSpec {
  enum class Kind : uint8_t { byte_bpe, sentencepiece_bpe, unigram };
  enum class TokenType : uint8_t { normal, unknown, control, user_defined, unused, byte };

  std::string origin = "tokenizer";  ///< the file, for messages
  Kind kind = Kind::byte_bpe;
  std::string pre_tokenizer;         ///< a family's name ("smollm", "llama-bpe", "qwen2", ...): its steps are put before
                                     ///< the ones below. Empty: the steps below are all there is
  std::vector<NormalizerStep> normalizers;
  std::vector<PreTokenizerStep> pre_tokenizers;
  std::vector<std::string> tokens;   ///< by id, as the vocabulary writes them
  std::vector<double> scores;        ///< unigram, and sentencepiece_bpe without merges: by id
  std::vector<TokenType> types;      ///< by id; empty: all normal
  std::vector<AddedToken> added;     ///< the tokens of type control and user_defined are added by make_tokenizer()
  std::vector<std::string> merges;   ///< "left right", best first. sentencepiece_bpe may have scores instead.
                                     ///< Emptied by make_tokenizer()
  std::vector<uint32_t> merge_left_bytes;  ///< of each merge the length of its left part; empty: up to its first space
  bool add_bos = false;
  bool add_eos = false;
  bool ignore_merges = false;        ///< a whole word that is a token is taken as it is (Llama 3)
  bool byte_fallback = false;        ///< characters that are no token become tokens <0x00> to <0xFF>
  bool emit_unknown = false;         ///< text that no token stands for becomes `unk`; else it is left out
  bool fuse_unknown = false;         ///< neighbouring unknown characters become one unknown token
  bool decode_strips_space = false;  ///< the first space of the decoded text was put there by encode()
  std::vector<uint8_t> precompiled_charsmap;  ///< of a charsmap normalizer
  std::optional<TokenId> bos, eos, unk, pad, eot;
  std::vector<TokenId> eog;          ///< further ids that end a generation
};

struct EncodeOptions {
  bool add_bos = true;        ///< BOS and EOS, where the tokenizer's rules say so
  bool parse_special = false; ///< special tokens written out in the text become their ids (rendered templates)
  /// With parse_special: byte offsets, ascending, at which no special token may begin. They are where user content inside
  /// a rendered template merely looks like one (server/prompt.h finds them).
  std::vector<size_t> not_special_at;
  /// Encoding may stop once the text is known to have more tokens than this: then as many and some more come back.
  size_t max_tokens = kAll;

  static constexpr size_t kAll = SIZE_MAX;
};

/// Immutable; safe for many threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Any bytes; what is no UTF-8 counts as U+FFFD, one for each maximal part (as Python's errors="replace" and Rust's
  /// from_utf8_lossy do). Time linear in the input, but for sorting (n log n) in a word that does not end.
  virtual std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const = 0;

  /// The bytes that a token adds to the text; special (control) tokens give "" unless `special`.
  virtual std::string piece(TokenId token, bool special = false) const = 0;
  /// The whole text of ids, as the pieces concatenated but for a SentencePiece leading space.
  virtual std::string decode(const std::vector<TokenId>& tokens, bool special = false) const = 0;

  /// How the vocabulary writes the token ("Ġthe", "▁the", "<0x0A>").
  virtual std::string_view token_text(TokenId token) const = 0;
  virtual std::optional<TokenId> find(std::string_view token_text) const = 0;

  virtual int32_t vocabulary() const = 0;
  virtual bool is_special(TokenId token) const = 0;
  virtual const TokenizerSpec& spec() const = 0;
  /// Ids that end a generation: EOS, EOT and the like.
  virtual const std::vector<TokenId>& end_tokens() const = 0;
};

/// Checks the spec (holes, duplicates, cyclic merges, sizes) and builds. Errors name the field.
Result<std::unique_ptr<Tokenizer>> make_tokenizer(TokenizerSpec spec);

/// Reads a tokenizer.json (Hugging Face tokenizers). `origin` names the file in errors.
Result<TokenizerSpec> parse_tokenizer_json(std::string_view json, std::string_view origin);

/// Turns ids into text as they come: holds back bytes until they make whole characters.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool special = false);
  /// The text that this token completes, possibly empty.
  std::string push(TokenId token);
  /// What is left at the end: an incomplete character becomes U+FFFD.
  std::string finish();

 private:
  const Tokenizer& tokenizer_;
  bool special_;
  bool first_ = true;
  std::string held_;
};

}  // namespace quintet
