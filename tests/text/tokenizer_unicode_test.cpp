// UTF-8, normal forms, character classes, pattern translation and pre-tokenizer steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <random>

#include "text/bpe_bytes.h"
#include "text/regex.h"
#include "text/tokenizer_pre.h"
#include "text/tokenizer_specs.h"
#include "text/unicode.h"

namespace quintet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Pre = PreTokenizerStep;

TEST(Unicode, BrokenUtf8BecomesOneReplacementAMaximalPart) {
  // Unicode 16, section 3.9, tables 3-8 to 3-11.
  const std::pair<std::string, std::string> cases[] = {
      {"\x61\xF1\x80\x80\xE1\x80\xC2\x62\x80\x63\x80\xBF\x64", "a\uFFFD\uFFFD\uFFFDb\uFFFDc\uFFFD\uFFFDd"},
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", "\uFFFD\uFFFD\uFFFD\uFFFD\uFFFDA\uFFFD\uFFFDB"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", "\uFFFD\uFFFD\uFFFD\uFFFDA"},
      {"\xE2\x82", "\uFFFD"},
      {"\xF0", "\uFFFD"}};
  for (const auto& [broken, mended] : cases) {
    EXPECT_EQ(sanitize_utf8(broken), mended);
    EXPECT_FALSE(is_valid_utf8(broken));
    EXPECT_TRUE(is_valid_utf8(mended));
  }
}

TEST(Unicode, EveryCodePointSurvives) {
  for (uint32_t point = 0; point < 0x110000; ++point) {
    std::string text;
    append_utf8(text, point);
    const bool surrogate = point >= 0xD800 && point < 0xE000;
    ASSERT_EQ(is_valid_utf8(text), !surrogate) << point;
    if (surrogate) continue;
    ASSERT_EQ(decode_utf8(text, 0).code_point, point);
    ASSERT_EQ(next_utf8_part(text, 0).bytes, text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const Utf8Part part = next_utf8_part(std::string_view(text).substr(0, cut), 0);
      ASSERT_TRUE(part.incomplete && part.bytes == cut);
    }
  }
}

TEST(Unicode, NormalForms) {
  EXPECT_EQ(normalize_unicode("e\u0301", NormalForm::nfc), "é");
  EXPECT_EQ(normalize_unicode("é", NormalForm::nfd), "e\u0301");
  EXPECT_EQ(normalize_unicode("ﬁ①", NormalForm::nfkc), "fi1");
  EXPECT_EQ(normalize_unicode("ﬁ", NormalForm::nfc), "ﬁ");
  EXPECT_EQ(normalize_unicode("\u1100\u1161\u11A8", NormalForm::nfc), "\uAC01");
  EXPECT_EQ(normalize_unicode("\uFDFA", NormalForm::nfkd).size(), 33u);
  // Marks are put in order by class, those of one class stay as they are; 0958 is excluded from composition.
  EXPECT_EQ(normalize_unicode("a\u0301\u0316\u0302", NormalForm::nfd), "a\u0316\u0301\u0302");
  EXPECT_EQ(normalize_unicode("\u0958", NormalForm::nfc), "\u0915\u093C");
  EXPECT_EQ(normalize_unicode("plain", NormalForm::nfkc), "plain");
  EXPECT_EQ(lowercase_unicode("ÀΣİ"), "àσi\u0307");
}

TEST(Unicode, ManyMarksInTheWrongOrderTakeNoQuadraticTime) {
  std::string marks = "a";
  for (int i = 0; i < 200'000; ++i) marks += i % 2 == 0 ? "\u0301" : "\u0316";
  const std::clock_t start = std::clock();
  EXPECT_EQ(normalize_unicode(marks, NormalForm::nfc).size(),
            marks.size() - 1);  // a and the first acute compose
  EXPECT_LT(std::clock() - start, 10 * CLOCKS_PER_SEC);
}

TEST(Unicode, Classes) {
  for (const uint32_t space : {0x20U, 0x9U, 0x85U, 0xA0U, 0x1680U, 0x200AU, 0x2028U, 0x3000U})
    EXPECT_TRUE(is_unicode_space(space));
  for (const uint32_t other : {0x180EU, 0x200BU, 0xFEFFU, 0x61U}) EXPECT_FALSE(is_unicode_space(other));
  for (const uint32_t number : {0x37U, 0xB2U, 0x663U, 0x2167U, 0x10D40U})
    EXPECT_TRUE(is_unicode_number(number));
  for (const uint32_t other : {0x61U, 0x4E00U}) EXPECT_FALSE(is_unicode_number(other));
  for (const uint32_t sign : {0x24U, 0x7EU, 0xBFU, 0x3001U, 0x166DU}) EXPECT_TRUE(is_punctuation(sign));
  for (const uint32_t other : {0x61U, 0x20ACU, 0x2E43U}) EXPECT_FALSE(is_punctuation(other));
  for (const uint32_t word : {0x61U, 0x5FU, 0x301U, 0x4E00U, 0x24B6U}) EXPECT_TRUE(is_word_character(word));
  for (const uint32_t other : {0x2DU, 0x20U, 0xB2U}) EXPECT_FALSE(is_word_character(other));
}

TEST(BytesAsCharacters, GoThereAndBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  EXPECT_EQ(from_stand_ins(to_stand_ins(all)), all);
  EXPECT_EQ(to_stand_ins(" \n"), "ĠĊ");
  EXPECT_EQ(from_stand_ins("中"), std::nullopt);
  EXPECT_EQ(from_stand_ins("\xFF"), std::nullopt);
}

std::string found(std::string_view pattern, std::string_view text,
                  Regex::Effort effort = Regex::Effort::unbounded) {
  auto regex = Regex::compile(pattern, effort);
  if (!regex) return "error: " + regex.error().message;
  Regex::Matcher matcher(*regex);
  std::string out;
  matcher.start(text);
  for (Regex::Match match; matcher.next(match);)
    out += std::string(text.substr(match.begin, match.end - match.begin)) + "|";
  return out;
}

TEST(Regex, MeansWhatOnigurumaMeans) {
  EXPECT_EQ(found(R"(\s)", "a\u180E\u0085\u200B\u3000"), "\u0085|\u3000|");  // U+180E is no space
  EXPECT_EQ(found(R"(\S+)", "a\u180E b"), "a\u180E|b|");
  EXPECT_EQ(found(R"(\p{L}+)", "é世\u1C89\U00031350."),
            "é世\u1C89\U00031350|");  // the last two are of Unicode 16 and 15
  EXPECT_EQ(found(R"(\P{L}+)", "a\u1C89.1"), ".1|");
  EXPECT_EQ(found(R"(\p{^L}+)", "a.1"), ".1|");
  EXPECT_EQ(found(R"([^\s\p{L}\p{N}]+)", "a!\U00010D40\U0001FAE9"), "!|\U0001FAE9|");
  EXPECT_EQ(found(R"(a$)", "a\na"), "a|a|");
  EXPECT_EQ(found(R"(^a)", "a\na"), "a|a|");
  EXPECT_EQ(found(R"(\h+)", "xAf9 "), "Af9|");
  EXPECT_EQ(found(R"(\v)", "\n\x0B"), "\x0B|");
  EXPECT_EQ(found(R"(\u00e9{,2}x)", "ééx x"), "ééx|x|");
  EXPECT_EQ(found(R"((?i:'S))", "'s'ſ"), "'s|'ſ|");
  EXPECT_EQ(found(R"([[:alpha:]]+|[]x]+|[\]a-c\-]+)", "é]x"), "é|]x|");
  EXPECT_EQ(found(R"(\d+|\w+)", "12ab_٣"), "12|ab_٣|");
  EXPECT_EQ(found(R"(\p{Han}+)", "世界x"), "世界|");
  EXPECT_EQ(found(R"(x*)", "axxb"), "xx|");
}

TEST(Regex, RefusesWhatItCannotKeepBoundedOrTranslate) {
  for (const char* pattern :
       {R"((a)\1)",   R"(\k<x>)",    R"(\g<x>)",   R"((?<x>a))", R"((?R))", R"((*FAIL))", R"([a&&b])",
        R"([a[bc]])", R"([\S])",     R"([\P{L}])", R"(\p)",      R"(\pL)",  R"(\u12)",    R"(a\)",
        R"([a)",      R"([[:alpha)", R"((?m:a))",  R"(\K)",      R"(\X)",   R"(\Q)"}) {
    EXPECT_THAT(found(pattern, "a"), HasSubstr("is not supported")) << pattern;
  }
  for (const char* pattern : {"(", "a)", "[b-a]", "*", R"(\p{Martian})"})
    EXPECT_THAT(found(pattern, "a"), HasSubstr("does not compile"));
  EXPECT_THAT(found(std::string(70'000, 'a'), "a"), HasSubstr("a pattern of 70000 bytes"));
  EXPECT_THAT(found(std::string(200, '(') + std::string(200, ')'), "a"), HasSubstr("does not compile"));
}

TEST(Regex, PatternsOfStrangersTakeLinearTime) {
  // None has one character that every match needs, for whose absence the engine would give up at once.
  const std::pair<const char*, std::string> cases[] = {
      {R"((a+)+[bc])", std::string(300'000, 'a')},      {R"((a|aa)+[bc])", std::string(300'000, 'a')},
      {R"((?:\s)+$)", std::string(300'000, ' ') + "x"}, {R"(\s+(?=[\n\t]))", std::string(300'000, ' ')},
      {R"((?:.*.*)*[=~])", std::string(300'000, 'x')},  {R"((?<!a)(x+x+)+[yz])", std::string(300'000, 'x')}};
  for (const auto& [pattern, text] : cases) {
    const std::clock_t start = std::clock();
    EXPECT_EQ(found(pattern, text, Regex::Effort::linear), "");
    EXPECT_LT(std::clock() - start, 10 * CLOCKS_PER_SEC) << pattern;
  }
}

TEST(Regex, PatternsThatMatchAllTheSameTakeLinearTimeToo) {
  std::string runs;
  while (runs.size() < 300'000) runs += std::string(17, 'a') + " ";
  const std::pair<const char*, std::string> cases[] = {
      {R"(\s+(?=x)|.)", std::string(300'000, ' ')},
      {R"(a(?=.*x))", std::string(300'000, 'a')},
      {R"((a(?=.*x))|.)", std::string(300'000, 'a')},
      {R"((a+)+[bc]|.)", runs}};  // each try ends, after some hundred thousand steps
  for (const auto& [pattern, text] : cases) {
    const std::clock_t start = std::clock();
    found(pattern, text, Regex::Effort::linear);
    EXPECT_LT(std::clock() - start, 10 * CLOCKS_PER_SEC) << pattern;
  }
}

TEST(Regex, LongMatchesAreWhole) {
  const std::string pattern = R"(\p{L}+|\s+(?!\S)|\s+)";
  for (const std::string& text :
       {std::string(100'000, 'a'), std::string(9'999, ' ') + "x" + std::string(777, ' ')})
    EXPECT_EQ(found(pattern, text, Regex::Effort::linear), found(pattern, text));
  EXPECT_EQ(found(R"((?<=b)a+(?=b))", "b" + std::string(5'000, 'a') + "b", Regex::Effort::linear),
            std::string(5'000, 'a') + "|");
}

TEST(Regex, WindowsDoNotShowInOrdinaryText) {
  std::mt19937 random(1);
  std::string text;
  while (text.size() < 50'000) {
    for (size_t i = 0, length = 1 + random() % 9; i < length; ++i)
      text += static_cast<char>('a' + random() % 26);
    text += random() % 9 == 0 ? ".\n" : " ";
  }
  const char* pattern = R"( ?\p{L}+|\s+(?!\S)|\s+|[^\s\p{L}]+)";
  EXPECT_EQ(found(pattern, text, Regex::Effort::linear), found(pattern, text));
}

std::string cut(const std::vector<PreTokenizerStep>& steps, std::string_view text, bool at_start = true) {
  TokenizerSpec spec;
  spec.pre_tokenizers = steps;
  const auto compiled = PreTokenizer::compile(spec);
  QUINTET_CHECK(compiled, "{}", compiled.error().message);
  PreTokenizer::Cutter cutter(*compiled);
  std::string out;
  for (const WordRange word : cutter.cut(text, at_start)) {
    out += std::string(cutter.text().substr(word.begin, word.end - word.begin)) + "|";
  }
  return out;
}

TEST(PreTokenizer, Behaviours) {
  // Expected: what tokenizers.pre_tokenizers.Split("-", behaviour) gives for "a--b-c-".
  using Behavior = Pre::Behavior;
  const auto dash = [](Behavior behavior, bool invert = false) {
    return cut(
        {{.kind = Pre::Kind::split, .pattern = "-", .regex = false, .behavior = behavior, .invert = invert}},
        "a--b-c-");
  };
  EXPECT_EQ(dash(Behavior::removed), "a|b|c|");
  EXPECT_EQ(dash(Behavior::isolated), "a|-|-|b|-|c|-|");
  EXPECT_EQ(dash(Behavior::merged_with_previous), "a-|-|b-|c-|");
  EXPECT_EQ(dash(Behavior::merged_with_next), "a|-|-b|-c|-|");
  EXPECT_EQ(dash(Behavior::contiguous), "a|--|b|-|c|-|");
  EXPECT_EQ(dash(Behavior::removed, true), "-|-|-|-|");
}

TEST(PreTokenizer, Steps) {
  EXPECT_EQ(cut({{.kind = Pre::Kind::digits}}, "ab12٣c"), "ab|1|2|٣|c|");
  EXPECT_EQ(cut({{.kind = Pre::Kind::digits, .individual = false}}, "ab12٣c"), "ab|12٣|c|");
  EXPECT_EQ(cut({{.kind = Pre::Kind::punctuation}}, "a!?b"), "a|!|?|b|");
  EXPECT_EQ(cut({{.kind = Pre::Kind::whitespace}}, "a_1 b!?  c"), "a_1|b|!?|c|");
  EXPECT_EQ(cut({{.kind = Pre::Kind::whitespace_split}}, "a,b \u3000c"), "a,b|c|");
  EXPECT_EQ(cut({{.kind = Pre::Kind::byte_level}}, "it's 12  x"), "it|'s| 12| | x|");
  EXPECT_EQ(cut({{.kind = Pre::Kind::byte_level, .add_prefix_space = true}}, "x y"), " x| y|");
  EXPECT_EQ(cut({{.kind = Pre::Kind::metaspace, .pattern = "▁"}}, "a  b"), "▁a|▁|▁b|");
  EXPECT_EQ(cut({{.kind = Pre::Kind::metaspace, .pattern = "▁"}}, " a"), "▁a|");
  EXPECT_EQ(
      cut({{.kind = Pre::Kind::metaspace, .pattern = "▁", .prepend = Pre::Prepend::first}}, "a b", false),
      "a|▁b|");
  EXPECT_EQ(cut({{.kind = Pre::Kind::metaspace,
                  .pattern = "▁",
                  .prepend = Pre::Prepend::never,
                  .split_words = false}},
                "a b"),
            "a▁b|");
  // Steps after the byte-level one see its stand-ins: the byte 0xB2 is the digit ², and the words are bytes
  // in the end.
  EXPECT_EQ(cut({{.kind = Pre::Kind::byte_level}, {.kind = Pre::Kind::digits}}, "\u0432"), "\xD0|\xB2|");
}

TEST(PreTokenizer, TrailingSpaceByHandIsThePattern) {
  std::mt19937 random(2);
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    for (size_t i = 0, length = 1 + random() % 12; i < length; ++i)
      text += std::vector<std::string>{" ", "\n", "a", "\u3000"}[random() % 4];
    // The same pattern in other words, so that it goes to the pattern engine.
    EXPECT_EQ(cut({{.pattern = R"(\s+$)"}}, text), cut({{.pattern = R"((?:\s)+$)"}}, text))
        << testing::PrintToString(text);
  }
}

}  // namespace
}  // namespace quintet
