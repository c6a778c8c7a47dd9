// Checks of a TokenizerSpec that came from an untrusted file.
#include "text/tokenizer_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/bpe.h"
#include "text/tokenizer_limits.h"
#include "text/unicode.h"

namespace quintet {
namespace {

using Kind = TokenizerSpec::Kind;
using TokenType = TokenizerSpec::TokenType;

constexpr size_t kMaxTokenBytes = 64 << 10;
/// The time of a search for added tokens is text times longest one, and so is that of the unigram search.
/// What is there in real vocabularies is below: added tokens of up to 93 bytes (31 times ▁), pieces of up to
/// 16 characters (SentencePiece's own limit, unless it was raised).
constexpr size_t kMaxAddedBytes = 256, kMaxPieceBytes = 128;

std::string quoted(std::string_view text) {
  return fmt::format("'{}{}'", sanitize_utf8(text.substr(0, 80)), text.size() > 80 ? "..." : "");
}

Status check_id(const TokenizerSpec& spec, std::optional<TokenId> id, std::string_view field) {
  if (!id || (*id >= 0 && static_cast<size_t>(*id) < spec.tokens.size())) return {};
  return bad_input(
      fmt::format("{}: {} is {}; allowed are 0 to {}", spec.origin, field, *id, spec.tokens.size() - 1));
}

Status check_tokens(const TokenizerSpec& spec) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const std::string& token = spec.tokens[id];
    if (token.empty())
      return bad_input(fmt::format("{}: token {} is empty: the vocabulary has a hole", spec.origin, id));
    if (token.size() > kMaxTokenBytes) {
      return bad_input(fmt::format("{}: token {} has {} bytes; allowed are {}", spec.origin, id, token.size(),
                                   kMaxTokenBytes));
    }
    if (!is_valid_utf8(token)) {
      return bad_input(fmt::format("{}: token {} ({}) is not UTF-8", spec.origin, id, quoted(token)));
    }
  }
  return {};
}

Status check_added(const TokenizerSpec& spec) {
  std::unordered_map<std::string_view, TokenId> seen;
  for (const AddedToken& token : spec.added) {
    TRY(check_id(spec, token.id, "the id of an added token"));
    if (token.text != spec.tokens[static_cast<size_t>(token.id)]) {
      return bad_input(fmt::format("{}: the added token {} is {}, but {} in the vocabulary", spec.origin,
                                   token.id, quoted(token.text),
                                   quoted(spec.tokens[static_cast<size_t>(token.id)])));
    }
    if (token.text.size() > kMaxAddedBytes) {
      return bad_input(fmt::format("{}: the added token {} has {} bytes; allowed are {}", spec.origin,
                                   token.id, token.text.size(), kMaxAddedBytes));
    }
    if (!seen.emplace(token.text, token.id).second) {
      return bad_input(fmt::format("{}: the added token {} is there twice", spec.origin, quoted(token.text)));
    }
  }
  return {};
}

Status check_model(const TokenizerSpec& spec) {
  if (!spec.scores.empty() && spec.scores.size() != spec.tokens.size()) {
    return bad_input(
        fmt::format("{}: {} scores for {} tokens", spec.origin, spec.scores.size(), spec.tokens.size()));
  }
  for (size_t id = 0; id < spec.scores.size(); ++id) {
    if (!std::isfinite(spec.scores[id])) {
      return bad_input(fmt::format("{}: the score of token {} is {}", spec.origin, id, spec.scores[id]));
    }
  }
  if (spec.kind == Kind::unigram && spec.scores.empty()) {
    return bad_input(fmt::format("{}: a unigram vocabulary without scores", spec.origin));
  }
  if (spec.kind == Kind::sentencepiece_bpe && spec.scores.empty() && spec.merges.empty()) {
    return bad_input(
        fmt::format("{}: a SentencePiece vocabulary with neither scores nor merges", spec.origin));
  }
  if (!spec.merge_left_bytes.empty() && spec.merge_left_bytes.size() != spec.merges.size()) {
    return bad_input(fmt::format("{}: {} lengths of left parts for {} merges", spec.origin,
                                 spec.merge_left_bytes.size(), spec.merges.size()));
  }
  for (size_t id = 0; spec.kind == Kind::unigram && id < spec.tokens.size(); ++id) {
    if (spec.tokens[id].size() <= kMaxPieceBytes || spec.types[id] != TokenType::normal) continue;
    return bad_input(fmt::format("{}: the unigram token {} has {} bytes; allowed are {}", spec.origin, id,
                                 spec.tokens[id].size(), kMaxPieceBytes));
  }
  if (spec.kind == Kind::unigram && !spec.merges.empty()) {
    return bad_input(fmt::format("{}: a unigram vocabulary with merges", spec.origin));
  }
  if (spec.kind == Kind::byte_bpe) {
    size_t byte_levels = 0;
    for (const auto& step : spec.pre_tokenizers)
      byte_levels += step.kind == PreTokenizerStep::Kind::byte_level;
    if (byte_levels != 1) {
      return bad_input(
          fmt::format("{}: byte-level BPE with {} byte-level steps; it needs one", spec.origin, byte_levels));
    }
  }
  return {};
}

}  // namespace

Status check_spec(TokenizerSpec& spec) {
  if (spec.tokens.empty()) return bad_input(fmt::format("{}: the vocabulary is empty", spec.origin));
  static_assert(kMaxVocabulary <= ScoredMerges::kMaxTokens);
  if (spec.tokens.size() > kMaxVocabulary)
    return bad_input(fmt::format("{}: a vocabulary of {} tokens; allowed are {}", spec.origin,
                                 spec.tokens.size(), kMaxVocabulary));
  if (spec.merges.size() > kMaxMerges)
    return bad_input(
        fmt::format("{}: {} merges; allowed are {}", spec.origin, spec.merges.size(), kMaxMerges));
  TRY(check_tokens(spec));
  if (spec.types.empty()) spec.types.assign(spec.tokens.size(), TokenType::normal);
  if (spec.types.size() != spec.tokens.size()) {
    return bad_input(
        fmt::format("{}: {} token types for {} tokens", spec.origin, spec.types.size(), spec.tokens.size()));
  }
  TRY(check_id(spec, spec.bos, "the BOS id"));
  TRY(check_id(spec, spec.eos, "the EOS id"));
  TRY(check_id(spec, spec.unk, "the unknown token's id"));
  TRY(check_id(spec, spec.pad, "the padding id"));
  TRY(check_id(spec, spec.eot, "the EOT id"));
  for (const TokenId id : spec.eog) TRY(check_id(spec, id, "an id that ends a generation"));
  if (spec.add_bos && !spec.bos)
    return bad_input(fmt::format("{}: BOS is to be added, but there is none", spec.origin));
  if (spec.add_eos && !spec.eos)
    return bad_input(fmt::format("{}: EOS is to be added, but there is none", spec.origin));
  if (spec.emit_unknown && !spec.unk) {
    return bad_input(
        fmt::format("{}: unknown text is to become the unknown token, but there is none", spec.origin));
  }
  TRY(check_model(spec));
  TRY(check_added(spec));
  std::vector<bool> added(spec.tokens.size());
  for (const AddedToken& token : spec.added) added[static_cast<size_t>(token.id)] = true;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const TokenType type = spec.types[id];
    if (added[id] || (type != TokenType::control && type != TokenType::user_defined)) continue;
    if (spec.tokens[id].size() > kMaxAddedBytes) {
      return bad_input(fmt::format("{}: token {} is a {} one of {} bytes; allowed are {}", spec.origin, id,
                                   type == TokenType::control ? "control" : "user-defined",
                                   spec.tokens[id].size(), kMaxAddedBytes));
    }
    spec.added.push_back(
        {.id = static_cast<TokenId>(id), .text = spec.tokens[id], .special = type == TokenType::control});
  }
  return {};
}

Error duplicate_tokens(const TokenizerSpec& spec, size_t first, size_t second) {
  return bad_input(fmt::format("{}: tokens {} and {} are both {}", spec.origin, std::min(first, second),
                               std::max(first, second), quoted(spec.tokens[first])));
}

Result<std::pair<std::string_view, std::string_view>> split_merge(const TokenizerSpec& spec, size_t rank) {
  const std::string_view merge = spec.merges[rank];
  // A part may only contain a space where its length is given; byte-level and SentencePiece tokens contain
  // none.
  const size_t space = spec.merge_left_bytes.empty() ? merge.find(' ', 1) : spec.merge_left_bytes[rank];
  if (space == 0 || space == std::string_view::npos || space + 1 >= merge.size()) {
    return bad_input(fmt::format("{}: merge {} is {}; it must be two tokens with a space between",
                                 spec.origin, rank, quoted(merge)));
  }
  return std::pair(merge.substr(0, space), merge.substr(space + 1));
}

}  // namespace quintet
