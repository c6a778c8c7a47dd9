// The ways through a tokenizer: text -> added tokens, normalizer, words, model -> ids; and back.
#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "text/bpe_bytes.h"
#include "text/tokenizer_impl.h"
#include "text/unicode.h"

namespace quintet {

using Kind = TokenizerSpec::Kind;

std::vector<TokenId> TokenizerImpl::encode(std::string_view text, const EncodeOptions& options) const {
  Scratch scratch(pre_tokenizer_);
  scratch.max_tokens = options.max_tokens;
  scratch.out.reserve(std::min(text.size() / 4, options.max_tokens) + 2);
  if (options.add_bos && spec_.add_bos) scratch.out.push_back(*spec_.bos);
  std::string sanitized;
  if (!is_valid_utf8(text)) {
    sanitized = sanitize_utf8(text);
    text = sanitized;
  }
  scratch.stretches.clear();
  added_raw_->cut(text, options, scratch.stretches);
  for (const auto& stretch : scratch.stretches) {
    if (scratch.full()) break;
    if (stretch.id >= 0) {
      scratch.out.push_back(stretch.id);
      scratch.unknown_last = false;
    } else {
      encode_raw(text.substr(stretch.begin, stretch.end - stretch.begin), stretch.begin == 0, options,
                 scratch);
    }
  }
  if (options.add_bos && spec_.add_eos) scratch.out.push_back(*spec_.eos);
  return std::move(scratch.out);
}

void TokenizerImpl::encode_raw(std::string_view text, bool at_start, const EncodeOptions& options,
                               Scratch& scratch) const {
  std::string normalized;
  if (!normalizer_.empty()) {
    normalized = normalizer_.run(text);
    text = normalized;
  }
  if (added_normalized_->empty()) return encode_words(text, at_start, scratch);
  scratch.inner.clear();
  // Offsets of the text as it was given do not hold for the normalized one.
  added_normalized_->cut(text, {.parse_special = options.parse_special}, scratch.inner);
  for (const auto& stretch : scratch.inner) {
    if (stretch.id >= 0) {
      scratch.out.push_back(stretch.id);
      scratch.unknown_last = false;
    } else {
      encode_words(text.substr(stretch.begin, stretch.end - stretch.begin), at_start && stretch.begin == 0,
                   scratch);
    }
  }
}

void TokenizerImpl::encode_words(std::string_view text, bool at_start, Scratch& scratch) const {
  const auto& words = scratch.cutter.cut(text, at_start);
  text = scratch.cutter.text();
  for (const WordRange word : words) {
    const std::string_view view = text.substr(word.begin, word.end - word.begin);
    scratch.unknown_last = false;
    if (!fits(view, scratch)) return;
    if (!cut_at_marks_) {
      encode_word(view, scratch);
      continue;
    }
    // Where no merge crosses the place before a ▁, what lies on its sides can be looked up and merged alone.
    size_t begin = 0;
    for (size_t at = view.find(kSpaceMark); at != std::string_view::npos;
         at = view.find(kSpaceMark, at + 1)) {
      if (at == 0 || view.substr(0, at).ends_with(kSpaceMark)) continue;
      const size_t after = at + kSpaceMark.size();
      if (spanned_[place_of(view[at - 1], after < view.size() ? view[after] : '\0')]) continue;
      if (scratch.full()) return;
      encode_word(view.substr(begin, at - begin), scratch);
      begin = at;
    }
    encode_word(view.substr(begin), scratch);
  }
}

size_t TokenizerImpl::least_tokens(std::string_view word) const {
  const auto has_token = [&](char c) { return byte_tokens_[static_cast<uint8_t>(c)] >= 0; };
  if (spec_.kind == Kind::byte_bpe)
    return static_cast<size_t>(std::count_if(word.begin(), word.end(), has_token)) / longest_bytes_;
  // Elsewhere a text of any length may become one unknown token, or none.
  return spec_.byte_fallback && std::all_of(word.begin(), word.end(), has_token)
             ? word.size() / longest_bytes_
             : 0;
}

/// False where the text is known to have too many tokens with this word; then `out` says so.
bool TokenizerImpl::fits(std::string_view word, Scratch& scratch) const {
  if (scratch.max_tokens == EncodeOptions::kAll) return true;
  if (scratch.full()) return false;
  // Only a word that could be too long by itself is worth the look.
  const size_t room = scratch.max_tokens - scratch.out.size();
  if (word.size() / longest_bytes_ <= room || least_tokens(word) <= room) return true;
  scratch.out.resize(scratch.max_tokens + 1);
  return false;
}

void TokenizerImpl::encode_word(std::string_view word, Scratch& scratch) const {
  if (unigram_) {
    scratch.pieces.clear();
    unigram_->segment(word, scratch.pieces);
    for (const auto& piece : scratch.pieces) {
      if (piece.id >= 0) {
        scratch.out.push_back(piece.id);
        scratch.unknown_last = false;
      } else {
        put_unknown(word.substr(piece.begin, piece.end - piece.begin), scratch);
      }
    }
    return;
  }
  const TokenId token = by_bytes_.find(word);
  if (token < 0) return encode_word_as_symbols(word, scratch);
  auto& whole = whole_[static_cast<size_t>(token)];
  if (spec_.ignore_merges || whole.load(std::memory_order_relaxed) == kIsToken) {
    scratch.out.push_back(token);
    scratch.unknown_last = false;
    return;
  }
  const size_t before = scratch.out.size();
  encode_word_as_symbols(word, scratch);
  const bool is_token = scratch.out.size() == before + 1 && scratch.out.back() == token;
  whole.store(is_token ? kIsToken : kIsNot, std::memory_order_relaxed);
}

void TokenizerImpl::encode_word_as_symbols(std::string_view word, Scratch& scratch) const {
  auto& symbols = scratch.symbols;
  symbols.clear();
  for (size_t at = 0; at < word.size();) {
    Symbol symbol;
    symbol.begin = static_cast<uint32_t>(at);
    symbol.chars = 1;
    if (spec_.kind == Kind::byte_bpe) {
      symbol.bytes = 1;
      symbol.id = byte_tokens_[static_cast<uint8_t>(word[at])];
    } else {
      symbol.bytes = decode_utf8(word, at).bytes;
      symbol.id = by_bytes_.find(word.substr(at, symbol.bytes));
    }
    at += symbol.bytes;
    // What nothing can stand for is left out before merging, so that its neighbours meet, as in Hugging Face
    // tokenizers.
    if (symbol.id < 0 && ranked_ && !spec_.emit_unknown && !spec_.byte_fallback) continue;
    symbols.push_back(symbol);
  }
  if (ranked_) {
    merge_word(*ranked_, word, symbols);
  } else {
    merge_word(*scored_, word, symbols);
  }
  for (const Symbol& symbol : symbols) {
    if (symbol.id >= 0) {
      scratch.out.push_back(symbol.id);
      scratch.unknown_last = false;
    } else {
      put_unknown(word.substr(symbol.begin, symbol.bytes), scratch);
    }
  }
}

void TokenizerImpl::put_unknown(std::string_view text, Scratch& scratch) const {
  if (spec_.byte_fallback) {
    const bool covered = std::all_of(text.begin(), text.end(),
                                     [&](char c) { return byte_tokens_[static_cast<uint8_t>(c)] >= 0; });
    if (covered) {
      for (const char c : text) scratch.out.push_back(byte_tokens_[static_cast<uint8_t>(c)]);
      scratch.unknown_last = false;
      return;
    }
  }
  if (!spec_.emit_unknown) return;
  if (!(spec_.fuse_unknown && scratch.unknown_last)) scratch.out.push_back(*spec_.unk);
  scratch.unknown_last = true;
}

std::string TokenizerImpl::piece(TokenId token, bool special) const {
  if (token < 0 || token >= vocabulary()) return {};
  const auto id = static_cast<size_t>(token);
  if (special_[id] != 0 && !special) return {};
  const std::string_view bytes = bytes_[id];
  if (spec_.kind == Kind::byte_bpe) return std::string(bytes);
  std::string out;
  for (size_t at = 0; at < bytes.size();) {
    if (bytes.substr(at).starts_with(kSpaceMark)) {
      out += ' ';
      at += kSpaceMark.size();
    } else {
      out += bytes[at++];
    }
  }
  return out;
}

std::string TokenizerImpl::decode(const std::vector<TokenId>& tokens, bool special) const {
  std::string out;
  bool first = spec_.decode_strips_space;
  for (const TokenId token : tokens) {
    std::string text = piece(token, special);
    if (first && !text.empty()) {
      if (text[0] == ' ') text.erase(0, 1);
      first = false;
    }
    out += text;
  }
  return out;
}

std::string_view TokenizerImpl::token_text(TokenId token) const {
  if (token < 0 || token >= vocabulary()) return {};
  return spec_.tokens[static_cast<size_t>(token)];
}

std::optional<TokenId> TokenizerImpl::find(std::string_view token_text) const {
  const auto other = std::lower_bound(by_text_.begin(), by_text_.end(), std::pair(token_text, TokenId{-1}));
  if (other != by_text_.end() && other->first == token_text) return other->second;
  std::optional<std::string> bytes;
  if (spec_.kind == Kind::byte_bpe) {
    bytes = from_stand_ins(token_text);
    if (!bytes) return std::nullopt;
  }
  const TokenId token = by_bytes_.find(bytes ? std::string_view(*bytes) : token_text);
  return token >= 0 ? std::optional(token) : std::nullopt;
}

bool TokenizerImpl::is_special(TokenId token) const {
  return token >= 0 && token < vocabulary() && special_[static_cast<size_t>(token)] != 0;
}

}  // namespace quintet
