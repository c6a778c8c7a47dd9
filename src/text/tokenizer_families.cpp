// The table of known pre-tokenizers: the patterns are those of the models' own published tokenizer.json files.
#include "text/tokenizer_families.h"

#include <fmt/format.h>

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
// Letters with case, as the file of DeepSeek LLM lists them (without the small Armenian ones).
constexpr std::string_view kDeepSeekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr std::string_view kDeepSeekSigns = R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)";
constexpr std::string_view kTrailingSpace = R"(\s+$)";
constexpr std::string_view kDeepSeekAsian = R"([一-龥ࠀ-一가-퟿]+)";
constexpr std::string_view kSpaceLetters = R"(\s?\p{L}+)";
constexpr std::string_view kSpacePunctuation = R"(\s?\p{P}+)";
constexpr std::string_view kDigitsUpTo3 = R"(\p{N}{1,3})";
constexpr std::string_view kDeepSeek3Asian = R"([一-龥぀-ゟ゠-ヿ]+)";
constexpr std::string_view kDeepSeek3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

constexpr std::string_view kLinearPatterns[] = {
    kLlama3,        kQwen2,        kQwen35,           kO200k,       kTekken,         kThreeDigits, kNewline, kDeepSeekLetters,
    kDeepSeekSigns, kDeepSeekAsian, kSpaceLetters, kSpacePunctuation, kDigitsUpTo3, kDeepSeek3Asian, kDeepSeek3};

using Steps = std::vector<PreTokenizerStep>;
using Kind = PreTokenizerStep::Kind;
using Behavior = PreTokenizerStep::Behavior;

PreTokenizerStep cut(std::string_view pattern) { return {.kind = Kind::split, .pattern = std::string(pattern)}; }
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
  return {{.kind = Kind::punctuation, .behavior = Behavior::contiguous}, bytes(true), digits(false), cut(kThreeDigits)};
}
Steps deepseek_llm() {
  return {cut(kNewline),       cut(kDeepSeekLetters), cut(kDeepSeekSigns), cut(kTrailingSpace),
          cut(kDeepSeekAsian), digits(true),          bytes(false)};
}
Steps deepseek_coder() {
  return {cut(kNewline), cut(kSpaceLetters), cut(kSpacePunctuation), cut(kDeepSeekAsian), digits(true), bytes(false)};
}
Steps deepseek3() { return {cut(kDigitsUpTo3), cut(kDeepSeek3Asian), cut(kDeepSeek3), bytes(false)}; }

struct Family {
  std::string_view name;
  Steps (*steps)();
  bool nfc = false;
  bool ignore_merges = false;
};

constexpr Family kFamilies[] = {
    {"gpt2", gpt2},
    {"gpt-2", gpt2},
    {"phi-2", gpt2},
    {"gpt-neox", gpt2, true},
    {"mpt", gpt2, true},
    {"olmo", gpt2, true},
    {"smollm", digits_gpt2},
    {"starcoder", digits_gpt2},
    {"refact", digits_gpt2},
    {"command-r", digits_gpt2, true},
    {"falcon", falcon},
    {"llama3", llama3, false, true},
    {"llama-v3", llama3, false, true},
    {"llama-bpe", llama3, false, true},
    {"falcon3", llama3, false, true},
    {"dbrx", llama3},
    {"qwen2", qwen2, true},
    {"deepseek-r1-qwen", qwen2, true},
    {"stablelm2", qwen2},
    {"qwen35", qwen35, true},
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
    if (family.nfc) spec.normalizers.insert(spec.normalizers.begin(), NormalizerStep{.kind = NormalizerStep::Kind::nfc});
    spec.ignore_merges = spec.ignore_merges || family.ignore_merges;
    spec.pre_tokenizer.clear();
    return {};
  }
  return bad_input(fmt::format("{}: the pre-tokenizer '{}' is not known; known are {}", spec.origin,
                               spec.pre_tokenizer.substr(0, 100), known));
}

bool is_known_linear_pattern(std::string_view pattern) {
  for (const auto known : kLinearPatterns) {
    if (pattern == known) return true;
  }
  return false;
}

}  // namespace quintet
