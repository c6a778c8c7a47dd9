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

/// Everything that defines a tokenizer, as read from GGUF metadata (model/tokenizer_gguf.cpp) or from a
/// tokenizer.json (text/tokenizer_json.cpp). Plain data; make_tokenizer() checks it.
struct TokenizerSpec {
  enum class Kind : uint8_t { byte_bpe, sentencepiece_bpe, unigram };
  enum class TokenType : uint8_t { normal, unknown, control, user_defined, unused, byte };

  Kind kind = Kind::byte_bpe;
  std::string pre_tokenizer;         ///< byte_bpe: "gpt2", "llama3", "qwen2", "smollm", "deepseek-llm", ... or empty
  std::vector<std::string> regexes;  ///< byte_bpe from tokenizer.json: the split patterns themselves, in order
  std::vector<std::string> tokens;   ///< by id, as the vocabulary writes them
  std::vector<float> scores;         ///< sentencepiece and unigram: by id
  std::vector<TokenType> types;      ///< by id; empty: all normal
  std::vector<std::string> merges;   ///< byte_bpe: "left right", best first
  bool add_bos = false;
  bool add_eos = false;
  bool add_space_prefix = true;      ///< sentencepiece
  bool ignore_merges = false;        ///< a whole word that is a token is taken as it is (Llama 3)
  bool remove_extra_whitespaces = false;
  bool byte_fallback = false;
  std::vector<uint8_t> precompiled_charsmap;  ///< unigram normalization
  std::optional<TokenId> bos, eos, unk, pad, eot;
  std::vector<TokenId> eog;          ///< further ids that end a generation
  // Helpers that fill it may extend this struct (normalizers, split behaviours, added-token flags).
};

struct EncodeOptions {
  bool add_bos = true;        ///< where the tokenizer's rules say so
  bool parse_special = false; ///< special tokens written out in the text become their ids (rendered templates)
  /// With parse_special: byte offsets, ascending, at which no special token may begin. They are where user content inside
  /// a rendered template merely looks like one (server/prompt.h finds them).
  std::vector<size_t> not_special_at;
};

/// Immutable; safe for many threads.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  /// Any bytes, broken UTF-8 too. Time linear in the input.
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
