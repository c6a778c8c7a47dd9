// Weights of a model: what is missing, doubled, misshapen or left over; and whole models with their texts.
#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <map>
#include <nlohmann/json.hpp>

#include "backend/reference/reference.h"
#include "model/bad_folder.h"
#include "model/config_reader.h"
#include "model/loader.h"
#include "model/model.h"
#include "model/weight_map.h"

namespace quintet::testing {
namespace {

/// One tensor of a safetensors file that is being changed.
struct Entry {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string bytes;
};
using Entries = std::map<std::string, Entry>;

Entries read_safetensors(const std::string& path) {
  const std::string text = read_text(path);
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, text.data(), 8);
  Entries entries;
  const nlohmann::json header = nlohmann::json::parse(text.substr(8, header_bytes));
  for (const auto& [name, value] : header.items()) {
    if (name == "__metadata__") continue;
    const size_t begin = value["data_offsets"][0], end = value["data_offsets"][1];
    entries[name] = {value["dtype"], value["shape"], text.substr(8 + header_bytes + begin, end - begin)};
  }
  return entries;
}

std::string write_safetensors(const Entries& entries) {
  nlohmann::json header;
  std::string data;
  for (const auto& [name, entry] : entries) {
    header[name] = {{"dtype", entry.dtype},
                    {"shape", entry.shape},
                    {"data_offsets", {data.size(), data.size() + entry.bytes.size()}}};
    data += entry.bytes;
  }
  const std::string text = header.dump();
  const uint64_t header_bytes = text.size();
  return std::string(reinterpret_cast<const char*>(&header_bytes), 8) + text + data;
}

Result<ModelWeights> load(const std::string& path) {
  Result<ModelFiles> files = ModelFiles::open(path);
  if (!files) return files.error();
  Result<ModelConfig> config = read_config(*files, 0);
  if (!config) return config.error();
  const auto backend = make_reference_backend();
  WeightSource source{std::move(files).value(), {}};
  return load_weights(source, *config, *backend, {});
}

TEST(Weights, WrongTensorsAreNamed) {
  struct Case {
    std::string model;
    void (*change)(Entries& entries);
    std::vector<std::string> says;
  };
  const std::vector<Case> cases = {
      {"qwen2",
       [](Entries& e) { e.erase("model.layers.1.self_attn.k_proj.weight"); },
       {"model.layers.1.self_attn.k_proj.weight"}},
      {"qwen2",
       [](Entries& e) { e.erase("model.layers.0.self_attn.v_proj.bias"); },
       {"model.layers.0.self_attn.v_proj.bias"}},
      {"qwen2", [](Entries& e) { e.erase("lm_head.weight"); }, {"lm_head.weight"}},
      {"qwen3",
       [](Entries& e) { e.erase("model.layers.0.self_attn.q_norm.weight"); },
       {"self_attn.q_norm.weight"}},
      {"mistral",
       [](Entries& e) {
         std::swap(e["model.layers.0.self_attn.k_proj.weight"].shape[0],
                   e["model.layers.0.self_attn.k_proj.weight"].shape[1]);
       },
       {"model.layers.0.self_attn.k_proj.weight", "32 x 64", "64 x 32"}},
      {"mistral",
       [](Entries& e) {
         e["model.layers.0.input_layernorm.weight"].shape = {16, 2};
       },
       {"input_layernorm.weight", "16 x 2", "1 x 32"}},
      {"phi3",
       [](Entries& e) {
         auto& t = e["model.layers.0.mlp.gate_up_proj.weight"];
         t.shape[0] -= 2, t.bytes.resize(t.bytes.size() - 2 * 128 * 2);
       },
       {"gate_up_proj.weight", "126 x 128", "128 x 128"}},
      {"mistral",
       [](Entries& e) { e["model.layers.2.mlp.up_proj.weight"] = e["model.layers.1.mlp.up_proj.weight"]; },
       {"model.layers.2.mlp.up_proj.weight", "no place", "mistral", "2 layers"}},
      {"mistral",
       [](Entries& e) {
         e["model.layers.0.self_attn.q_proj.bias"] = {"F32", {128}, std::string(512, '\0')};
       },
       {"q_proj.bias", "no place"}},
      {"gemma3",
       [](Entries& e) {
         auto& t = e["model.layers.3.mlp.up_proj.weight"];
         t.bytes[1] = '\x7f', t.bytes[0] = '\xc0';
       },
       {"model.layers.3.mlp.up_proj.weight", "nan", "finite"}},
  };
  for (const Case& wrong : cases) {
    FolderCopy folder(wrong.model);
    Entries entries = read_safetensors(folder.file("model.safetensors"));
    wrong.change(entries);
    folder.write("model.safetensors", write_safetensors(entries));
    const Result<ModelWeights> weights = load(folder.path());
    ASSERT_FALSE(weights.has_value()) << wrong.says[0];
    EXPECT_EQ(weights.error().kind, ErrorKind::bad_input);
    for (const std::string& part : wrong.says)
      EXPECT_NE(weights.error().message.find(part), std::string::npos)
          << "'" << part << "' in: " << weights.error().message;
  }
}

TEST(Weights, WhatIsAllowedBeside) {
  FolderCopy folder("qwen3");  // tied
  Entries entries = read_safetensors(folder.file("model.safetensors"));
  entries["lm_head.weight"] = entries["model.embed_tokens.weight"];
  entries["model.layers.0.self_attn.rotary_emb.inv_freq"] = {"F32", {32}, std::string(128, '\0')};
  folder.write("model.safetensors", write_safetensors(entries));
  const Result<ModelWeights> weights = load(folder.path());
  EXPECT_TRUE(weights.has_value()) << weights.error().message;
  EXPECT_TRUE(weights->head.empty());
}

TEST(Weights, ProgressReachesTheWholeAndNothingIsCopiedTwice) {
  const auto backend = make_reference_backend();
  auto files = ModelFiles::open(kTiny + "phi3.gguf");
  ASSERT_TRUE(files.has_value());
  auto config = read_config(*files, 0);
  ASSERT_TRUE(config.has_value());
  WeightSource source{std::move(files).value(), {}};
  uint64_t done = 0, total = 0, last = 0;
  LoadOptions options;
  options.progress = [&](uint64_t d, uint64_t t) {
    EXPECT_GE(d, last);
    last = done = d;
    total = t;
  };
  const auto weights = load_weights(source, *config, *backend, options);
  ASSERT_TRUE(weights.has_value());
  EXPECT_EQ(done, total);
  uint64_t tensors = 0;
  for (const ModelTensor& tensor : source.files.tensors()) tensors += tensor.weight.bytes.size();
  EXPECT_EQ(total, tensors);
  EXPECT_EQ(weights->bytes, tensors);
  EXPECT_EQ(weights->layer[0].qkv.part_rows, (std::vector<int64_t>{128, 64, 64}));
}

TEST(Weights, NothingIsPreparedUnlessAdmitted) {
  const auto backend = make_reference_backend();
  auto files = ModelFiles::open(kTiny + "phi3.gguf");
  ASSERT_TRUE(files.has_value());
  auto config = read_config(*files, 0);
  ASSERT_TRUE(config.has_value());
  WeightSource source{std::move(files).value(), {}};
  uint64_t tensors = 0;
  for (const ModelTensor& tensor : source.files.tensors()) tensors += tensor.weight.bytes.size();
  LoadOptions options;
  options.admit = [&](const ModelNeeds& needs) -> Status {
    EXPECT_EQ(needs.weights_bytes, tensors);
    EXPECT_EQ(needs.config.layers, config->layers);
    return no_room("too large");
  };
  options.progress = [](uint64_t, uint64_t) { ADD_FAILURE() << "a weight was prepared"; };
  const auto weights = load_weights(source, *config, *backend, options);
  ASSERT_FALSE(weights.has_value());
  EXPECT_EQ(weights.error().kind, ErrorKind::no_room);
  EXPECT_EQ(weights.error().message, "too large");
}

// --- whole models
// ------------------------------------------------------------------------------------------------

TEST(LoadModel, FolderWithTexts) {
  const auto backend = make_reference_backend();
  const auto model = load_model(kTiny + "llama3", *backend, {});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const Model& m = **model;
  EXPECT_EQ(m.config.architecture, "llama");
  EXPECT_EQ(m.stop_ids, (std::vector<TokenId>{257, 259}));
  EXPECT_FLOAT_EQ(*m.defaults.temperature, 0.7f);
  EXPECT_FLOAT_EQ(*m.defaults.top_p, 0.8f);
  EXPECT_EQ(*m.defaults.top_k, 20);
  EXPECT_FLOAT_EQ(*m.defaults.repeat_penalty, 1.05f);
  EXPECT_EQ(m.tokenizer->encode("ab<|end|>", {.parse_special = true}), (std::vector<TokenId>{256, 260, 257}));
  ASSERT_NE(m.chat_template, nullptr);
  const auto text = m.chat_template->render({.messages_json = R"([{"role": "user", "content": "hi"}])"});
  ASSERT_TRUE(text.has_value()) << text.error().message;
  EXPECT_EQ(*text, "<|user|>hi<|end|><|assistant|>");
}

TEST(LoadModel, GgufWithTexts) {
  const auto backend = make_reference_backend();
  const auto model = load_model(kTiny + "llama3.gguf", *backend, {});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ((*model)->tokenizer->encode("ab", {}), (std::vector<TokenId>{256, 260}));
  EXPECT_EQ((*model)->stop_ids, (std::vector<TokenId>{257}));
  EXPECT_NE((*model)->chat_template, nullptr);
}

TEST(LoadModel, TokenizerFromElsewhere) {
  const auto backend = make_reference_backend();
  EXPECT_FALSE(load_model(kTiny + "mistral", *backend, {}).has_value());  // it has none
  for (const std::string path : {"llama3.gguf", "llama3", "llama3/tokenizer.json"}) {
    const auto model = load_model(kTiny + "mistral", *backend, {.tokenizer_path = kTiny + path});
    ASSERT_TRUE(model.has_value()) << path << ": " << model.error().message;
    EXPECT_EQ((*model)->tokenizer->encode("ab", {.add_bos = false}), (std::vector<TokenId>{260})) << path;
    EXPECT_NE((*model)->chat_template, nullptr) << path;
  }
}

TEST(LoadModel, TokenizerLargerThanTheEmbedding) {
  FolderCopy folder("llama3");
  auto tokenizer = nlohmann::json::parse(read_text(folder.file("tokenizer.json")));
  for (int i = 0; i < 20; ++i) {
    tokenizer["added_tokens"].push_back({{"id", 261 + i},
                                         {"content", "<extra" + std::to_string(i) + ">"},
                                         {"single_word", false},
                                         {"lstrip", false},
                                         {"rstrip", false},
                                         {"normalized", false},
                                         {"special", true}});
  }
  folder.write("tokenizer.json", tokenizer.dump());
  const auto backend = make_reference_backend();
  const auto model = load_model(folder.path(), *backend, {});
  ASSERT_FALSE(model.has_value());
  EXPECT_NE(model.error().message.find("281 tokens"), std::string::npos) << model.error().message;
  EXPECT_NE(model.error().message.find("272"), std::string::npos) << model.error().message;
}

TEST(LoadModel, ChatTemplateChoice) {
  const auto chosen = [](FolderCopy& folder) {
    const auto model = load_text(folder.path(), {});
    EXPECT_TRUE(model.has_value());
    return (*model)->chat_template_source;
  };
  FolderCopy folder("llama3");
  folder.patch(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]})");
  EXPECT_EQ(chosen(folder), "D");
  folder.patch(
      "tokenizer_config.json",
      R"({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "rag", "template": "R"}]})");
  EXPECT_EQ(chosen(folder), "T");
  folder.write("chat_template.jinja", "J");
  EXPECT_EQ(chosen(folder), "J");
  folder.write("mine.jinja", "M");
  const auto model = load_text(folder.path(), {.chat_template_path = folder.file("mine.jinja")});
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ((*model)->chat_template_source, "M");
}

TEST(LoadModel, BrokenTemplates) {
  FolderCopy folder("llama3");
  folder.write("chat_template.jinja", "{% for %}");
  const auto model = load_text(folder.path(), {});
  ASSERT_TRUE(model.has_value());  // it can still continue raw text
  EXPECT_EQ((*model)->chat_template, nullptr);
  EXPECT_NE((*model)->chat_template_error.find("chat template"), std::string::npos);
  EXPECT_FALSE(
      load_text(folder.path(), {.chat_template_path = folder.file("chat_template.jinja")}).has_value());
  EXPECT_FALSE(load_text(folder.path(), {.chat_template_path = folder.file("absent.jinja")}).has_value());
}

TEST(LoadModel, ATemplateOfManyBeginningsTakesLinearTime) {
  FolderCopy folder("llama3");
  std::string source = "{#";
  for (int i = 0; i < 500'000; ++i) source += "<|";
  folder.write("chat_template.jinja", source + "|>#}");
  const std::clock_t before = std::clock();
  EXPECT_TRUE(load_text(folder.path(), {}).has_value());
  EXPECT_LT(std::clock() - before, 10 * CLOCKS_PER_SEC);
}

TEST(LoadModel, WrongTexts) {
  struct Case {
    std::string file, patch;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases = {
      {"generation_config.json", R"({"temperature": -1})", {"generation_config.json", "temperature", "-1"}},
      {"generation_config.json", R"({"top_k": 1.5})", {"top_k", "1.5"}},
      {"generation_config.json", R"({"eos_token_id": "x"})", {"eos_token_id", "x", "token id"}},
      {"generation_config.json", R"({"do_sample": 1})", {"do_sample", "1"}},
      {"tokenizer_config.json",
       R"({"bos_token": "<nowhere>"})",
       {"tokenizer_config.json", "bos_token", "<nowhere>", "vocabulary"}},
      {"tokenizer_config.json", R"({"bos_token": 3})", {"bos_token", "3"}},
      {"tokenizer_config.json", R"({"chat_template": 3})", {"chat_template", "3"}},
  };
  for (const Case& wrong : cases) {
    FolderCopy folder("llama3");
    folder.patch(wrong.file, wrong.patch);
    const auto model = load_text(folder.path(), {});
    ASSERT_FALSE(model.has_value()) << wrong.patch;
    for (const std::string& part : wrong.says)
      EXPECT_NE(model.error().message.find(part), std::string::npos)
          << "'" << part << "' in: " << model.error().message;
  }
}

TEST(LoadText, VocabularyAlone) {
  FolderCopy folder("llama3");
  std::filesystem::remove(folder.file("config.json"));
  const auto model = load_text(folder.path(), {});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  EXPECT_EQ((*model)->config.layers, 0);
  EXPECT_EQ((*model)->tokenizer->vocabulary(), 261);
}

}  // namespace
}  // namespace quintet::testing
