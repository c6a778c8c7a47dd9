// Models with random damage: whatever is wrong, loading ends with a message or with a model, never with a
// crash.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "backend/reference/reference.h"
#include "model/bad_folder.h"
#include "model/model.h"
#include "model/single_sequence.h"

namespace quintet::testing {
namespace {

class Damage : public ::testing::Test {
 protected:
  void TearDown() override {
    if (HasFailure()) ADD_FAILURE() << "seed " << seed_;
  }

  /// Loads and, where that works, runs a step.
  void load_and_run(const std::string& path) {
    const auto backend = make_reference_backend();
    const auto model = load_model(path, *backend, {});
    if (!model) {
      EXPECT_FALSE(model.error().message.empty());
      EXPECT_NE(model.error().kind, ErrorKind::internal) << model.error().message;
      ++refused_;
      return;
    }
    const std::vector<TokenId> tokens = {0, (*model)->config.vocabulary - 1, 0};
    SingleSequence sequence(*backend, **model, 3, 3);
    EXPECT_EQ(sequence.feed(tokens, 1).size(), static_cast<size_t>((*model)->config.vocabulary));
    ++loaded_;
  }

  const uint32_t seed_ = std::random_device{}();
  std::mt19937 random_{seed_};
  int refused_ = 0, loaded_ = 0;
};

TEST_F(Damage, BytesOfAGguf) {
  const std::string good = read_text(kTiny + "llama3.gguf");
  const size_t header_bytes = good.find("blk.1.ffn_norm.weight") + 200;  // metadata and the list of tensors
  FolderCopy folder("llama3");
  for (int i = 0; i < 1000; ++i) {
    std::string bad = good;
    const int changes = 1 + static_cast<int>(random_() % 3);
    for (int c = 0; c < changes; ++c) bad[random_() % header_bytes] = static_cast<char>(random_());
    folder.write("bad.gguf", bad);
    load_and_run(folder.file("bad.gguf"));
  }
  EXPECT_GT(refused_, 0);
}

TEST_F(Damage, LengthOfAGguf) {
  const std::string good = read_text(kTiny + "qwen3.gguf");
  FolderCopy folder("llama3");
  for (int i = 0; i < 100; ++i) {
    folder.write("bad.gguf", good.substr(0, random_() % good.size()));
    load_and_run(folder.file("bad.gguf"));
  }
  EXPECT_EQ(loaded_, 0);
}

/// Fields of config.json replaced by values that are wrong in kind or size.
TEST_F(Damage, FieldsOfConfigJson) {
  const std::vector<std::string> values = {"null",        "0",      "-1",         "1",
                                           "3",           "17",     "2147483647", "2147483648",
                                           "-2147483649", "1e308",  "-0.0",       "0.5",
                                           "true",        "\"\"",   "\"x\"",      "[]",
                                           "[0]",         "[null]", "{}",         "{\"rope_type\": 3}"};
  for (const std::string model : {"llama3", "qwen2"}) {
    const nlohmann::json config = nlohmann::json::parse(read_text(kTiny + model + "/config.json"));
    for (const auto& [key, value] : config.items()) {
      FolderCopy folder(model);
      for (int i = 0; i < 4; ++i) {
        nlohmann::json bad = config;
        bad[key] = nlohmann::json::parse(values[random_() % values.size()]);
        folder.write("config.json", bad.dump());
        SCOPED_TRACE(key + ": " + bad[key].dump());
        load_and_run(folder.path());
      }
    }
  }
  EXPECT_GT(refused_, 0);
  EXPECT_GT(loaded_, 0);
}

TEST_F(Damage, BytesOfTheTexts) {
  for (const std::string file :
       {"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"}) {
    FolderCopy folder("llama3");
    const std::string good = read_text(folder.file(file));
    for (int i = 0; i < 40; ++i) {
      std::string bad = good;
      if (i % 4 == 0) bad.resize(random_() % bad.size());
      for (int c = 0; c < 2 && !bad.empty(); ++c)
        bad[random_() % bad.size()] = "\"{}[],:0-\x80 "[random_() % 11];
      folder.write(file, bad);
      load_and_run(folder.path());
    }
  }
  EXPECT_GT(refused_, 0);
}

}  // namespace
}  // namespace quintet::testing
