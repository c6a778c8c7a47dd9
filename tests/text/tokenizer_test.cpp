// Encoding with small vocabularies: merges, special tokens and their flags, BOS and EOS, unknown text, long
// texts, threads.
#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <map>
#include <random>
#include <thread>

#include "text/prefix_tree.h"
#include "text/tokenizer_specs.h"
#include "text/unicode.h"

namespace quintet {
namespace {

using test::byte_spec;
using test::encode_texts;
using test::make;
using test::sentencepiece_spec;
using testing::ElementsAre;
using testing::IsEmpty;

using Texts = std::vector<std::string>;

TEST(Tokenizer, MergesByRank) {
  const auto tokenizer = make(byte_spec({"l o", "lo w", "Ġ low", "e r", "w e"}));
  for (int again = 0; again < 2; ++again) {  // the second time from what is remembered about whole words
    EXPECT_THAT(encode_texts(*tokenizer, "low lower"), ElementsAre("low", "Ġlow", "er"));
    EXPECT_THAT(encode_texts(*tokenizer, "we"), ElementsAre("we"));
  }
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("low lower", {})), "low lower");
}

TEST(Tokenizer, AWholeWordIsATokenOnlyIfMergingSaysSoOrMergesAreIgnored) {
  auto spec = byte_spec({"a b", "b c", "ab c"});
  spec.merges = {"b c", "a b", "ab c"};  // "abc" is a token, but merging gives a, bc
  const auto merging = make(spec);
  for (int again = 0; again < 2; ++again) EXPECT_THAT(encode_texts(*merging, "abc"), ElementsAre("a", "bc"));
  spec.ignore_merges = true;
  EXPECT_THAT(encode_texts(*make(spec), "abc"), ElementsAre("abc"));
}

TEST(Tokenizer, TextThatLooksLikeASpecialTokenIsText) {
  const auto tokenizer = make(byte_spec({"< |"}, {"<|>", "<|end|>"}));
  EXPECT_THAT(encode_texts(*tokenizer, "a<|>b"), ElementsAre("a", "<|", ">", "b"));
  EXPECT_THAT(encode_texts(*tokenizer, "a<|>b<|end|>", {.parse_special = true}),
              ElementsAre("a", "<|>", "b", "<|end|>"));
  EXPECT_EQ(tokenizer->find("<|>"), tokenizer->encode("<|>", {.parse_special = true})[0]);
  EXPECT_EQ(tokenizer->piece(*tokenizer->find("<|>")), "");
  EXPECT_EQ(tokenizer->piece(*tokenizer->find("<|>"), true), "<|>");
  EXPECT_TRUE(tokenizer->is_special(*tokenizer->find("<|>")));
  EXPECT_FALSE(tokenizer->is_special(*tokenizer->find("a")));
}

TEST(Tokenizer, MergesNeverMakeASpecialToken) {
  auto spec = byte_spec({"< |"}, {"<|>"});
  spec.merges.push_back("<| >");
  EXPECT_THAT(encode_texts(*make(spec), "<|>"), ElementsAre("<|", ">"));
  auto scored = sentencepiece_spec({"<", "s", ">", "<s"}, false);
  EXPECT_THAT(encode_texts(*make(scored), "<s>"), ElementsAre("<s", ">"));
}

TEST(Tokenizer, AddedTokensKeepTheirFlags) {
  auto spec = byte_spec({}, {"<x>"});
  const auto id = static_cast<TokenId>(spec.tokens.size() - 1);
  const auto with = [&](AddedToken token, std::string_view text) {
    auto copy = spec;
    token.id = id;
    token.text = "<x>";
    token.special = true;
    copy.added = {token};
    std::string out;
    for (const auto& piece : encode_texts(*make(copy), text, {.parse_special = true})) out += piece + "/";
    return out;
  };
  EXPECT_EQ(with({}, "a <x> b"), "a/Ġ/<x>/Ġ/b/");
  EXPECT_EQ(with({.lstrip = true}, "a \n<x> b"), "a/<x>/Ġ/b/");
  EXPECT_EQ(with({.rstrip = true}, "a <x> \n\u3000b"), "a/Ġ/<x>/b/");
  EXPECT_EQ(with({.single_word = true}, "a<x> <x> <x>b"), "a/</x/>/Ġ/<x>/Ġ/</x/>/b/");
  EXPECT_EQ(with({.single_word = true}, "é<x>"), "Ã/©/</x/>/");
}

TEST(Tokenizer, NormalizedAddedTokensAreFoundInNormalizedText) {
  auto spec = byte_spec({}, {});
  spec.normalizers = {{.kind = NormalizerStep::Kind::lowercase}};
  spec.tokens.push_back("<Yes>");
  spec.types.push_back(TokenizerSpec::TokenType::user_defined);
  spec.added = {{.id = 256, .text = "<Yes>", .normalized = true}};
  EXPECT_THAT(make(spec)->encode("<YES>", {}), ElementsAre(256));
  spec.added[0].normalized = false;
  EXPECT_EQ(make(spec)->encode("<YES>", {}).size(), 5u);
  EXPECT_THAT(make(spec)->encode("<Yes>", {}), ElementsAre(256));
}

TEST(Tokenizer, TheLongestAddedTokenAtTheLeftmostPlaceWins) {
  auto spec = byte_spec({}, {"<a>", "<a>b", "a>bc"});
  EXPECT_THAT(encode_texts(*make(spec), "<a>bc", {.parse_special = true}), ElementsAre("<a>b", "c"));
}

TEST(Tokenizer, AddsBosAndEosWhereTheRulesSaySo) {
  auto spec = byte_spec({}, {"<s>", "</s>"});
  spec.bos = 256;
  spec.eos = 257;
  EXPECT_THAT(make(spec)->encode("a", {}), ElementsAre('a'));
  spec.add_bos = true;
  EXPECT_THAT(make(spec)->encode("a", {}), ElementsAre(256, 'a'));
  spec.add_eos = true;
  EXPECT_THAT(make(spec)->encode("", {}), ElementsAre(256, 257));
  EXPECT_THAT(make(spec)->encode("a", {.add_bos = false}), ElementsAre('a'));
}

TEST(Tokenizer, EndTokensComeFromTheMetadataAndFromKnownNames) {
  auto spec = byte_spec({}, {"<x>", "<|im_end|>", "<y>", "<|im_start|>", "</s>"});
  spec.eos = 256;
  spec.eot = 258;
  EXPECT_THAT(make(spec)->end_tokens(), ElementsAre(256, 258, 260, 257));
}

TEST(Tokenizer, UnknownTextIsLeftOutOrMarkedOrSpeltInBytes) {
  auto spec = byte_spec({"a b"}, {"<unk>"});
  spec.tokens['c'] = "[none]";  // nothing stands for c
  spec.unk = 257;
  EXPECT_THAT(encode_texts(*make(spec), "acb"), ElementsAre("ab"));  // the neighbours meet
  spec.emit_unknown = true;
  EXPECT_THAT(encode_texts(*make(spec), "accb"), ElementsAre("a", "<unk>", "<unk>", "b"));
  spec.fuse_unknown = true;
  EXPECT_THAT(encode_texts(*make(spec), "accb"), ElementsAre("a", "<unk>", "b"));

  auto pieces = sentencepiece_spec({"▁", "a", "▁a"});
  EXPECT_THAT(encode_texts(*make(pieces), "aé"), ElementsAre("▁a", "<0xC3>", "<0xA9>"));
  pieces.byte_fallback = false;
  pieces.emit_unknown = true;
  EXPECT_THAT(encode_texts(*make(pieces), "aéé"), ElementsAre("▁a", "<unk>", "<unk>"));
}

TEST(Tokenizer, BrokenUtf8CountsAsReplacementCharacters) {
  const auto tokenizer = make(byte_spec({"Ġ a"}));
  const std::string broken = "x\xE2\x82 a\xF0\x9F\x98\xC0\x80z\xFF";
  EXPECT_EQ(tokenizer->encode(broken, {}), tokenizer->encode("x\uFFFD a\uFFFD\uFFFD\uFFFDz\uFFFD", {}));
}

TEST(Tokenizer, SentencePieceMarksSpaces) {
  const auto tokenizer = make(sentencepiece_spec({"▁", "a", "b", "▁a", "▁ab", "▁▁", "ab"}));
  EXPECT_THAT(encode_texts(*tokenizer, "ab  ab"), ElementsAre("▁ab", "▁", "▁ab"));
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("ab  ab", {})), "ab  ab");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("  ab", {})), "  ab");
  EXPECT_THAT(tokenizer->encode("", {}), IsEmpty());
}

TEST(Tokenizer, ATokenThatSpansASpaceIsStillMade) {
  // Most texts may be cut before each ▁; not where a token like this one could lie.
  const auto tokenizer =
      make(sentencepiece_spec({"▁", "<", ">", "/", "a", ">▁", ">▁<", "</", "▁<", "▁a", "a▁"}, false));
  EXPECT_THAT(encode_texts(*tokenizer, "a> < a"), ElementsAre("a", ">▁<", "▁a"));
  EXPECT_THAT(encode_texts(*tokenizer, "a a"),
              ElementsAre("a", "▁a"));  // the better score, not the cut, decides
}

// Naive merging: looks for the best pair again and again.
std::vector<std::string> merge_naively(std::vector<std::string> parts,
                                       const std::vector<std::string>& merges) {
  while (true) {
    size_t best_rank = merges.size(), best = 0;
    for (size_t i = 0; i + 1 < parts.size(); ++i) {
      for (size_t rank = 0; rank < best_rank; ++rank) {
        if (merges[rank] == parts[i] + " " + parts[i + 1]) {
          best_rank = rank;
          best = i;
        }
      }
    }
    if (best_rank == merges.size()) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

TEST(Tokenizer, ShortAndLongWordsMergeAsTheNaiveWay) {
  std::mt19937 random(7);
  for (int round = 0; round < 30; ++round) {
    // Random merges over three letters, each of parts that exist.
    Texts parts = {"a", "b", "c"}, merges;
    while (merges.size() < 40) {
      const std::string left = parts[random() % parts.size()], right = parts[random() % parts.size()];
      if (left.size() + right.size() > 9) continue;
      const std::string merge = left + " " + right;
      if (std::find(merges.begin(), merges.end(), merge) != merges.end()) continue;
      merges.push_back(merge);
      if (std::find(parts.begin(), parts.end(), left + right) == parts.end()) parts.push_back(left + right);
    }
    std::shuffle(merges.begin(), merges.end(), random);
    auto spec = byte_spec(merges);
    const auto tokenizer = make(spec);
    for (int word = 0; word < 40; ++word) {
      std::string text;
      Texts letters;
      const size_t length = 1 + random() % (word % 2 == 0 ? 40 : 150);
      for (size_t i = 0; i < length; ++i) {
        letters.emplace_back(1, static_cast<char>('a' + random() % 3));
        text += letters.back();
      }
      EXPECT_EQ(encode_texts(*tokenizer, text), merge_naively(letters, merges)) << text;
    }
  }
}

TEST(Tokenizer, ScoresMergeAsTheListThatTransformersMakesOfThem) {
  std::mt19937 random(11);
  for (int round = 0; round < 20; ++round) {
    Texts pieces = {"a", "b", "▁"};
    while (pieces.size() < 30) {
      std::string piece = pieces[random() % pieces.size()] + pieces[random() % pieces.size()];
      if (std::find(pieces.begin(), pieces.end(), piece) == pieces.end()) pieces.push_back(piece);
    }
    auto spec = sentencepiece_spec(pieces, false);
    const size_t first = spec.tokens.size() - pieces.size();
    for (size_t i = 0; i < pieces.size(); ++i)
      spec.scores[first + i] = -static_cast<double>(random() % 12);  // with ties
    struct Merge {
      double score;
      size_t left_chars, right_chars, id;
      std::string text;
    };
    std::vector<Merge> list;
    const auto chars = [](std::string_view text) {
      size_t count = 0;
      for (const char c : text) count += (static_cast<uint8_t>(c) & 0xC0) != 0x80;
      return count;
    };
    for (size_t i = 0; i < pieces.size(); ++i) {
      for (const auto& left : pieces) {
        for (const auto& right : pieces) {
          if (left + right != pieces[i]) continue;
          list.push_back({spec.scores[first + i], chars(left), chars(right), i, left + " " + right});
        }
      }
    }
    std::stable_sort(list.begin(), list.end(), [](const Merge& a, const Merge& b) {
      return std::tuple(-a.score, -static_cast<double>(a.left_chars), -static_cast<double>(a.right_chars),
                        a.id) < std::tuple(-b.score, -static_cast<double>(b.left_chars),
                                           -static_cast<double>(b.right_chars), b.id);
    });
    Texts merges;
    for (const auto& merge : list) merges.push_back(merge.text);
    const auto tokenizer = make(spec);
    for (int word = 0; word < 40; ++word) {
      std::string text;
      Texts letters;
      for (size_t i = 0, length = 1 + random() % 90; i < length; ++i) {
        const char c = "ab "[random() % 3];
        text += c;
        letters.push_back(c == ' ' ? "▁" : std::string(1, c));
      }
      EXPECT_EQ(encode_texts(*tokenizer, text), merge_naively(letters, merges)) << text;
    }
  }
}

TEST(Tokenizer, UnigramTakesTheBestPath) {
  std::mt19937 random(3);
  TokenizerSpec spec;
  spec.kind = TokenizerSpec::Kind::unigram;
  spec.tokens = {"<unk>"};
  spec.types = {TokenizerSpec::TokenType::unknown};
  spec.scores = {0};
  spec.unk = 0;
  spec.emit_unknown = spec.fuse_unknown = true;
  for (const char* piece : {"a", "b", "ab", "ba", "aab", "abba", "bb", "é", "éa"}) {
    spec.tokens.emplace_back(piece);
    spec.types.push_back(TokenizerSpec::TokenType::normal);
    spec.scores.push_back(-1 - static_cast<double>(random() % 1000) / 100);
  }
  const auto tokenizer = make(spec);
  for (int round = 0; round < 200; ++round) {
    std::string text;
    for (size_t i = 0, length = 1 + random() % 12; i < length; ++i)
      text += std::vector<std::string>{"a", "b", "é"}[random() % 3];
    // The best of all segmentations, by recursion from the left.
    std::vector<double> best(text.size() + 1, -1e300);
    best[0] = 0;
    for (size_t at = 0; at < text.size(); ++at) {
      for (size_t id = 1; id < spec.tokens.size(); ++id) {
        if (std::string_view(text).substr(at).starts_with(spec.tokens[id])) {
          double& target = best[at + spec.tokens[id].size()];
          target = std::max(target, best[at] + spec.scores[id]);
        }
      }
    }
    double sum = 0;
    std::string joined;
    for (const TokenId id : tokenizer->encode(text, {})) {
      sum += spec.scores[static_cast<size_t>(id)];
      joined += spec.tokens[static_cast<size_t>(id)];
    }
    EXPECT_EQ(joined, text);
    EXPECT_NEAR(sum, best[text.size()], 1e-9 * static_cast<double>(text.size()));
  }
  EXPECT_THAT(encode_texts(*tokenizer, "axxb"), ElementsAre("a", "<unk>", "b"));
}

TEST(Tokenizer, LongTextsOfEveryKindTakeLinearTime) {
  constexpr size_t kBytes = 256 << 10;
  std::vector<std::pair<std::string, std::string>> texts;
  const auto repeat = [](std::string_view part) {
    std::string out;
    while (out.size() < kBytes) out += part;
    return out;
  };
  for (const char* part : {" ",         "a",        "7",       "\n",           "\t",
                           "!",         " a",       "a ",      "\r\n ",        "'s",
                           "世",        "é",        "e\u0301", "\u0301\u0316", "👩‍👩‍👧",
                           "\xFF",      "\xE2\x82", "A",       "aA",           "<|",
                           "<|im_end|", "ab1 ",     "ㅋ",      "\u3000",       "\u180e"}) {
    texts.emplace_back(repeat(part), part);
  }
  texts.emplace_back(std::string(kBytes, ' ') + "a", "spaces, then a letter");
  for (const char* family : {"gpt2", "smollm", "llama-bpe", "qwen2", "qwen35", "falcon", "deepseek-llm",
                             "deepseek-coder", "deepseek-v3", "gpt-4o", "tekken", "command-r"}) {
    auto spec = byte_spec({"a a", "aa aa", "aaaa aaaa", "Ġ Ġ", "ĠĠ ĠĠ"}, {"<|im_end|>", "<|im_start|>"});
    spec.pre_tokenizer = family;
    const auto tokenizer = make(spec);
    for (const auto& [text, name] : texts) {
      const std::clock_t start = std::clock();
      const auto ids = tokenizer->encode(text, {});
      const double taken_s = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
      // Some 20 ms; 3 * 10^10 quadratic steps would take longer than the limit, which has room for a busy
      // machine.
      EXPECT_LT(taken_s, 10) << family << " on " << name;
      EXPECT_FALSE(ids.empty());
    }
  }
}

TEST(Tokenizer, ManyThreadsShareOne) {
  const auto tokenizer = make(byte_spec({"a b", "ab c", "Ġ a", "Ġa b"}));
  std::mt19937 random(5);
  std::vector<std::string> texts(200);
  for (auto& text : texts) {
    for (int i = 0; i < 100; ++i) text += "abc d\n"[random() % 6];
  }
  std::vector<std::vector<std::vector<TokenId>>> results(8);
  std::vector<std::thread> threads;
  for (auto& result : results) {
    threads.emplace_back([&] {
      for (const auto& text : texts) result.push_back(tokenizer->encode(text, {}));
    });
  }
  for (auto& thread : threads) thread.join();
  for (const auto& result : results) EXPECT_EQ(result, results[0]);
}

TEST(Tokenizer, IdsOutsideOfTheVocabularyAreNothing) {
  const auto tokenizer = make(byte_spec({}));
  for (const TokenId id : {-1, 256, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer->piece(id), "");
    EXPECT_EQ(tokenizer->token_text(id), "");
    EXPECT_FALSE(tokenizer->is_special(id));
  }
  EXPECT_EQ(tokenizer->find("nowhere"), std::nullopt);
  EXPECT_EQ(tokenizer->find("\u4e00"), std::nullopt);
}

TEST(Tokenizer, HostileVocabulariesTakeLinearTime) {
  const auto expect_quick = [](TokenizerSpec spec, const std::string& text) {
    const auto tokenizer = make(std::move(spec));
    const std::clock_t start = std::clock();
    EXPECT_FALSE(tokenizer->encode(text, {.parse_special = true}).empty());
    EXPECT_LT(std::clock() - start, 10 * CLOCKS_PER_SEC);
  };
  const std::string text(1'000'000, 'a');
  std::vector<std::string> runs;
  for (size_t length = 1; length <= 128; ++length) runs.emplace_back(length, 'a');
  auto unigram = sentencepiece_spec(runs, false);
  unigram.kind = TokenizerSpec::Kind::unigram;
  expect_quick(unigram, text);

  std::vector<std::string> added;
  for (size_t length = 150; length <= 250; length += 10) added.push_back(std::string(length, 'a') + "b");
  expect_quick(byte_spec({"a a", "aa aa"}, added), text);
}

TEST(Tokenizer, StopsWhereThereAreTooManyTokens) {
  const auto tokenizer = make(byte_spec({"a a", "aa aa", "aaaa aaaa"}));
  for (const std::string& text :
       {std::string(1'000'000, 'a'), std::string(300'000, '.') + std::string(9'000, 'b')}) {
    EXPECT_GT(tokenizer->encode(text, {.max_tokens = 100}).size(), 100u);
    EXPECT_LT(tokenizer->encode(text, {.max_tokens = 100}).size(), 1'000u);
  }
  const std::string fits = "aaaaaaaa aaaaaaaab";
  EXPECT_EQ(tokenizer->encode(fits, {.max_tokens = 4}), tokenizer->encode(fits, {}));
}

TEST(PrefixTree, FindsEveryPrefix) {
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 200; ++round) {
    std::vector<std::string> strings;
    for (size_t i = random() % 30; i > 0; --i) {
      std::string text;
      for (size_t length = random() % 6; length > 0; --length)
        text += static_cast<char>("ab\xFF"[random() % 3]);
      strings.push_back(text);
    }
    std::vector<std::pair<std::string_view, TokenId>> entries;
    for (size_t i = 0; i < strings.size(); ++i) entries.emplace_back(strings[i], static_cast<TokenId>(i));
    const PrefixTree tree(entries);
    std::string text;
    for (size_t length = random() % 9; length > 0; --length)
      text += static_cast<char>("ab\xFF"[random() % 3]);
    std::map<size_t, TokenId> wanted, got;
    for (size_t i = 0; i < strings.size(); ++i)
      if (!strings[i].empty() && text.starts_with(strings[i]))
        wanted[strings[i].size()] = static_cast<TokenId>(i);
    tree.each_prefix(text, [&](size_t bytes, TokenId value) { got[bytes] = value; });
    EXPECT_EQ(got, wanted) << testing::PrintToString(strings) << " in " << text;
  }
}

}  // namespace
}  // namespace quintet
