// Reading tokenizer.json: what the parts mean, and what is said about wrong ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "text/tokenizer.h"
#include "text/tokenizer_specs.h"

namespace quintet {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::json;

/// Byte-level BPE in the manner of GPT-2 over the letters a, b, c and the space.
Json byte_level() {
  return Json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [
      {"id": 6, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true},
      {"id": 7, "content": "<tool>", "single_word": false, "lstrip": false, "rstrip": true, "normalized": true, "special": false}],
    "normalizer": null,
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
    "post_processor": {"type": "TemplateProcessing",
      "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [6], "tokens": ["<s>"]}}},
    "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
    "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null,
      "end_of_word_suffix": null, "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
      "vocab": {"a": 0, "b": 1, "c": 2, "Ġ": 3, "ab": 4, "Ġab": 5}, "merges": ["a b", "Ġ ab"]}})");
}

/// The shape of Llama 2.
Json sentencepiece() {
  return Json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "pre_tokenizer": null, "post_processor": null,
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
      {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "unk_token": "<unk>", "fuse_unk": true, "byte_fallback": true,
      "vocab": {"<unk>": 0, "<0xC3>": 1, "<0xA9>": 2, "▁": 3, "a": 4, "▁a": 5}, "merges": [["▁", "a"]]}})");
}

Json unigram() {
  return Json::parse(R"({
    "added_tokens": [{"id": 0, "content": "<unk>", "special": true}, {"id": 1, "content": "</s>", "special": true}],
    "normalizer": {"type": "NFKC"},
    "pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always", "split": true},
    "post_processor": {"type": "RobertaProcessing", "sep": ["</s>", 1], "cls": ["<unk>", 0]},
    "decoder": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
    "model": {"type": "Unigram", "unk_id": 0, "byte_fallback": false,
      "vocab": [["<unk>", 0], ["</s>", 0.0], ["▁", -3], ["a", -2.5], ["▁a", -1], ["1", -9]]}})");
}

Result<std::unique_ptr<Tokenizer>> read(const Json& json) {
  TRY_ASSIGN(TokenizerSpec spec, parse_tokenizer_json(json.dump(), "file"));
  return make_tokenizer(std::move(spec));
}

std::string problem(const Json& json) {
  const auto tokenizer = read(json);
  return tokenizer ? "none" : tokenizer.error().message;
}

TEST(TokenizerJson, ByteLevelBpe) {
  const auto tokenizer = read(byte_level());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->encode("ab ab", {}), ElementsAre(6, 4, 5));
  EXPECT_THAT((*tokenizer)->encode("ab<tool>  c", {.add_bos = false}), ElementsAre(4, 7, 2));
  EXPECT_THAT((*tokenizer)->encode("<s>", {.add_bos = false, .parse_special = true}), ElementsAre(6));
  EXPECT_EQ((*tokenizer)->spec().bos, 6);
  EXPECT_EQ((*tokenizer)->spec().unk, std::nullopt);
  EXPECT_EQ((*tokenizer)->decode({6, 4, 5, 7}), "ab ab<tool>");
}

TEST(TokenizerJson, SentencePieceBpe) {
  const auto tokenizer = read(sentencepiece());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->encode("a é!?", {}), ElementsAre(5, 3, 1, 2, 0));
  EXPECT_EQ((*tokenizer)->decode({5, 5, 1, 2}), "a aé");
}

TEST(TokenizerJson, Unigram) {
  const auto tokenizer = read(unigram());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->encode("a ①", {}), ElementsAre(0, 4, 2, 5, 1));
  EXPECT_EQ((*tokenizer)->decode({4, 2, 3}), "a a");
  EXPECT_TRUE((*tokenizer)->spec().add_bos && (*tokenizer)->spec().add_eos);
}

TEST(TokenizerJson, EveryStepIsRead) {
  auto json = sentencepiece();
  json["normalizer"] = Json::parse(R"({"type": "Sequence", "normalizers": [
    {"type": "NFC"}, {"type": "NFD"}, {"type": "NFKD"}, {"type": "Lowercase"}, {"type": "Strip", "strip_left": true, "strip_right": false},
    {"type": "Replace", "pattern": {"Regex": " +"}, "content": "▁"}, {"type": "Sequence", "normalizers": []}]})");
  json["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
    {"type": "Split", "pattern": {"Regex": "x+"}, "behavior": "Removed", "invert": false},
    {"type": "Split", "pattern": {"String": "▁"}, "behavior": "MergedWithNext", "invert": true},
    {"type": "Split", "pattern": {"String": "▁"}, "behavior": "MergedWithPrevious"},
    {"type": "Digits", "individual_digits": true}, {"type": "Punctuation", "behavior": "Contiguous"}, {"type": "Whitespace"},
    {"type": "WhitespaceSplit"}, {"type": "Metaspace", "add_prefix_space": false}, {"type": "Metaspace", "prepend_scheme": "first"}]})");
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [{"type": "ByteLevel"}]})");
  json["decoder"] = nullptr;
  const auto tokenizer = read(json);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto& spec = (*tokenizer)->spec();
  EXPECT_EQ(spec.normalizers.size(), 6u);
  EXPECT_FALSE(spec.normalizers[4].right);
  ASSERT_EQ(spec.pre_tokenizers.size(), 9u);
  EXPECT_TRUE(spec.pre_tokenizers[1].invert);
  EXPECT_EQ(spec.pre_tokenizers[7].prepend, PreTokenizerStep::Prepend::never);
  EXPECT_EQ(spec.pre_tokenizers[8].prepend, PreTokenizerStep::Prepend::first);
  EXPECT_FALSE(spec.decode_strips_space);
}

TEST(TokenizerJson, MergesMayContainSpacesWhereTheyArePairs) {
  auto json = sentencepiece();
  json["normalizer"] = nullptr;
  json["model"]["vocab"] = {{"<unk>", 0}, {" ", 1}, {"a", 2}, {" a", 3}, {" a a", 4}, {"a a", 5}};
  json["model"]["merges"] = Json::parse(R"([[" ", "a"], ["a", " a"], [" a", " a"]])");
  const auto tokenizer = read(json);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->encode(" a a", {}), ElementsAre(4));
}

struct Case {
  const char* pointer;  // what is put in place
  const char* value;    // null: taken away
  const char* message;
};

void expect_refused(const Json& good, const std::vector<Case>& cases) {
  EXPECT_EQ(problem(good), "none");
  for (const Case& one : cases) {
    Json json = good;
    const Json::json_pointer pointer(one.pointer);
    if (one.value == nullptr) {
      json.at(pointer.parent_pointer()).erase(pointer.back());
    } else {
      json[pointer] = Json::parse(one.value);
    }
    EXPECT_THAT(problem(json), HasSubstr(one.message)) << one.pointer;
    EXPECT_THAT(problem(json), testing::StartsWith("file: ")) << one.pointer;
  }
}

TEST(TokenizerJsonBadInput, Model) {
  expect_refused(
      byte_level(),
      {{"/model", "5", "model: found number; allowed is an object"},
       {"/model/type", "\"WordPiece\"",
        "model.type: 'WordPiece' is not supported; supported are BPE and Unigram"},
       {"/model/type", "7", "model.type: found number; allowed is a string"},
       {"/model/type", "\"Unigram\"", "model.vocab: a Unigram model needs a list"},
       {"/model/vocab", "[[\"a\", 1]]", "model.vocab: a BPE model needs an object"},
       {"/model/vocab", "{}", "added_tokens[0].id: found 6; of 2 tokens the ids must be 0 to 1, each once"},
       {"/model/vocab/a", "\"x\"",
        "model.vocab: the id of 'a' is a string; allowed is an id, a whole number"},
       {"/model/vocab/a", "0.5", "the id of 'a' is a fraction"},
       {"/model/vocab/a", "[]", "the id of 'a' is a list"},
       {"/model/vocab/a", "{}", "the id of 'a' is an object"},
       {"/model/vocab/a", "-1", "the id of 'a' is -1; of 8 tokens the ids must be 0 to 7, each once"},
       {"/model/vocab/a", "4000000000", "the id of 'a' is 4000000000; of 8 tokens the ids must be 0 to 7"},
       {"/model/vocab/a", "99999999999999999999", "the id of 'a' is"},
       {"/model/vocab/a", "18446744073709551615", "the id of 'a' is 18446744073709551615"},
       {"/model/vocab/a", "1", "have the same id, 1"},
       {"/model/vocab/c", nullptr,
        "added_tokens[1].id: found 7; of 7 tokens the ids must be 0 to 6, each once"},
       {"/model/merges", "[\"a b\", [\"a\", \"c\"]]",
        "model.merges: entry 1 is a list, unlike the ones before it"},
       {"/model/merges", "[[\"a\", \"b\"], \"a c\"]", "model.merges: entry 1 is no list"},
       {"/model/merges", "[[\"a\"]]", "model.merges: entry 0 is not [left, right]"},
       {"/model/merges", "[[\"a\", \"b\", \"c\"]]", "model.merges: entry"},
       {"/model/merges", "[[\"a\", 1]]",
        "model.merges: entry 0 is a number; allowed is a string with a space"},
       {"/model/merges", "[[[\"a\"]]]", "is a list"},
       {"/model/merges", "[{}]", "is an object"},
       {"/model/merges", "[\"a c\"]", "merge 0 ('a c') needs the token 'ac'"},
       {"/model/merges", "[\"a b\", \"a b\"]", "merge 1 ('a b') is there twice"},
       {"/model/unk_token", "\"<x>\"", "model.unk_token: '<x>' is not in the vocabulary"},
       {"/model/dropout", "0.1", "model.dropout: dropping merges"},
       {"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix: '</w>' is not supported"},
       {"/model/fuse_unk", "1", "model.fuse_unk: found number; allowed is true or false"}});
  expect_refused(
      unigram(),
      {{"/model/unk_id", "6", "model.unk_id: found 6; allowed are 0 to 5"},
       {"/model/vocab", "[[\"a\"]]", "model.vocab: entry 0 is not [text, score]"},
       {"/model/vocab", "[[\"a\", \"b\"]]", "model.vocab: entry 0"},
       {"/model/vocab", "[[1, 2]]", "model.vocab: entry 0 is a number"},
       {"/model/vocab", "[\"a\"]", "model.vocab: entry 0 is a string; allowed is a list of text and score"},
       {"/pre_tokenizer", R"({"type": "ByteLevel"})", "ByteLevel before a Unigram model"}});
}

TEST(TokenizerJsonBadInput, AddedTokensAndFrames) {
  expect_refused(
      byte_level(),
      {{"/added_tokens", "{}", "added_tokens: found object; allowed is a list"},
       {"/added_tokens/0", "\"<s>\"", "added_tokens[0]: found string; allowed is an object"},
       {"/added_tokens/0/id", nullptr, "added_tokens[0].id: found nothing; allowed is a whole number"},
       {"/added_tokens/0/id", "9", "added_tokens[0].id: found 9; of 8 tokens the ids must be 0 to 7"},
       {"/added_tokens/0/id", "0", "model.vocab: no token has the id 6, but there are ids up to 7"},
       {"/added_tokens/0/content", "[]", "added_tokens[0].content: found array; allowed is a string"},
       {"/added_tokens/0/special", "\"yes\"",
        "added_tokens[0].special: found string; allowed is true or false"},
       {"/added_tokens/1/id", "6", "the added token 6 is '<tool>', but '<s>' in the vocabulary"},
       {"/post_processor", R"({"type": "Martian"})", "post_processor.type: 'Martian' is not supported"},
       {"/post_processor", R"({"type": "BertProcessing", "cls": ["a", 1], "sep": ["b"]})",
        "cls and sep must be [text, id]"},
       {"/post_processor",
        R"({"type": "Sequence", "processors": [{"type": "Sequence", "processors": [{"type": "Sequence", "processors": [
          {"type": "Sequence", "processors": [{"type": "Sequence", "processors": [{"type": "Sequence"}]}]}]}]}]})",
        "Sequences inside Sequences"},
       {"/post_processor/single", R"([{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}])",
        "the text is there twice"},
       {"/post_processor/single", R"([{"SpecialToken": {"id": "<x>"}}])",
        "special_tokens.<x>.ids: found nothing; allowed is a list"},
       {"/post_processor/single", R"([{"SpecialToken": {"id": "<s>"}}, {"SpecialToken": {"id": "<s>"}}])",
        "more than one token on a side"},
       {"/post_processor/special_tokens/<s>/ids", "[1, 2]", "more than one token on a side"},
       {"/post_processor/special_tokens/<s>/ids", "[8]", "ids[0]: found 8; allowed are 0 to 7"}});
}

TEST(TokenizerJsonBadInput, Steps) {
  expect_refused(
      byte_level(),
      {{"/normalizer", R"({"type": "BertNormalizer"})",
        "normalizer.type: the normalizer 'BertNormalizer' is not supported"},
       {"/normalizer", "{}", "normalizer.type: found nothing; allowed is a string"},
       {"/normalizer", R"({"type": "Sequence"})", "normalizer.normalizers: found nothing; allowed is a list"},
       {"/normalizer", R"({"type": "Replace", "pattern": "x", "content": ""})",
        "normalizer.pattern.String: found nothing"},
       {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "####"})",
        "precompiled_charsmap: it is not base64"},
       {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AAA"})",
        "precompiled_charsmap: it is not base64"},
       {"/normalizer", R"({"type": "Precompiled", "precompiled_charsmap": "AAAA"})",
        "precompiled_charsmap: it has 3 bytes"},
       {"/normalizer",
        R"({"type": "Sequence", "normalizers": [{"type": "Precompiled", "precompiled_charsmap": "+/AA"},
          {"type": "Precompiled", "precompiled_charsmap": "AAA="}]})",
        "a second Precompiled"},
       {"/pre_tokenizer", R"({"type": "BertPreTokenizer"})",
        "pre_tokenizer.type: the pre-tokenizer 'BertPreTokenizer' is not supported"},
       {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "("}})", "does not compile"},
       {"/pre_tokenizer", R"({"type": "Split", "pattern": {"Regex": "a"}, "behavior": "Martian"})",
        "behavior: 'Martian' is not known"},
       {"/pre_tokenizer", R"({"type": "Metaspace", "prepend_scheme": "last"})",
        "prepend_scheme: 'last' is not known"},
       {"/decoder", R"({"type": "WordPiece"})", "decoder.type: the decoder 'WordPiece' is not supported"},
       {"/decoder", R"({"type": "Strip", "content": "x", "start": 1, "stop": 0})",
        "decoder.content: allowed is a space"},
       {"/decoder", R"({"type": "Strip", "content": " ", "start": 2, "stop": 0})",
        "decoder.start: found 2; allowed are 0 to 1"}});
  for (const char* field : {"normalizer", "pre_tokenizer", "decoder"}) {
    const char* parts = field == std::string("pre_tokenizer") ? "pretokenizers"
                        : field == std::string("decoder")     ? "decoders"
                                                              : "normalizers";
    Json nested = {{"type", "Sequence"}, {parts, Json::array()}};
    for (int depth = 0; depth < 9; ++depth) nested = {{"type", "Sequence"}, {parts, Json::array({nested})}};
    Json json = byte_level();
    json[field] = nested;
    EXPECT_THAT(problem(json), HasSubstr("Sequences inside Sequences, too deep"));
  }
}

TEST(TokenizerJsonBadInput, Syntax) {
  const auto said = [](std::string_view text) {
    const auto spec = parse_tokenizer_json(text, "file");
    return spec ? std::string("none") : spec.error().message;
  };
  EXPECT_THAT(said(""), HasSubstr("file: not JSON at byte"));
  EXPECT_THAT(said("[]"), HasSubstr("the text is a list; allowed is an object"));
  EXPECT_THAT(said("7"), HasSubstr("the text is a number; allowed is an object"));
  EXPECT_THAT(said("true"), HasSubstr("the text is a boolean"));
  EXPECT_THAT(said("null"), HasSubstr("the text is null"));
  EXPECT_THAT(said("{} x"), HasSubstr("file: not JSON at byte"));
  EXPECT_THAT(said("{\"a\": \"\xFF\"}"), HasSubstr("file: not JSON at byte"));
  EXPECT_THAT(said("{}"), HasSubstr("model: found nothing; allowed is an object"));
  EXPECT_THAT(said(R"({"model": {"vocab": {}, "vocab": {}}})"), HasSubstr("is there twice"));
  EXPECT_THAT(said(R"({"model": {"merges": [], "merges": []}})"), HasSubstr("is there twice"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "{\"a\":";
  EXPECT_THAT(said(deep), HasSubstr("deeper than 32 levels"));
  EXPECT_THAT(said(R"({"model": {"vocab": {"a": 0}}})"), testing::Not(HasSubstr("byte")));
  // Cut anywhere, a file is an error and never a crash.
  const std::string whole = byte_level().dump();
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_NE(said(std::string_view(whole).substr(0, length)), "none");
}

}  // namespace
}  // namespace quintet
