// The incremental detokenizer: whole characters only, and all of the text in the end.
#include <gtest/gtest.h>

#include <random>

#include "text/tokenizer.h"
#include "text/tokenizer_specs.h"
#include "text/unicode.h"

namespace quintet {
namespace {

using test::byte_spec;
using test::make;
using test::sentencepiece_spec;

TEST(Detokenizer, HoldsBackHalfCharacters) {
  const auto tokenizer = make(byte_spec({}));
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push('a'), "a");
  EXPECT_EQ(detokenizer.push(0xF0), "");
  EXPECT_EQ(detokenizer.push(0x9F), "");
  EXPECT_EQ(detokenizer.push(0x98), "");
  EXPECT_EQ(detokenizer.push(0x80), "😀");
  EXPECT_EQ(detokenizer.push(0xC3), "");
  EXPECT_EQ(detokenizer.push('x'), "\uFFFDx");  // it can no longer become a character
  EXPECT_EQ(detokenizer.push(0xE2), "");
  EXPECT_EQ(detokenizer.push(0x82), "");
  EXPECT_EQ(detokenizer.finish(), "\uFFFD");
  EXPECT_EQ(detokenizer.finish(), "");
}

TEST(Detokenizer, TakesOffTheSpaceThatEncodingPutThere) {
  const auto tokenizer = make(sentencepiece_spec({"▁", "a", "▁a"}));
  const TokenId word = *tokenizer->find("▁a"), bos = *tokenizer->find("<s>");
  Detokenizer detokenizer(*tokenizer);
  EXPECT_EQ(detokenizer.push(bos), "");  // special tokens give no text, so the first text is still to come
  EXPECT_EQ(detokenizer.push(word), "a");
  EXPECT_EQ(detokenizer.push(word), " a");
  EXPECT_EQ(detokenizer.push(*tokenizer->find("<0xC3>")), "");
  EXPECT_EQ(detokenizer.push(*tokenizer->find("<0xA9>")), "é");
  Detokenizer special(*tokenizer, true);
  EXPECT_EQ(special.push(bos), "<s>");
  EXPECT_EQ(special.push(word), " a");
}

/// Random ids: pieces are valid UTF-8, and together they are the whole decode with broken bytes replaced.
void check_random_ids(const Tokenizer& tokenizer, uint32_t seed) {
  std::mt19937 random(seed);
  for (int round = 0; round < 300; ++round) {
    std::vector<TokenId> ids(random() % 60);
    for (auto& id : ids) id = static_cast<TokenId>(random() % static_cast<uint32_t>(tokenizer.vocabulary()));
    const bool special = round % 2 == 1;
    Detokenizer detokenizer(tokenizer, special);
    std::string text;
    for (const TokenId id : ids) {
      const std::string piece = detokenizer.push(id);
      ASSERT_TRUE(is_valid_utf8(piece));
      text += piece;
    }
    text += detokenizer.finish();
    ASSERT_EQ(text, sanitize_utf8(tokenizer.decode(ids, special)));
  }
}

TEST(Detokenizer, PiecesTogetherAreTheWholeText) {
  check_random_ids(*make(byte_spec({"Ã ©", "ð Ł", "ðŁ ĺ", "Ģ a"}, {"<s>"})), 1);
  check_random_ids(*make(sentencepiece_spec({"▁", "a", "▁a", "é", "▁▁"})), 2);
  check_random_ids(*make(sentencepiece_spec({"▁", "a", "▁a", "é", "▁▁"}, false)), 3);
}

TEST(Detokenizer, EncodedTextComesBack) {
  const auto bytes = make(byte_spec({"Ã ©", "Ġ a", "a b"}));
  const auto pieces = make(sentencepiece_spec({"▁", "a", "▁a", "é", "▁▁", "b"}));
  std::mt19937 random(4);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (size_t i = 0, length = random() % 30; i < length; ++i) {
      append_utf8(text, random() % 2 == 0 ? "ab é\n"[random() % 3] : 0xA0 + random() % 0x500);
    }
    for (const auto* tokenizer : {bytes.get(), pieces.get()}) {
      Detokenizer detokenizer(*tokenizer);
      std::string back;
      for (const TokenId id : tokenizer->encode(text, {})) back += detokenizer.push(id);
      EXPECT_EQ(back + detokenizer.finish(), text);
    }
  }
}

}  // namespace
}  // namespace quintet
