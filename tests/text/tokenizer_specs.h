// Small tokenizers for tests.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/bpe_bytes.h"
#include "text/tokenizer.h"

namespace quintet::test {

/// Byte-level BPE with all 256 bytes (ids are the bytes), then what `merges` make, in order, then special
/// tokens.
inline TokenizerSpec byte_spec(const std::vector<std::string>& merges,
                               const std::vector<std::string>& special = {}) {
  TokenizerSpec spec;
  spec.kind = TokenizerSpec::Kind::byte_bpe;
  spec.pre_tokenizer = "gpt2";
  for (int byte = 0; byte < 256; ++byte) {
    const char c = static_cast<char>(byte);
    spec.tokens.push_back(to_stand_ins({&c, 1}));
  }
  for (const auto& merge : merges) {
    std::string merged = merge;
    merged.erase(merged.find(' ', 1), 1);
    bool known = false;
    for (const auto& token : spec.tokens) known = known || token == merged;
    if (!known) spec.tokens.push_back(merged);
  }
  spec.merges = merges;
  spec.types.assign(spec.tokens.size(), TokenizerSpec::TokenType::normal);
  for (const auto& token : special) {
    spec.tokens.push_back(token);
    spec.types.push_back(TokenizerSpec::TokenType::control);
  }
  return spec;
}

/// SentencePiece BPE by scores: <unk>, <s>, </s>, 256 byte tokens, then `pieces` with falling scores.
inline TokenizerSpec sentencepiece_spec(const std::vector<std::string>& pieces, bool prefix = true) {
  using Type = TokenizerSpec::TokenType;
  TokenizerSpec spec;
  spec.kind = TokenizerSpec::Kind::sentencepiece_bpe;
  spec.tokens = {"<unk>", "<s>", "</s>"};
  spec.types = {Type::unknown, Type::control, Type::control};
  for (int byte = 0; byte < 256; ++byte) {
    spec.tokens.push_back(fmt::format("<0x{:02X}>", byte));
    spec.types.push_back(Type::byte);
  }
  spec.scores.assign(spec.tokens.size(), 0);
  for (const auto& piece : pieces) {
    spec.tokens.push_back(piece);
    spec.types.push_back(Type::normal);
    spec.scores.push_back(-static_cast<double>(spec.tokens.size()));
  }
  if (prefix) spec.normalizers.push_back({.kind = NormalizerStep::Kind::prepend, .content = "▁"});
  spec.normalizers.push_back({.kind = NormalizerStep::Kind::replace, .pattern = " ", .content = "▁"});
  spec.decode_strips_space = prefix;
  spec.byte_fallback = true;
  spec.bos = 1;
  spec.eos = 2;
  spec.unk = 0;
  return spec;
}

inline std::unique_ptr<Tokenizer> make(TokenizerSpec spec) {
  auto tokenizer = make_tokenizer(std::move(spec));
  QUINTET_CHECK(tokenizer, "{}", tokenizer.error().message);
  return std::move(tokenizer).value();
}

/// The tokens' own texts.
inline std::vector<std::string> texts(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  std::vector<std::string> out;
  for (const TokenId id : ids) out.emplace_back(tokenizer.token_text(id));
  return out;
}

inline std::vector<std::string> encode_texts(const Tokenizer& tokenizer, std::string_view text,
                                             EncodeOptions options = {}) {
  return texts(tokenizer, tokenizer.encode(text, options));
}

}  // namespace quintet::test
