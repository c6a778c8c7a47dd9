// Building a tokenizer's tables from its checked description.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "text/bpe_bytes.h"
#include "text/tokenizer_check.h"
#include "text/tokenizer_families.h"
#include "text/tokenizer_impl.h"

namespace quintet {

using Kind = TokenizerSpec::Kind;
using TokenType = TokenizerSpec::TokenType;

namespace {

/// The byte of a token "<0x0A>", or -1.
int byte_of_fallback_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    int digit = -1;
    if (c >= '0' && c <= '9') digit = c - '0';
    if (c >= 'A' && c <= 'F') digit = c - 'A' + 10;
    if (digit < 0) return -1;
    value = value * 16 + digit;
  }
  return value;
}

}  // namespace

bool TokenizerImpl::is_mergeable(size_t id) const {
  return spec_.types[id] == TokenType::normal || spec_.types[id] == TokenType::user_defined ||
         spec_.types[id] == TokenType::unused;
}

void TokenizerImpl::note_inner_marks(std::string_view text) {
  for (size_t at = text.find(kSpaceMark); at != std::string_view::npos; at = text.find(kSpaceMark, at + 1)) {
    if (at == 0 || text.substr(0, at).ends_with(kSpaceMark)) continue;
    const size_t after = at + kSpaceMark.size();
    if (after < text.size()) {
      spanned_[place_of(text[at - 1], text[after])] = true;
      continue;
    }
    for (int byte = 0; byte < 256; ++byte) spanned_[place_of(text[at - 1], static_cast<char>(byte))] = true;
  }
}

Result<std::unique_ptr<Tokenizer>> TokenizerImpl::build(TokenizerSpec spec) {
  TRY(apply_family(spec));
  TRY(check_spec(spec));
  TRY_ASSIGN(Normalizer normalizer, Normalizer::compile(spec));
  TRY_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::compile(spec));
  std::unique_ptr<TokenizerImpl> tokenizer(
      new TokenizerImpl(std::move(spec), std::move(normalizer), std::move(pre_tokenizer)));
  TRY(tokenizer->build_tables());
  TRY(tokenizer->build_merges());
  tokenizer->find_end_tokens();
  return std::unique_ptr<Tokenizer>(std::move(tokenizer));
}

Status TokenizerImpl::build_tables() {
  const size_t count = spec_.tokens.size();
  size_t total_bytes = 0;
  for (const auto& token : spec_.tokens) total_bytes += token.size();
  bytes_.reserve(count, total_bytes);
  by_bytes_.reserve(count);
  byte_tokens_.assign(256, -1);
  cut_at_marks_ = spec_.kind == Kind::sentencepiece_bpe && !spec_.ignore_merges;
  spanned_.assign(256 * 256, false);
  special_.assign(count, 0);
  whole_ = std::vector<std::atomic<uint8_t>>(count);
  for (const AddedToken& token : spec_.added) special_[static_cast<size_t>(token.id)] = token.special;

  for (size_t id = 0; id < count; ++id) {
    if (!enter_token(static_cast<TokenId>(id)))
      by_text_.emplace_back(spec_.tokens[id], static_cast<TokenId>(id));
  }
  std::sort(by_text_.begin(), by_text_.end());
  TRY(check_unique());

  added_texts_.reserve(spec_.added.size());
  std::vector<std::string_view> texts;
  for (const AddedToken& token : spec_.added) {
    added_texts_.push_back(token.normalized ? normalizer_.run(token.text) : token.text);
  }
  for (const auto& text : added_texts_) texts.emplace_back(text);
  added_raw_.emplace(spec_.added, texts, false);
  added_normalized_.emplace(spec_.added, texts, true);
  return {};
}

bool TokenizerImpl::enter_token(TokenId token) {
  const auto id = static_cast<size_t>(token);
  const std::string& text = spec_.tokens[id];
  const TokenType type = spec_.types[id];
  if (type == TokenType::control || type == TokenType::unknown) special_[id] = 1;
  const int fallback = spec_.byte_fallback ? byte_of_fallback_token(text) : -1;
  if (fallback >= 0 && type != TokenType::control) {
    const char byte = static_cast<char>(fallback);
    bytes_.add({&byte, 1});
    byte_tokens_[static_cast<size_t>(fallback)] = token;
    return false;
  }
  if (spec_.kind != Kind::byte_bpe) {
    bytes_.add(text);
    if (special_[id] != 0 || !is_mergeable(id)) return false;
    note_inner_marks(text);
    longest_bytes_ = std::max(longest_bytes_, text.size());
    return by_bytes_.insert(token);
  }
  // Special tokens, and those that a byte-level vocabulary writes as plain text, are only found as added
  // tokens. One with a character that stands for no byte (padding of some files, Command R's emoji) is never
  // made from text.
  std::optional<std::string> bytes;
  if (special_[id] == 0 && type != TokenType::user_defined) bytes = from_stand_ins(text);
  bytes_.add(bytes ? *bytes : text);
  if (!bytes || !is_mergeable(id)) return false;
  longest_bytes_ = std::max(longest_bytes_, bytes->size());
  if (bytes->size() == 1) byte_tokens_[static_cast<uint8_t>((*bytes)[0])] = token;
  return by_bytes_.insert(token);
}

Status TokenizerImpl::check_unique() const {
  // A token that by_bytes_ did not take since it had the text already is in by_text_, too.
  for (size_t i = 0; i < by_text_.size(); ++i) {
    const auto id = static_cast<size_t>(by_text_[i].second);
    if (i > 0 && by_text_[i - 1].first == by_text_[i].first) {
      return duplicate_tokens(spec_, static_cast<size_t>(by_text_[i - 1].second), id);
    }
    std::string bytes;
    if (spec_.kind == Kind::byte_bpe && !append_from_stand_ins(by_text_[i].first, bytes)) continue;
    const TokenId other =
        by_bytes_.find(spec_.kind == Kind::byte_bpe ? std::string_view(bytes) : by_text_[i].first);
    if (other >= 0) return duplicate_tokens(spec_, static_cast<size_t>(other), id);
  }
  return {};
}

Status TokenizerImpl::build_merges() {
  const size_t count = spec_.tokens.size();
  if (spec_.kind == Kind::unigram) {
    std::vector<std::pair<std::string_view, TokenId>> pieces;
    for (size_t id = 0; id < count; ++id) {
      if (special_[id] == 0 && is_mergeable(id))
        pieces.emplace_back(spec_.tokens[id], static_cast<TokenId>(id));
    }
    unigram_.emplace(std::move(pieces), spec_.scores);
    return {};
  }
  if (spec_.kind == Kind::sentencepiece_bpe && spec_.merges.empty() && !spec_.scores.empty()) {
    std::vector<bool> mergeable(count);
    size_t longest = 0;
    for (size_t id = 0; id < count; ++id) {
      mergeable[id] = special_[id] == 0 && is_mergeable(id);
      if (mergeable[id]) longest = std::max(longest, spec_.tokens[id].size());
    }
    scored_.emplace(by_bytes_, spec_.scores, mergeable, longest);
    return {};
  }
  ranked_.emplace();
  ranked_->reserve(spec_.merges.size());
  std::string bytes;                               // of both parts
  std::unordered_set<std::string_view> all_texts;  // filled where a lookup fails
  for (size_t rank = 0; rank < spec_.merges.size(); ++rank) {
    TRY_ASSIGN(const auto pair, split_merge(spec_, rank));
    bytes.clear();
    size_t left_bytes = pair.first.size();
    bool known = true;
    if (spec_.kind == Kind::byte_bpe) {
      known = append_from_stand_ins(pair.first, bytes);
      left_bytes = bytes.size();
      known = known && append_from_stand_ins(pair.second, bytes);
    } else {
      bytes.append(pair.first).append(pair.second);
    }
    const std::string_view whole = bytes;
    const TokenId left = known ? by_bytes_.find(whole.substr(0, left_bytes)) : -1;
    const TokenId right = known ? by_bytes_.find(whole.substr(left_bytes)) : -1;
    const TokenId merged = known ? by_bytes_.find(whole) : -1;
    if (left < 0 || right < 0 || merged < 0) {
      if (all_texts.empty()) all_texts.insert(spec_.tokens.begin(), spec_.tokens.end());
      // Merges that lead to special tokens or from them are passed over: text never becomes one.
      for (const std::string& part :
           {std::string(pair.first), std::string(pair.second), std::string(pair.first).append(pair.second)}) {
        if (all_texts.contains(part)) continue;
        return bad_input(
            fmt::format("{}: merge {} ('{}') needs the token '{}', which the vocabulary does not have",
                        spec_.origin, rank, spec_.merges[rank], part));
      }
      continue;
    }
    if (!ranked_->insert(left, right, static_cast<uint32_t>(rank), merged)) {
      return bad_input(
          fmt::format("{}: merge {} ('{}') is there twice", spec_.origin, rank, spec_.merges[rank]));
    }
  }
  spec_.merges = {};
  spec_.merge_left_bytes = {};
  return {};
}

void TokenizerImpl::find_end_tokens() {
  // How the families write the end of a text or of a turn.
  static constexpr std::string_view kEnds[] = {"</s>",
                                               "<eos>",
                                               "<|eos|>",
                                               "<|endoftext|>",
                                               "<|end_of_text|>",
                                               "<|eot_id|>",
                                               "<|eom_id|>",
                                               "<|im_end|>",
                                               "<|end|>",
                                               "<end_of_turn>",
                                               "<turn|>",
                                               "<|EOT|>",
                                               "<|eot|>",
                                               "<|END_OF_TURN_TOKEN|>",
                                               "<EOS_TOKEN>",
                                               "<｜end▁of▁sentence｜>"};
  const auto add = [&](TokenId token) {
    if (std::find(end_tokens_.begin(), end_tokens_.end(), token) == end_tokens_.end())
      end_tokens_.push_back(token);
  };
  if (spec_.eos) add(*spec_.eos);
  if (spec_.eot) add(*spec_.eot);
  for (const TokenId token : spec_.eog) add(token);
  for (const auto text : kEnds) {
    const auto token = find(text);
    if (token && special_[static_cast<size_t>(*token)] != 0) add(*token);
  }
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(TokenizerSpec spec) {
  return TokenizerImpl::build(std::move(spec));
}

}  // namespace quintet
