// What make_tokenizer() says about descriptions that no tokenizer can have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "text/tokenizer.h"
#include "text/tokenizer_specs.h"

namespace quintet {
namespace {

using test::byte_spec;
using test::sentencepiece_spec;
using testing::HasSubstr;

using Spec = TokenizerSpec;

struct Case {
  const char* message;
  std::function<void(Spec&)> spoil;
};

void expect_refused(const Spec& good, const std::vector<Case>& cases) {
  ASSERT_TRUE(make_tokenizer(good)) << make_tokenizer(good).error().message;
  for (const Case& one : cases) {
    Spec spec = good;
    spec.origin = "file";
    one.spoil(spec);
    const auto tokenizer = make_tokenizer(std::move(spec));
    ASSERT_FALSE(tokenizer) << one.message;
    EXPECT_EQ(tokenizer.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(tokenizer.error().message, HasSubstr(one.message));
    EXPECT_THAT(tokenizer.error().message, testing::StartsWith("file: "));
  }
}

TEST(TokenizerBadInput, Vocabulary) {
  expect_refused(
      byte_spec({"a b"}, {"<s>"}),
      {{"the vocabulary is empty", [](Spec& s) { s.tokens.clear(); }},
       {"token 7 is empty: the vocabulary has a hole", [](Spec& s) { s.tokens[7].clear(); }},
       {"tokens 97 and 98 are both 'a'", [](Spec& s) { s.tokens[98] = "a"; }},
       {"token 9 ('x\uFFFD') is not UTF-8", [](Spec& s) { s.tokens[9] = "x\xFF"; }},
       {"token 9 has 100000 bytes; allowed are 65536", [](Spec& s) { s.tokens[9].assign(100000, 'x'); }},
       {"5 token types for 258 tokens", [](Spec& s) { s.types.resize(5); }},
       {"2 scores for 258 tokens",
        [](Spec& s) {
          s.scores = {1, 2};
        }},
       {"the BOS id is 258; allowed are 0 to 257", [](Spec& s) { s.bos = 258; }},
       {"the EOS id is -1; allowed are 0 to 257", [](Spec& s) { s.eos = -1; }},
       {"the unknown token's id is 999", [](Spec& s) { s.unk = 999; }},
       {"the padding id is 999", [](Spec& s) { s.pad = 999; }},
       {"the EOT id is 999", [](Spec& s) { s.eot = 999; }},
       {"an id that ends a generation is 999",
        [](Spec& s) {
          s.eog = {1, 999};
        }},
       {"BOS is to be added, but there is none", [](Spec& s) { s.add_bos = true; }},
       {"EOS is to be added, but there is none", [](Spec& s) { s.add_eos = true; }},
       {"unknown text is to become the unknown token, but there is none",
        [](Spec& s) { s.emit_unknown = true; }},
       {"the pre-tokenizer 'martian' is not known; known are gpt-2,",
        [](Spec& s) { s.pre_tokenizer = "martian"; }},
       {"byte-level BPE with 0 byte-level steps; it needs one", [](Spec& s) { s.pre_tokenizer.clear(); }},
       {"byte-level BPE with 2 byte-level steps",
        [](Spec& s) { s.pre_tokenizers = {{.kind = PreTokenizerStep::Kind::byte_level}}; }}});
}

TEST(TokenizerBadInput, Merges) {
  expect_refused(byte_spec({"a b", "ab c"}, {"<s>"}),
                 {{"merge 2 ('x yz') needs the token 'yz', which the vocabulary does not have",
                   [](Spec& s) { s.merges.push_back("x yz"); }},
                  {"merge 2 ('x y') needs the token 'xy'", [](Spec& s) { s.merges.push_back("x y"); }},
                  {"merge 2 ('ab c') is there twice", [](Spec& s) { s.merges.push_back("ab c"); }},
                  {"merge 2 is 'ab'; it must be two tokens", [](Spec& s) { s.merges.push_back("ab"); }},
                  // An empty part would make a cycle: "" + "a" -> "a".
                  {"merge 2 is ' a'; it must be two tokens", [](Spec& s) { s.merges.push_back(" a"); }},
                  {"merge 2 is 'a '; it must be two tokens", [](Spec& s) { s.merges.push_back("a "); }},
                  {"merge 2 is ''; it must be two tokens", [](Spec& s) { s.merges.push_back(""); }},
                  {"1 lengths of left parts for 2 merges", [](Spec& s) { s.merge_left_bytes = {1}; }},
                  {"merge 1 is 'ab c'; it must be two tokens",
                   [](Spec& s) {
                     s.merge_left_bytes = {1, 9};
                   }},
                  {"merge 0 is 'a b'; it must be two tokens", [](Spec& s) {
                     s.merge_left_bytes = {0, 2};
                   }}});
}

TEST(TokenizerBadInput, ScoresAndKinds) {
  expect_refused(
      sentencepiece_spec({"a", "b", "ab"}),
      {{"the score of token 3 is nan", [](Spec& s) { s.scores[3] = std::nan(""); }},
       {"the score of token 4 is inf", [](Spec& s) { s.scores[4] = INFINITY; }},
       {"a SentencePiece vocabulary with neither scores nor merges", [](Spec& s) { s.scores.clear(); }},
       {"a unigram vocabulary without scores",
        [](Spec& s) {
          s.kind = Spec::Kind::unigram;
          s.scores.clear();
        }},
       {"the unigram token 259 has 129 bytes; allowed are 128",
        [](Spec& s) {
          s.kind = Spec::Kind::unigram;
          s.tokens[259].assign(129, 'a');
        }},
       {"a unigram vocabulary with merges", [](Spec& s) {
          s.kind = Spec::Kind::unigram;
          s.merges = {"a b"};
        }}});
}

TEST(TokenizerBadInput, AddedTokens) {
  expect_refused(
      byte_spec({}, {"<s>"}),
      {{"the id of an added token is 300", [](Spec& s) { s.added = {{.id = 300, .text = "<x>"}}; }},
       {"the added token 256 is '<x>', but '<s>' in the vocabulary",
        [](Spec& s) { s.added = {{.id = 256, .text = "<x>"}}; }},
       {"the added token '<s>' is there twice",
        [](Spec& s) {
          s.added = {{.id = 256, .text = "<s>"}, {.id = 256, .text = "<s>"}};
        }},
       {"token 256 is a control one of 600 bytes; allowed are 256",
        [](Spec& s) { s.tokens[256].assign(600, '<'); }},
       {"the added token 256 has 600 bytes; allowed are 256", [](Spec& s) {
          s.tokens[256].assign(600, '<');
          s.added = {{.id = 256, .text = s.tokens[256]}};
        }}});
}

TEST(TokenizerBadInput, Steps) {
  using Kind = NormalizerStep::Kind;
  using Pre = PreTokenizerStep::Kind;
  expect_refused(
      byte_spec({}),
      {{"a Replace normalizer has an empty pattern",
        [](Spec& s) { s.normalizers = {{.kind = Kind::replace}}; }},
       {"may grow a text more than 4096 times",
        [](Spec& s) {
          s.normalizers.assign(5, {.kind = Kind::replace, .pattern = "a", .content = "aaaaaaaa"});
        }},
       {"a Prepend normalizer of 65 bytes",
        [](Spec& s) { s.normalizers = {{.kind = Kind::prepend, .content = std::string(65, 'x')}}; }},
       {"65 normalizer steps; allowed are 64", [](Spec& s) { s.normalizers.assign(65, {}); }},
       {"65 pre-tokenizer steps; allowed are 64",
        [](Spec& s) { s.pre_tokenizers.assign(64, {.kind = Pre::digits}); }},
       {"a normalizer's pattern or content is not UTF-8",
        [](Spec& s) { s.normalizers = {{.kind = Kind::replace, .pattern = "\xFF"}}; }},
       {"normalizer: the pattern '(' does not compile",
        [](Spec& s) { s.normalizers = {{.kind = Kind::replace, .pattern = "(", .regex = true}}; }},
       {"precompiled_charsmap: it has 0 bytes", [](Spec& s) { s.normalizers = {{.kind = Kind::charsmap}}; }},
       {"its trie is said to have 16777216 bytes; allowed are 4 to 4",
        [](Spec& s) {
          s.normalizers = {{.kind = Kind::charsmap}};
          s.precompiled_charsmap = {0, 0, 0, 1, 0, 0, 0, 0};
        }},
       {"its texts are not UTF-8",
        [](Spec& s) {
          s.normalizers = {{.kind = Kind::charsmap}};
          s.precompiled_charsmap = {4, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0};
        }},
       {"its texts do not end in NUL",
        [](Spec& s) {
          s.normalizers = {{.kind = Kind::charsmap}};
          s.precompiled_charsmap = {4, 0, 0, 0, 0, 0, 0, 0, 'a'};
        }},
       {"a pre-tokenizer has an empty pattern", [](Spec& s) { s.pre_tokenizers = {{.kind = Pre::split}}; }},
       {"the pattern of a pre-tokenizer is not UTF-8",
        [](Spec& s) { s.pre_tokenizers = {{.kind = Pre::split, .pattern = "\xC0"}}; }},
       {"Metaspace's replacement '__' is not one character",
        [](Spec& s) { s.pre_tokenizers = {{.kind = Pre::metaspace, .pattern = "__"}}; }},
       {"pre-tokenizer: the pattern '(a)\\1' uses \\1",
        [](Spec& s) { s.pre_tokenizers = {{.kind = Pre::split, .pattern = R"((a)\1)"}}; }}});
}

}  // namespace
}  // namespace quintet
