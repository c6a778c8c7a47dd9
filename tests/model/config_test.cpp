// Configurations, right and wrong: every refusal names file, field, what was found and what is allowed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>

#include "io/file_builder.h"
#include "io/model_files.h"
#include "model/bad_folder.h"
#include "model/config_reader.h"

namespace quintet::testing {
namespace {

Result<ModelConfig> read(const std::string& path, int32_t context = 0) {
  Result<ModelFiles> files = ModelFiles::open(path);
  if (!files) return files.error();
  return read_config(*files, context);
}

struct Wrong {
  std::string model, patch;
  std::vector<std::string> says;
};

TEST(ConfigJson, RefusalsNameFieldFoundAndAllowed) {
  const std::vector<Wrong> cases = {
      {"llama-plain",
       R"({"model_type": "gpt_neox"})",
       {"model_type", "gpt_neox", "llama, mistral, qwen2, qwen3, phi3, gemma3_text"}},
      {"llama-plain", R"({"model_type": 7})", {"model_type", "7", "string"}},
      {"llama-plain",
       R"({"architectures": ["LlamaForSequenceClassification"]})",
       {"architectures", "SequenceClassification", "LlamaForCausalLM"}},
      {"llama-plain", R"({"num_hidden_layers": 0})", {"layers", "0", "1 to"}},
      {"llama-plain", R"({"num_hidden_layers": -1})", {"num_hidden_layers", "-1"}},
      {"llama-plain", R"({"num_hidden_layers": 2.5})", {"num_hidden_layers", "2.5", "whole number"}},
      {"llama-plain", R"({"num_hidden_layers": 99999999999})", {"num_hidden_layers", "99999999999"}},
      {"llama-plain", R"({"num_hidden_layers": 2000000})", {"layers", "2000000"}},
      {"llama-plain", R"({"hidden_size": null})", {"hidden_size", "absent"}},
      {"llama-plain", R"({"hidden_size": 2000000000})", {"hidden size", "2000000000"}},
      {"llama-plain", R"({"num_attention_heads": 0})", {"heads", "0"}},
      {"llama-plain", R"({"num_key_value_heads": 3})", {"key-value heads", "3"}},
      {"mistral",
       R"({"num_attention_heads": 3, "num_key_value_heads": 2})",
       {"3 attention heads", "2 key-value heads"}},
      {"llama-plain", R"({"head_dim": 12})", {"head size", "12", "multiple of 8"}},
      {"llama-plain", R"({"head_dim": 512})", {"head size", "512", "256"}},
      {"llama-plain", R"({"vocab_size": 0})", {"vocabulary", "0"}},
      {"llama-plain", R"({"max_position_embeddings": 0})", {"context", "0"}},
      {"llama-plain", R"({"rms_norm_eps": 0})", {"epsilon", "0"}},
      {"llama-plain", R"({"rms_norm_eps": "small"})", {"rms_norm_eps", "small", "number"}},
      {"llama-plain", R"({"hidden_act": "relu"})", {"hidden_act", "relu", "silu"}},
      {"llama-plain", R"({"mlp_bias": true})", {"mlp_bias", "true", "false"}},
      {"llama-plain", R"({"tie_word_embeddings": "yes"})", {"tie_word_embeddings", "yes", "true or false"}},
      {"llama-plain",
       R"({"rope_parameters": {"rope_type": "dynamic", "factor": 2}})",
       {"rope_type", "dynamic", "cached"}},
      {"llama-plain",
       R"({"rope_parameters": {"rope_type": "mrope"}})",
       {"rope_type", "mrope", "llama3, yarn"}},
      {"llama-plain", R"({"rope_parameters": [1]})", {"rope_parameters", "list", "object"}},
      {"llama-plain", R"({"rope_parameters": {"rope_theta": 0}})", {"rope base", "0"}},
      {"llama-linear", R"({"rope_parameters": {"factor": null}})", {"rope_parameters.factor", "absent"}},
      {"llama-linear", R"({"rope_parameters": {"factor": 0}})", {"factor", "0", "0.01"}},
      {"llama3", R"({"rope_parameters": {"high_freq_factor": 0.5}})", {"high frequency factor", "0.5"}},
      {"llama-yarn", R"({"rope_parameters": {"beta_fast": 0.5}})", {"beta_fast", "0.5"}},
      {"llama-yarn",
       R"({"rope_parameters": {"original_max_position_embeddings": 0}})",
       {"original_max_position_embeddings", "0"}},
      {"phi3", R"({"rope_parameters": {"partial_rotary_factor": 1.5}})", {"partial_rotary_factor", "1.5"}},
      {"phi3", R"({"rope_parameters": {"partial_rotary_factor": 0.01}})", {"rotated dimensions", "0"}},
      {"phi3-longrope",
       R"({"rope_parameters": {"short_factor": [1, 2]}})",
       {"short_factor", "list of 2", "24"}},
      {"phi3-longrope", R"({"rope_parameters": {"short_factor": ["a"]}})", {"short_factor", "numbers"}},
      {"mistral", R"({"sliding_window": -3})", {"sliding_window", "-3"}},
      {"qwen2-yarn-window", R"({"layer_types": ["full_attention"]})", {"1 layer types", "3 layers"}},
      {"qwen2-yarn-window", R"({"layer_types": ["linear_attention"]})", {"layer_types", "linear_attention"}},
      {"gemma3", R"({"final_logit_softcapping": 30.0})", {"final_logit_softcapping", "30.0"}},
      {"gemma3", R"({"query_pre_attn_scalar": 0})", {"query_pre_attn_scalar", "0"}},
      {"gemma3", R"({"use_bidirectional_attention": true})", {"use_bidirectional_attention", "true"}},
  };
  for (const Wrong& wrong : cases) {
    FolderCopy folder(wrong.model);
    folder.patch("config.json", wrong.patch);
    const Result<ModelConfig> config = read(folder.path());
    ASSERT_FALSE(config.has_value()) << wrong.patch;
    EXPECT_EQ(config.error().kind, ErrorKind::bad_input);
    EXPECT_NE(config.error().message.find("config.json"), std::string::npos) << config.error().message;
    for (const std::string& part : wrong.says)
      EXPECT_NE(config.error().message.find(part), std::string::npos)
          << "'" << part << "' in: " << config.error().message;
  }
}

TEST(ConfigJson, NotJson) {
  for (const std::string text : {"", "{", "[]", "nul", "{\"a\": 1} x"}) {
    FolderCopy folder("llama-plain");
    folder.write("config.json", text);
    EXPECT_FALSE(read(folder.path()).has_value()) << text;
  }
}

/// Transformers 4 wrote scaling, base and window differently; both must mean the same.
TEST(ConfigJson, OldSpelling) {
  const auto expect_same = [](const std::string& model, const std::string& patch) {
    FolderCopy folder(model);
    folder.patch("config.json", patch);
    const Result<ModelConfig> old_config = read(folder.path()), new_config = read(kTiny + model);
    ASSERT_TRUE(old_config.has_value()) << old_config.error().message;
    ASSERT_EQ(old_config->ropes.size(), new_config->ropes.size());
    for (size_t i = 0; i < new_config->ropes.size(); ++i) {
      EXPECT_EQ(old_config->ropes[i].inv_freq, new_config->ropes[i].inv_freq) << model;
      EXPECT_EQ(old_config->ropes[i].scale, new_config->ropes[i].scale) << model;
    }
    for (size_t i = 0; i < new_config->layer.size(); ++i) {
      EXPECT_EQ(old_config->layer[i].sliding_window, new_config->layer[i].sliding_window)
          << model << ' ' << i;
      EXPECT_EQ(old_config->layer[i].rope, new_config->layer[i].rope) << model << ' ' << i;
    }
  };
  expect_same(
      "llama3",
      R"({"rope_parameters": null, "rope_theta": 500, "rope_scaling": {"rope_type": "llama3", "factor": 8.0,
      "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 32}})");
  expect_same(
      "llama-linear",
      R"({"rope_parameters": null, "rope_theta": 10000.0, "rope_scaling": {"type": "linear", "factor": 4}})");
  expect_same(
      "phi3",
      R"({"rope_parameters": null, "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "rope_scaling": null})");
  expect_same("phi3-longrope", R"({"rope_parameters": {"rope_type": null, "type": "su"}})");
  expect_same(
      "gemma3",
      R"({"rope_parameters": null, "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "layer_types": null,
      "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "sliding_window_pattern": 6})");
  expect_same("qwen2-yarn-window", R"({"layer_types": null})");
}

TEST(ConfigJson, DefaultsOfTheArchitecture) {
  FolderCopy folder("mistral");
  folder.patch(
      "config.json",
      R"({"rms_norm_eps": null, "head_dim": null, "num_key_value_heads": null, "sliding_window": null})");
  const Result<ModelConfig> without = read(folder.path());
  ASSERT_TRUE(without.has_value()) << without.error().message;
  EXPECT_EQ(without->head_dim, 16);
  EXPECT_EQ(without->kv_heads, without->heads);
  EXPECT_FLOAT_EQ(without->norm_eps, 1e-6f);
  EXPECT_EQ(without->layer[0].sliding_window, 4096);  // merge_patch removed the field: the class's own
  folder.write("config.json",
               read_text(kTiny + "mistral/config.json")
                   .replace(read_text(kTiny + "mistral/config.json").find("\"sliding_window\": 24"), 20,
                            "\"sliding_window\": null"));
  const Result<ModelConfig> null = read(folder.path());
  ASSERT_TRUE(null.has_value()) << null.error().message;
  EXPECT_EQ(null->layer[0].sliding_window, 0);
}

TEST(ConfigJson, LongropeFollowsTheContextThatIsWanted) {
  for (const std::string model : {"phi3-longrope", "phi3-longrope.gguf"}) {
    const Result<ModelConfig> usual = read(kTiny + model), within = read(kTiny + model, 64),
                              beyond = read(kTiny + model, 65);
    ASSERT_TRUE(usual.has_value() && within.has_value() && beyond.has_value()) << model;
    EXPECT_EQ(usual->context, 64);
    EXPECT_EQ(within->context, 64);
    EXPECT_EQ(beyond->context, 128);
    EXPECT_EQ(usual->ropes[0].inv_freq, within->ropes[0].inv_freq);
    EXPECT_NE(usual->ropes[0].inv_freq, beyond->ropes[0].inv_freq);
    EXPECT_NEAR(usual->ropes[0].scale, std::sqrt(1 + std::log(2.0) / std::log(64.0)), 1e-6);
  }
}

TEST(ConfigJson, YarnStretchesTheContext) {
  FolderCopy folder("llama-yarn");
  folder.patch("config.json", R"({"max_position_embeddings": 32})");
  const Result<ModelConfig> config = read(folder.path());
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->context, 128);
}

// --- GGUF
// --------------------------------------------------------------------------------------------------------

/// Metadata of a small llama and its token embedding; `change` may add keys or leave some out.
struct GgufCase {
  std::map<std::string, std::string> texts = {{"general.architecture", "llama"}};
  std::map<std::string, uint32_t> counts = {{"llama.block_count", 2},
                                            {"llama.embedding_length", 32},
                                            {"llama.feed_forward_length", 64},
                                            {"llama.attention.head_count", 2},
                                            {"llama.context_length", 128}};
  std::map<std::string, float> numbers = {{"llama.attention.layer_norm_rms_epsilon", 1e-5f}};

  Result<ModelConfig> read() const {
    test::GgufBuilder builder;
    for (const auto& [key, value] : texts) builder.text(key, value);
    for (const auto& [key, value] : counts) builder.value(key, GgufType::u32, value);
    for (const auto& [key, value] : numbers) builder.value(key, GgufType::f32, value);
    builder.tensor("token_embd.weight", {32, 10}, 0, 0).data(32 * 10 * 4);
    const auto path =
        std::filesystem::temp_directory_path() / ("quintet_config_" + std::to_string(getpid()) + ".gguf");
    const test::Bytes bytes = builder.build();
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    const Result<ModelConfig> config = testing::read(path.string());
    std::filesystem::remove(path);
    return config;
  }
};

TEST(ConfigGguf, SmallestFile) {
  const Result<ModelConfig> config = GgufCase().read();
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->vocabulary, 10);
  EXPECT_TRUE(config->tied_embeddings);
  EXPECT_EQ(config->ropes[0].style, RopeStyle::pairs);
  EXPECT_EQ(config->layer.size(), 2u);
}

TEST(ConfigGguf, ValuesByLayerAreCountedBeforeTheyAreRead) {
  const auto read_with = [](const std::vector<uint8_t>& values) {
    test::GgufBuilder builder;
    builder.text("general.architecture", "llama")
        .value<uint32_t>("llama.block_count", GgufType::u32, 2)
        .value<uint32_t>("llama.embedding_length", GgufType::u32, 64)
        .array("llama.feed_forward_length", GgufType::u8, values);
    const test::TempFolder folder;
    return read(folder.write("m.gguf", builder.build()));
  };
  const auto many = read_with(std::vector<uint8_t>(1'000'000, 96));
  ASSERT_FALSE(many);
  EXPECT_NE(many.error().message.find(
                "llama.feed_forward_length has 1000000 values; allowed is one, or one for each of 2"),
            std::string::npos)
      << many.error().message;
  const auto two = read_with({96, 96});
  ASSERT_FALSE(two);
  EXPECT_EQ(two.error().message.find("feed_forward_length"), std::string::npos) << two.error().message;
}

TEST(ConfigJson, AKeyTwiceOrANulIsRefused) {
  for (const auto& [text, says] :
       {std::pair<std::string, std::string>{R"({"a": {"b": 1, "b": 2}})", "\"b\" is there twice"},
        {std::string("{}\0{}", 5), "NUL"}}) {
    FolderCopy folder("llama-plain");
    folder.write("config.json", text);
    const auto config = read(folder.path());
    ASSERT_FALSE(config);
    EXPECT_NE(config.error().message.find(says), std::string::npos) << config.error().message;
    EXPECT_NE(config.error().message.find("config.json"), std::string::npos);
  }
}

TEST(ConfigGguf, RefusalsNameKeyFoundAndAllowed) {
  struct Case {
    std::function<void(GgufCase&)> change;
    std::vector<std::string> says;
  };
  const std::vector<Case> cases = {
      {[](GgufCase& c) { c.texts["general.architecture"] = "rwkv6"; },
       {"general.architecture", "rwkv6", "llama, qwen2, qwen3, phi3, gemma3"}},
      {[](GgufCase& c) { c.texts.erase("general.architecture"); }, {"general.architecture"}},
      {[](GgufCase& c) { c.counts.erase("llama.block_count"); }, {"llama.block_count"}},
      {[](GgufCase& c) { c.counts["llama.block_count"] = 0; }, {"layers", "0"}},
      {[](GgufCase& c) { c.counts["llama.block_count"] = 4000000000u; }, {"llama.block_count", "4000000000"}},
      {[](GgufCase& c) { c.counts["llama.attention.head_count"] = 0; }, {"heads", "0"}},
      {[](GgufCase& c) { c.counts["llama.attention.head_count_kv"] = 5; }, {"key-value heads", "5"}},
      {[](GgufCase& c) {
         c.counts["llama.attention.key_length"] = 24, c.counts["llama.attention.value_length"] = 16;
       },
       {"key_length", "24", "16"}},
      {[](GgufCase& c) { c.counts["llama.vocab_size"] = 11; }, {"vocab_size", "11", "10 rows"}},
      {[](GgufCase& c) { c.counts["llama.expert_count"] = 8; }, {"expert_count", "8", "experts"}},
      {[](GgufCase& c) { c.counts["llama.rope.dimension_count"] = 7; }, {"7 rotated dimensions"}},
      {[](GgufCase& c) { c.counts["llama.rope.dimension_count"] = 18; }, {"rotated dimensions", "18"}},
      {[](GgufCase& c) { c.numbers["llama.rope.freq_base"] = -1; }, {"rope base", "-1"}},
      {[](GgufCase& c) { c.numbers["llama.rope.freq_base"] = NAN; }, {"rope base", "nan"}},
      {[](GgufCase& c) { c.numbers["llama.attention.layer_norm_rms_epsilon"] = NAN; }, {"epsilon", "nan"}},
      {[](GgufCase& c) { c.numbers["llama.block_count"] = 2, c.counts.erase("llama.block_count"); },
       {"llama.block_count", "f32"}},
      {[](GgufCase& c) { c.texts["llama.rope.scaling.type"] = "ntk"; }, {"rope.scaling.type", "ntk", "yarn"}},
      {[](GgufCase& c) {
         c.texts["llama.rope.scaling.type"] = "linear", c.numbers["llama.rope.scaling.factor"] = 0;
       },
       {"factor", "0"}},
      {[](GgufCase& c) { c.texts["llama.rope.scaling.type"] = "longrope"; }, {"rope_factors_short.weight"}},
      {[](GgufCase& c) { c.numbers["llama.logit_scale"] = 2; }, {"logit_scale", "2"}},
  };
  for (const Case& wrong : cases) {
    GgufCase file;
    wrong.change(file);
    const Result<ModelConfig> config = file.read();
    ASSERT_FALSE(config.has_value()) << wrong.says[0];
    EXPECT_NE(config.error().message.find(".gguf"), std::string::npos) << config.error().message;
    for (const std::string& part : wrong.says)
      EXPECT_NE(config.error().message.find(part), std::string::npos)
          << "'" << part << "' in: " << config.error().message;
  }
}

TEST(ConfigGguf, ArchitecturesAreInOneTable) {
  for (const Architecture* architecture : architectures()) {
    EXPECT_EQ(find_architecture(architecture->name), architecture);
    EXPECT_NE(architecture->make_layers, nullptr);
  }
  EXPECT_EQ(find_architecture("gpt2"), nullptr);
}

}  // namespace
}  // namespace quintet::testing
