// Leftmost-longest search with the flags of Hugging Face's added tokens.
#include "text/tokenizer_added.h"

#include <algorithm>
#include <utility>

#include "text/unicode.h"

namespace quintet {
namespace {

/// The character that ends before `at` > 0.
size_t previous_character(std::string_view text, size_t at) {
  do {
    --at;
  } while ((static_cast<uint8_t>(text[at]) & 0xC0) == 0x80);
  return at;
}

std::vector<std::pair<std::string_view, TokenId>> entries(const std::vector<AddedToken>& tokens,
                                                          const std::vector<std::string_view>& texts,
                                                          bool normalized) {
  std::vector<std::pair<std::string_view, TokenId>> out;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].normalized == normalized) out.emplace_back(texts[i], static_cast<TokenId>(i));
  }
  return out;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(const std::vector<AddedToken>& tokens, std::vector<std::string_view> texts,
                                   bool normalized)
    : tokens_(tokens), index_(entries(tokens, texts, normalized)) {}

void AddedTokenFinder::cut(std::string_view text, const EncodeOptions& options,
                           std::vector<Stretch>& out) const {
  size_t piece = 0;
  const auto looks_special_alone = [&](size_t at) {
    return std::binary_search(options.not_special_at.begin(), options.not_special_at.end(), at);
  };
  const auto add_text = [&](size_t end) {
    if (end > piece) out.push_back({-1, piece, end});
  };
  for (size_t at = 0; !index_.empty() && at < text.size();) {
    if (!index_.begins(static_cast<uint8_t>(text[at]))) {
      ++at;
      continue;
    }
    size_t length = 0;
    TokenId found = -1;
    index_.each_prefix(text.substr(at), [&](size_t bytes, TokenId index) {
      length = bytes;
      found = index;
    });
    if (found < 0) {
      ++at;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<size_t>(found)];
    size_t begin = at, end = at + length;
    at = end;  // also where it is passed over: nothing is searched inside of it
    if (token.special && (!options.parse_special || looks_special_alone(begin))) continue;
    if (token.single_word) {
      const bool word_before =
          begin > 0 && is_word_character(decode_utf8(text, previous_character(text, begin)).code_point);
      const bool word_after = end < text.size() && is_word_character(decode_utf8(text, end).code_point);
      if (word_before || word_after) continue;
    }
    if (token.lstrip) {
      while (begin > piece) {
        const size_t previous = previous_character(text, begin);
        if (!is_unicode_space(decode_utf8(text, previous).code_point)) break;
        begin = previous;
      }
    }
    if (token.rstrip) {
      while (end < text.size()) {
        const Utf8Char character = decode_utf8(text, end);
        if (!is_unicode_space(character.code_point)) break;
        end += character.bytes;
      }
    }
    add_text(begin);
    out.push_back({token.id, begin, end});
    piece = end;
    at = std::max(at, end);
  }
  add_text(text.size());
}

}  // namespace quintet
