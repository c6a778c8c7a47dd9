// Tokenizers of real GGUF vocabularies against the ids that come with them, and what is said about wrong
// metadata.
#include "model/tokenizer_gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>

#include "io/file_builder.h"
#include "text/unicode.h"

namespace quintet {
namespace {

using test::GgufBuilder;
using testing::HasSubstr;

std::filesystem::path root() { return QUINTET_SOURCE_DIR; }

std::vector<std::filesystem::path> vocabulary_files() {
  std::vector<std::filesystem::path> files;
  const auto folder = root() / ".cache/vocab";
  if (std::filesystem::is_directory(folder)) {
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
      if (entry.path().extension() == ".gguf") files.push_back(entry.path());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<std::unique_ptr<Tokenizer>> open_tokenizer(const std::filesystem::path& path) {
  TRY_ASSIGN(const GgufFile file, GgufFile::open(path.string()));
  TRY_ASSIGN(TokenizerSpec spec, tokenizer_spec_from_gguf(file));
  return make_tokenizer(std::move(spec));
}

/// Those that are refused, and by what name.
const std::pair<const char*, const char*> kRefused[] = {{"ggml-vocab-bert-bge.gguf", "'bert' (WordPiece)"}};

std::string refused_as(const std::filesystem::path& path) {
  for (const auto& [file, name] : kRefused) {
    if (path.filename() == file) return name;
  }
  return "";
}

TEST(TokenizerGguf, RealVocabulariesGiveTheIdsThatComeWithThem) {
  const auto files = vocabulary_files();
  if (files.empty()) GTEST_SKIP() << ".cache/vocab is empty; run `make vocab`";
  int compared = 0;
  for (const auto& path : files) {
    const auto tokenizer = open_tokenizer(path);
    if (const std::string name = refused_as(path); !name.empty()) {
      ASSERT_FALSE(tokenizer);
      EXPECT_THAT(tokenizer.error().message, HasSubstr(name));
      continue;
    }
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    const auto inputs = path.string() + ".inp", outputs = path.string() + ".out";
    if (!std::filesystem::exists(inputs)) continue;
    const std::string text = read_file(inputs);
    std::istringstream ids(read_file(outputs));
    constexpr std::string_view kEnd = "\n__ggml_vocab_test__\n";
    for (size_t at = 0; at < text.size();) {
      const size_t end = std::min(text.find(kEnd, at), text.size());  // none behind the last
      std::string line;
      std::getline(ids, line);
      std::istringstream numbers(line);
      const std::vector<TokenId> expected{std::istream_iterator<TokenId>(numbers), {}};
      EXPECT_EQ((*tokenizer)->encode(std::string_view(text).substr(at, end - at), {.add_bos = false}),
                expected)
          << path.filename() << ": " << text.substr(at, end - at);
      at = end + kEnd.size();
      ++compared;
    }
  }
  EXPECT_GE(compared, 46 * 14);
}

/// Random ids, and the ids of a text that is cut between characters.
void check_detokenizer(const Tokenizer& tokenizer, std::mt19937& random) {
  for (int round = 0; round < 40; ++round) {
    std::vector<TokenId> ids(random() % 100);
    for (auto& id : ids) id = static_cast<TokenId>(random() % static_cast<uint32_t>(tokenizer.vocabulary()));
    const bool special = round % 2 == 1;
    Detokenizer detokenizer(tokenizer, special);
    std::string text;
    for (const TokenId id : ids) {
      const std::string piece = detokenizer.push(id);
      ASSERT_TRUE(is_valid_utf8(piece));
      text += piece;
    }
    ASSERT_EQ(text + detokenizer.finish(), sanitize_utf8(tokenizer.decode(ids, special)));
  }
}

TEST(TokenizerGguf, DetokenizesEveryVocabulary) {
  auto files = vocabulary_files();
  for (const char* name : {"SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m.Q4_K_M.gguf",
                           "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf"}) {
    if (std::filesystem::exists(root() / "models" / name)) files.push_back(root() / "models" / name);
  }
  if (files.empty()) GTEST_SKIP() << "no vocabularies; run `make vocab models`";
  std::mt19937 random(1);
  const std::string text = " Hello, wörld!  你好\n\t12345 🇫🇷👩‍👩‍👧 don't  stop ";
  for (const auto& path : files) {
    if (!refused_as(path).empty()) continue;
    const auto tokenizer = open_tokenizer(path);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    check_detokenizer(**tokenizer, random);
    if ((*tokenizer)->spec().kind == TokenizerSpec::Kind::unigram)
      continue;  // its normalizer changes the text
    EXPECT_EQ((*tokenizer)->decode((*tokenizer)->encode(text, {.add_bos = false})), text) << path;
    for (TokenId id = 0; id < (*tokenizer)->vocabulary(); id += 97) {
      if ((*tokenizer)->spec().types[static_cast<size_t>(id)] == TokenizerSpec::TokenType::unused) continue;
      EXPECT_EQ((*tokenizer)->find((*tokenizer)->token_text(id)), id) << path;
    }
  }
}

TEST(TokenizerGguf, RealModelsEndWhereTheyShould) {
  const auto path = root() / "models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent; run `make models`";
  const auto tokenizer = open_tokenizer(path);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_THAT((*tokenizer)->end_tokens(), testing::ElementsAre(2, 0));
  EXPECT_THAT((*tokenizer)->encode("<|im_start|>user\n42<|im_end|>", {.parse_special = true}),
              testing::ElementsAre(1, 4093, 198, 36, 34, 2));
  EXPECT_GT((*tokenizer)->encode("<|im_end|>", {}).size(), 1u);  // as text
}

TEST(TokenizerGguf, Phi3SwallowsSpaceAfterSpecialTokens) {
  const auto path = root() / ".cache/vocab/ggml-vocab-phi-3.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent; run `make vocab`";
  const auto tokenizer = open_tokenizer(path);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const auto ids = (*tokenizer)->encode("<|user|>\nHi<|end|>\n<|assistant|>\n", {.parse_special = true});
  EXPECT_THAT(ids, testing::ElementsAre(1, 32010, 6324, 32007, 32001));
}

using Texts = std::vector<std::string>;

struct Case {
  const char* message;
  std::function<void(GgufBuilder&)> build;
};

TEST(TokenizerGguf, RefusesWrongMetadata) {
  const auto model = [](GgufBuilder& builder, const char* name) -> GgufBuilder& {
    return builder.text("tokenizer.ggml.model", name);
  };
  const auto tokens = [](GgufBuilder& builder) -> GgufBuilder& {
    return builder.array("tokenizer.ggml.tokens", GgufType::string, Texts{"a", "b", "ab"});
  };
  const auto types = [](GgufBuilder& builder, std::vector<int32_t> list) -> GgufBuilder& {
    return builder.array("tokenizer.ggml.token_type", GgufType::i32, list);
  };
  const Case cases[] = {
      {"it has no tokenizer", [&](GgufBuilder& b) { tokens(b); }},
      {"tokenizer.ggml.model is 'rwkv' (RWKV); supported are",
       [&](GgufBuilder& b) { tokens(model(b, "rwkv")); }},
      {"tokenizer.ggml.model is 'martian'; supported are",
       [&](GgufBuilder& b) { tokens(model(b, "martian")); }},
      {"tokenizer.ggml.model",
       [&](GgufBuilder& b) { tokens(b.value<uint32_t>("tokenizer.ggml.model", GgufType::u32, 1)); }},
      {"tokenizer.ggml.tokens", [&](GgufBuilder& b) { model(b, "gpt2"); }},
      {"tokenizer.ggml.merges", [&](GgufBuilder& b) { tokens(model(b, "gpt2")); }},
      {"tokenizer.ggml.scores", [&](GgufBuilder& b) { tokens(model(b, "llama")); }},
      {"tokenizer.ggml.scores has 2 entries for 3 tokens",
       [&](GgufBuilder& b) {
         tokens(model(b, "llama")).array("tokenizer.ggml.scores", GgufType::f32, std::vector<float>{1, 2});
       }},
      {"tokenizer.ggml.tokens has 0 entries; allowed are 1 to 1048576",
       [&](GgufBuilder& b) { model(b, "gpt2").array("tokenizer.ggml.tokens", GgufType::string, Texts{}); }},
      {"tokenizer.ggml.tokens has 1048577 entries; allowed are 1 to 1048576",
       [&](GgufBuilder& b) {
         model(b, "gpt2").array("tokenizer.ggml.tokens", GgufType::string, Texts((1 << 20) + 1));
       }},
      {"tokenizer.ggml.token_type has 2 entries for 3 tokens",
       [&](GgufBuilder& b) {
         types(tokens(model(b, "gpt2")), {1, 1});
       }},
      {"tokenizer.ggml.token_type of token 1 is 9; allowed are 0 to 6",
       [&](GgufBuilder& b) {
         types(tokens(model(b, "gpt2")), {1, 9, 1});
       }},
      {"tokenizer.ggml.bos_token_id is 3; allowed are 0 to 2",
       [&](GgufBuilder& b) {
         tokens(model(b, "gpt2")).value<uint32_t>("tokenizer.ggml.bos_token_id", GgufType::u32, 3);
       }},
      {"the pre-tokenizer 'martian' is not known",
       [&](GgufBuilder& b) {
         tokens(model(b, "gpt2"))
             .text("tokenizer.ggml.pre", "martian")
             .array("tokenizer.ggml.merges", GgufType::string, Texts{"a b"});
       }},
      {"merge 0 ('a c') needs the token 'c'",
       [&](GgufBuilder& b) {
         tokens(model(b, "gpt2")).array("tokenizer.ggml.merges", GgufType::string, Texts{"a c"});
       }},
      {"BOS is to be added, but there is none",
       [&](GgufBuilder& b) {
         tokens(model(b, "gpt2"))
             .array("tokenizer.ggml.merges", GgufType::string, Texts{"a b"})
             .value<uint8_t>("tokenizer.ggml.add_bos_token", GgufType::boolean, 1);
       }},
      {"add_bos_token",
       [&](GgufBuilder& b) {
         tokens(model(b, "gpt2"))
             .array("tokenizer.ggml.merges", GgufType::string, Texts{"a b"})
             .value<uint8_t>("tokenizer.ggml.add_bos_token", GgufType::boolean, 7);
       }},
      {"precompiled_charsmap: it has 2 bytes", [&](GgufBuilder& b) {
         tokens(model(b, "t5"))
             .array("tokenizer.ggml.scores", GgufType::f32, std::vector<float>{1, 2, 3})
             .array("tokenizer.ggml.precompiled_charsmap", GgufType::u8, std::vector<uint8_t>{1, 2});
       }}};
  for (const Case& one : cases) {
    GgufBuilder builder;
    one.build(builder);
    const auto bytes = builder.build();
    const auto file = GgufFile::parse(bytes, "file.gguf");
    ASSERT_TRUE(file) << file.error().message;
    const auto build = [&]() -> Result<std::unique_ptr<Tokenizer>> {
      TRY_ASSIGN(TokenizerSpec spec, tokenizer_spec_from_gguf(*file));
      return make_tokenizer(std::move(spec));
    };
    const auto tokenizer = build();
    ASSERT_FALSE(tokenizer) << one.message;
    EXPECT_THAT(tokenizer.error().message, HasSubstr(one.message));
    EXPECT_THAT(tokenizer.error().message, HasSubstr("file.gguf"));
  }
}

}  // namespace
}  // namespace quintet
