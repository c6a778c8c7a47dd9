// The tokenizer: special tokens, normalizer, words, model; and back.
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <unordered_set>
#include <utility>

#include "text/bpe.h"
#include "text/bpe_bytes.h"
#include "text/tokenizer_added.h"
#include "text/tokenizer_check.h"
#include "text/tokenizer_families.h"
#include "text/tokenizer_pre.h"
#include "text/tokenizer_vocab.h"
#include "text/unicode.h"
#include "text/unigram.h"

namespace quintet {
namespace {

using Kind = TokenizerSpec::Kind;
using TokenType = TokenizerSpec::TokenType;

constexpr std::string_view kSpaceMark = "\u2581";  // ▁, by which SentencePiece writes a space

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
    bool unknown_last = false;  ///< the last id is the unknown token, for fuse_unknown
  };

  TokenizerImpl(TokenizerSpec spec, Normalizer normalizer, PreTokenizer pre_tokenizer)
      : spec_(std::move(spec)), normalizer_(std::move(normalizer)), pre_tokenizer_(std::move(pre_tokenizer)) {}

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
  void put_unknown(std::string_view text, Scratch& scratch) const;

  TokenizerSpec spec_;
  Normalizer normalizer_;
  PreTokenizer pre_tokenizer_;
  StringArena bytes_;            // by id: the bytes that a token stands for (with ▁ still in it)
  StringTable by_bytes_{bytes_};  // of those that text may become: no control tokens
  std::vector<std::string> added_texts_;
  std::optional<AddedTokenFinder> added_raw_, added_normalized_;
  std::vector<uint8_t> special_;  // by id
  std::vector<TokenId> byte_tokens_;  // [256], -1: none
  std::optional<RankedMerges> ranked_;
  std::optional<ScoredMerges> scored_;
  std::optional<Unigram> unigram_;
  std::vector<std::pair<std::string_view, TokenId>> by_text_;  // those that by_bytes_ lacks, sorted, for find()
  /// By id, filled as words come: a token is not always what merging its own text gives. Any thread may write, all
  /// write the same.
  mutable std::vector<std::atomic<uint8_t>> whole_;
  bool cut_at_marks_ = false;  // a text may be cut before a ▁ that follows something else, but for
  std::vector<bool> spanned_;  // [256 x 256] places between such bytes (before it, after the ▁), which a token spans
  std::vector<TokenId> end_tokens_;
};

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

/// What a place between `before` and a ▁ with `after` behind it is called in spanned_.
size_t place_of(char before, char after) {
  return static_cast<size_t>(static_cast<uint8_t>(before)) << 8 | static_cast<uint8_t>(after);
}

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
    if (!enter_token(static_cast<TokenId>(id))) by_text_.emplace_back(spec_.tokens[id], static_cast<TokenId>(id));
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
    return by_bytes_.insert(token);
  }
  // Special tokens, and those that a byte-level vocabulary writes as plain text, are only found as added tokens. One with
  // a character that stands for no byte (padding of some files, Command R's emoji) is never made from text.
  std::optional<std::string> bytes;
  if (special_[id] == 0 && type != TokenType::user_defined) bytes = from_stand_ins(text);
  bytes_.add(bytes ? *bytes : text);
  if (!bytes || !is_mergeable(id)) return false;
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
    const TokenId other = by_bytes_.find(spec_.kind == Kind::byte_bpe ? std::string_view(bytes) : by_text_[i].first);
    if (other >= 0) return duplicate_tokens(spec_, static_cast<size_t>(other), id);
  }
  return {};
}

Status TokenizerImpl::build_merges() {
  const size_t count = spec_.tokens.size();
  if (spec_.kind == Kind::unigram) {
    std::vector<std::pair<std::string_view, TokenId>> pieces;
    for (size_t id = 0; id < count; ++id) {
      if (special_[id] == 0 && is_mergeable(id)) pieces.emplace_back(spec_.tokens[id], static_cast<TokenId>(id));
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
  std::string bytes;                             // of both parts
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
      for (const std::string& part : {std::string(pair.first), std::string(pair.second), std::string(pair.first).append(pair.second)}) {
        if (all_texts.contains(part)) continue;
        return bad_input(fmt::format("{}: merge {} ('{}') needs the token '{}', which the vocabulary does not have",
                                     spec_.origin, rank, spec_.merges[rank], part));
      }
      continue;
    }
    if (!ranked_->insert(left, right, static_cast<uint32_t>(rank), merged)) {
      return bad_input(fmt::format("{}: merge {} ('{}') is there twice", spec_.origin, rank, spec_.merges[rank]));
    }
  }
  spec_.merges = {};
  spec_.merge_left_bytes = {};
  return {};
}

void TokenizerImpl::find_end_tokens() {
  // How the families write the end of a text or of a turn.
  static constexpr std::string_view kEnds[] = {
      "</s>",          "<eos>",         "<|eos|>",      "<|endoftext|>",        "<|end_of_text|>",
      "<|eot_id|>",    "<|eom_id|>",    "<|im_end|>",   "<|end|>",              "<end_of_turn>",
      "<turn|>",       "<|EOT|>",       "<|eot|>",      "<|END_OF_TURN_TOKEN|>", "<EOS_TOKEN>",
      "<｜end▁of▁sentence｜>"};
  const auto add = [&](TokenId token) {
    if (std::find(end_tokens_.begin(), end_tokens_.end(), token) == end_tokens_.end()) end_tokens_.push_back(token);
  };
  if (spec_.eos) add(*spec_.eos);
  if (spec_.eot) add(*spec_.eot);
  for (const TokenId token : spec_.eog) add(token);
  for (const auto text : kEnds) {
    const auto token = find(text);
    if (token && special_[static_cast<size_t>(*token)] != 0) add(*token);
  }
}

std::vector<TokenId> TokenizerImpl::encode(std::string_view text, const EncodeOptions& options) const {
  Scratch scratch(pre_tokenizer_);
  scratch.out.reserve(text.size() / 4 + 2);
  if (options.add_bos && spec_.add_bos) scratch.out.push_back(*spec_.bos);
  std::string sanitized;
  if (!is_valid_utf8(text)) {
    sanitized = sanitize_utf8(text);
    text = sanitized;
  }
  scratch.stretches.clear();
  added_raw_->cut(text, options, scratch.stretches);
  for (const auto& stretch : scratch.stretches) {
    if (stretch.id >= 0) {
      scratch.out.push_back(stretch.id);
      scratch.unknown_last = false;
    } else {
      encode_raw(text.substr(stretch.begin, stretch.end - stretch.begin), stretch.begin == 0, options, scratch);
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
      encode_words(text.substr(stretch.begin, stretch.end - stretch.begin), at_start && stretch.begin == 0, scratch);
    }
  }
}

void TokenizerImpl::encode_words(std::string_view text, bool at_start, Scratch& scratch) const {
  const auto& words = scratch.cutter.cut(text, at_start);
  text = scratch.cutter.text();
  for (const WordRange word : words) {
    const std::string_view view = text.substr(word.begin, word.end - word.begin);
    scratch.unknown_last = false;
    if (!cut_at_marks_) {
      encode_word(view, scratch);
      continue;
    }
    // Where no merge crosses the place before a ▁, what lies on its sides can be looked up and merged alone.
    size_t begin = 0;
    for (size_t at = view.find(kSpaceMark); at != std::string_view::npos; at = view.find(kSpaceMark, at + 1)) {
      if (at == 0 || view.substr(0, at).ends_with(kSpaceMark)) continue;
      const size_t after = at + kSpaceMark.size();
      if (spanned_[place_of(view[at - 1], after < view.size() ? view[after] : '\0')]) continue;
      encode_word(view.substr(begin, at - begin), scratch);
      begin = at;
    }
    encode_word(view.substr(begin), scratch);
  }
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
    // What nothing can stand for is left out before merging, so that its neighbours meet, as in Hugging Face tokenizers.
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

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_tokenizer(TokenizerSpec spec) { return TokenizerImpl::build(std::move(spec)); }

}  // namespace quintet
