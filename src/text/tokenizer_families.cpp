// The table of known pre-tokenizers: the patterns are those of the models' own published tokenizer.json
// files.
#include "text/tokenizer_families.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace quintet {
namespace {

constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kO200k =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kThreeDigits = R"([0-9][0-9][0-9])";
constexpr std::string_view kNewline = R"([\r\n])";
// Letters with case as the file of DeepSeek LLM lists them (without the small Armenian ones). As escapes,
// since several have twins that look the same (U+1F7D and U+03CE).
constexpr std::string_view kDeepSeekLetters =
    "\\s?[A-Za-z\u00B5\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u01BA\u01BC-\u01BF\u01C4-\u0293\u0295-\u02AF\u0370-"
    "\u0373"
    "\u0376\u0377\u037B-\u037D\u037F\u0386\u0388-\u038A\u038C\u038E-\u03A1\u03A3-\u03F5\u03F7-\u0481\u048A-"
    "\u052F"
    "\u0531-\u0556\u10A0-\u10C5\u13A0-\u13F5\u13F8-\u13FD\u1C90-\u1CBA\u1CBD-\u1CBF\u1D00-\u1D2B\u1D6B-\u1D77"
    "\u1D79-\u1D9A\u1E00-\u1F15\u1F18-\u1F1D\u1F20-\u1F45\u1F48-\u1F4D\u1F50-\u1F57\u1F59\u1F5B\u1F5D\u1F5F-"
    "\u1F7D"
    "\u1F80-\u1FB4\u1FB6-\u1FBC\u1FBE\u1FC2-\u1FC4\u1FC6-\u1FCC\u1FD0-\u1FD3\u1FD6-\u1FDB\u1FE0-\u1FEC\u1FF2-"
    "\u1FF4"
    "\u1FF6-\u1FFC\u2102\u2107\u210A-\u2113\u2115\u2119-\u211D\u2124\u2126\u2128\u212A-\u212D\u212F-"
    "\u2134\u2139"
    "\u213C-\u213F\u2145-\u2149\u214E\u2183\u2184\u2C00-\u2C7B\u2C7E-\u2CE4\u2CEB-\u2CEE\u2CF2\u2CF3\uA640-"
    "\uA66D"
    "\uA680-\uA69B\uA722-\uA76F\uA771-\uA787\uA78B-\uA78E\uAB70-\uABBF\uFB00-\uFB06\uFB13-\uFB17\uFF21-\uFF3A"
    "\uFF41-\uFF5A\U00010400-\U0001044F\U000104B0-\U000104D3\U000104D8-\U000104FB\U00010C80-\U00010CB2"
    "\U00010CC0-\U00010CF2\U000118A0-\U000118DF\U0001E900-\U0001E943]+";
constexpr std::string_view kDeepSeekSigns =
    "\\s?[!-/:-~\uFF01-\uFF0F\uFF1A-\uFF5E\u2018-\u201F\u3000-\u3002]+";
constexpr std::string_view kTrailingSpace = R"(\s+$)";
constexpr std::string_view kDeepSeekAsian = "[\u4E00-\u9FA5\u0800-\u4E00\uAC00-\uD7FF]+";
constexpr std::string_view kSpaceLetters = R"(\s?\p{L}+)";
constexpr std::string_view kSpacePunctuation = R"(\s?\p{P}+)";
constexpr std::string_view kDigitsUpTo3 = R"(\p{N}{1,3})";
constexpr std::string_view kDeepSeek3Asian = "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kLinearPatterns[] = {
    kLlama3,      kQwen2,           kQwen35,        kO200k,         kTekken,       kThreeDigits,
    kNewline,     kDeepSeekLetters, kDeepSeekSigns, kDeepSeekAsian, kSpaceLetters, kSpacePunctuation,
    kDigitsUpTo3, kDeepSeek3Asian,  kDeepSeek3};

using Steps = std::vector<PreTokenizerStep>;
using Kind = PreTokenizerStep::Kind;
using Behavior = PreTokenizerStep::Behavior;

PreTokenizerStep cut(std::string_view pattern) {
  return {.kind = Kind::split, .pattern = std::string(pattern)};
}
PreTokenizerStep digits(bool individual) { return {.kind = Kind::digits, .individual = individual}; }
PreTokenizerStep bytes(bool gpt2_pattern) { return {.kind = Kind::byte_level, .use_regex = gpt2_pattern}; }

Steps gpt2() { return {bytes(true)}; }
Steps digits_gpt2() { return {digits(true), bytes(true)}; }
Steps llama3() { return {cut(kLlama3), bytes(false)}; }
Steps qwen2() { return {cut(kQwen2), bytes(false)}; }
Steps qwen35() { return {cut(kQwen35), bytes(false)}; }
Steps o200k() { return {cut(kO200k), bytes(false)}; }
Steps tekken() { return {cut(kTekken), bytes(false)}; }
Steps falcon() {
  return {{.kind = Kind::punctuation, .behavior = Behavior::contiguous},
          bytes(true),
          digits(false),
          cut(kThreeDigits)};
}
Steps deepseek_llm() {
  return {cut(kNewline),       cut(kDeepSeekLetters), cut(kDeepSeekSigns), cut(kTrailingSpace),
          cut(kDeepSeekAsian), digits(true),          bytes(false)};
}
Steps deepseek_coder() {
  return {cut(kNewline),       cut(kSpaceLetters), cut(kSpacePunctuation),
          cut(kDeepSeekAsian), digits(true),       bytes(false)};
}
Steps deepseek3() { return {cut(kDigitsUpTo3), cut(kDeepSeek3Asian), cut(kDeepSeek3), bytes(false)}; }

struct Family {
  std::string_view name;
  Steps (*steps)();
  bool nfc = false;
  bool ignore_merges = false;
};

// Of families with the same steps, the name that is written into new files comes first.
constexpr Family kFamilies[] = {
    {"gpt-2", gpt2},
    {"gpt2", gpt2},
    {"phi-2", gpt2},
    {"gpt-neox", gpt2, true},
    {"mpt", gpt2, true},
    {"olmo", gpt2, true},
    {"smollm", digits_gpt2},
    {"starcoder", digits_gpt2},
    {"refact", digits_gpt2},
    {"command-r", digits_gpt2, true},
    {"falcon", falcon},
    {"llama-bpe", llama3, false, true},
    {"llama3", llama3, false, true},
    {"llama-v3", llama3, false, true},
    {"falcon3", llama3, false, true},
    {"dbrx", llama3},
    {"qwen2", qwen2, true},
    {"deepseek-r1-qwen", qwen2, true},
    {"stablelm2", qwen2},
    {"qwen35", qwen35},
    {"gpt-4o", o200k},
    {"tekken", tekken, false, true},
    {"deepseek-llm", deepseek_llm},
    {"deepseek-coder", deepseek_coder},
    {"deepseek-v3", deepseek3},
};

}  // namespace

Status apply_family(TokenizerSpec& spec) {
  if (spec.pre_tokenizer.empty()) return {};
  std::string known;
  for (const Family& family : kFamilies) {
    if (family.name != spec.pre_tokenizer) {
      known += known.empty() ? "" : ", ";
      known += family.name;
      continue;
    }
    Steps steps = family.steps();
    spec.pre_tokenizers.insert(spec.pre_tokenizers.begin(), std::make_move_iterator(steps.begin()),
                               std::make_move_iterator(steps.end()));
    if (family.nfc)
      spec.normalizers.insert(spec.normalizers.begin(), NormalizerStep{.kind = NormalizerStep::Kind::nfc});
    spec.ignore_merges = spec.ignore_merges || family.ignore_merges;
    spec.pre_tokenizer.clear();
    return {};
  }
  return bad_input(fmt::format("{}: the pre-tokenizer '{}' is not known; known are {}", spec.origin,
                               spec.pre_tokenizer.substr(0, 100), known));
}

namespace {

bool same(const PreTokenizerStep& a, const PreTokenizerStep& b) {
  return a.kind == b.kind && a.pattern == b.pattern && a.regex == b.regex && a.behavior == b.behavior &&
         a.invert == b.invert && a.individual == b.individual && a.add_prefix_space == b.add_prefix_space &&
         a.use_regex == b.use_regex && a.prepend == b.prepend && a.split_words == b.split_words;
}

}  // namespace

std::string_view family_of(const TokenizerSpec& spec) {
  const bool nfc = spec.normalizers.size() == 1 && spec.normalizers[0].kind == NormalizerStep::Kind::nfc;
  if (!nfc && !spec.normalizers.empty()) return {};
  for (const Family& family : kFamilies) {
    const Steps steps = family.steps();
    if (nfc == family.nfc && spec.ignore_merges == family.ignore_merges &&
        std::equal(steps.begin(), steps.end(), spec.pre_tokenizers.begin(), spec.pre_tokenizers.end(), same))
      return family.name;
  }
  return {};
}

bool is_known_linear_pattern(std::string_view pattern) {
  for (const auto known : kLinearPatterns) {
    if (pattern == known) return true;
  }
  return false;
}

}  // namespace quintet
