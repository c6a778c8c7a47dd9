// Tiny random models of every architecture against Transformers, from folders and from GGUF files, past the
// length before stretching and past the sliding window.
#include <fmt/format.h>
#include <unistd.h>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "compress/convert_model.h"
#include "golden/golden_data.h"

namespace quintet::testing {
namespace {

struct TinyCase {
  std::string model;
  std::string logits;  ///< fixture, without its ending
  int32_t context = 0;
};

const std::vector<TinyCase> kCases = {
    {"llama-plain", "llama-plain"},
    {"llama-bias-tied", "llama-bias-tied"},
    {"llama-linear", "llama-linear"},
    {"llama3", "llama3"},
    {"llama-yarn", "llama-yarn"},
    {"mistral", "mistral"},
    {"qwen2", "qwen2"},
    {"qwen2-yarn-window", "qwen2-yarn-window"},
    {"qwen3", "qwen3"},
    {"phi3", "phi3"},
    {"phi3-longrope", "phi3-longrope.short"},
    {"phi3-longrope", "phi3-longrope.long", 128},
    {"gemma3", "gemma3"},
};

std::string path_of(const TinyCase& tiny, const std::string& kind) {
  return kData + "/tiny/" + tiny.model + (kind == "gguf" ? ".gguf" : "");
}

std::unique_ptr<Backend> make(const std::string& name) {
  return name == "cpu" ? make_cpu_backend({.threads = 2}) : make_reference_backend();
}

/// The largest difference to the fixture's logits over its rows; NaN counts as infinite.
double distance(const Fixture& fixture, const std::vector<float>& logits, int32_t vocabulary) {
  const std::vector<int32_t> rows = fixture.values<int32_t>("rows");
  const std::vector<float> wanted = fixture.values<float>("logits");
  double largest = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int32_t v = 0; v < vocabulary; ++v) {
      const double found = logits[static_cast<size_t>(rows[i] * vocabulary + v)];
      const double difference =
          std::abs(found - wanted[i * static_cast<size_t>(vocabulary) + static_cast<size_t>(v)]);
      largest = std::isnan(difference) ? HUGE_VAL : std::max(largest, difference);
    }
  }
  return largest;
}

double distance_of(const Fixture& fixture, Backend& backend, const Model& model, int32_t chunk) {
  const std::vector<TokenId> ids = fixture.values<int32_t>("ids");
  SingleSequence sequence(backend, model, static_cast<int32_t>(ids.size()), chunk);
  return distance(fixture, sequence.feed_all(ids, chunk), model.config.vocabulary);
}

class TinyTest : public ::testing::TestWithParam<TinyCase> {};

TEST_P(TinyTest, ReferenceEqualsTransformers) {
  const TinyCase& tiny = GetParam();
  const Fixture fixture(kData + "/tiny/" + tiny.logits + ".logits.safetensors");
  for (const std::string kind : {"folder", "gguf"}) {
    const auto backend = make_reference_backend();
    const auto model = load_network(path_of(tiny, kind), *backend, tiny.context);
    const double found = distance_of(fixture, *backend, *model, 50);
    EXPECT_LE(found, tolerance(fixture.values<float>("noise")[0], backend->info())) << kind;
    RecordProperty(kind, fmt::format("{}", found));
  }
}

TEST_P(TinyTest, FolderAndGgufAreTheSameNetwork) {
  const TinyCase& tiny = GetParam();
  const Result<ModelFiles> folder = ModelFiles::open(path_of(tiny, "folder")),
                           gguf = ModelFiles::open(path_of(tiny, "gguf"));
  ASSERT_TRUE(folder.has_value()) << folder.error().message;
  ASSERT_TRUE(gguf.has_value()) << gguf.error().message;
  const Result<ModelConfig> a = read_config(*folder, tiny.context), b = read_config(*gguf, tiny.context);
  ASSERT_TRUE(a.has_value()) << a.error().message;
  ASSERT_TRUE(b.has_value()) << b.error().message;
  EXPECT_EQ(a->architecture == "mistral" ? "llama" : a->architecture, b->architecture);
  EXPECT_EQ(a->context, b->context);
  EXPECT_EQ(a->head_dim, b->head_dim);
  EXPECT_EQ(a->tied_embeddings, b->tied_embeddings);
  EXPECT_EQ(a->qkv_bias, b->qkv_bias);
  EXPECT_FLOAT_EQ(a->attention_scale, b->attention_scale);
  EXPECT_FLOAT_EQ(a->embedding_scale, b->embedding_scale);
  ASSERT_EQ(a->layer.size(), b->layer.size());
  for (size_t i = 0; i < a->layer.size(); ++i) {
    EXPECT_EQ(a->layer[i].sliding_window, b->layer[i].sliding_window) << i;
    EXPECT_EQ(a->layer[i].rope, b->layer[i].rope) << i;
  }
  ASSERT_EQ(a->ropes.size(), b->ropes.size());
  for (size_t i = 0; i < a->ropes.size(); ++i) {
    EXPECT_NEAR(a->ropes[i].scale, b->ropes[i].scale, 1e-6) << i;
    ASSERT_EQ(a->ropes[i].inv_freq.size(), b->ropes[i].inv_freq.size()) << i;
    for (size_t j = 0; j < a->ropes[i].inv_freq.size(); ++j)
      EXPECT_NEAR(b->ropes[i].inv_freq[j] / a->ropes[i].inv_freq[j], 1, 1e-6) << i << ' ' << j;
  }
}

/// What `quintet convert` makes of a folder is the network of the folder.
TEST_P(TinyTest, ConvertedFolderEqualsTransformers) {
  const TinyCase& tiny = GetParam();
  const Result<ModelFiles> folder = ModelFiles::open(path_of(tiny, "folder"));
  ASSERT_TRUE(folder.has_value()) << folder.error().message;
  const WeightFormat stored = folder->tensors().front().weight.format;
  if (stored == WeightFormat::f32) GTEST_SKIP() << "GGUF's matrices are written in 16 bits";
  const std::string out = ::testing::TempDir() + fmt::format("convert-{}-{}.gguf", tiny.logits, ::getpid());
  const auto report = convert_model(path_of(tiny, "folder"), out, {.format = stored, .threads = 1}, {});
  ASSERT_TRUE(report.has_value()) << report.error().message;
  EXPECT_EQ(report->layers, read_config(*folder, tiny.context)->layers);
  const Fixture fixture(kData + "/tiny/" + tiny.logits + ".logits.safetensors");
  const auto backend = make_reference_backend();
  const auto model = load_network(out, *backend, tiny.context);
  EXPECT_LE(distance_of(fixture, *backend, *model, 50), tolerance(fixture.values<float>("noise")[0], backend->info()));
  std::filesystem::remove(out);
}

/// How a prompt is cut does not change a bit.
TEST_P(TinyTest, ChunksGiveEqualBits) {
  const TinyCase& tiny = GetParam();
  const Fixture fixture(kData + "/tiny/" + tiny.logits + ".logits.safetensors");
  const std::vector<TokenId> ids = fixture.values<int32_t>("ids");
  for (const std::string name : {"reference", "cpu"}) {
    const auto backend = make(name);
    const auto model = load_network(path_of(tiny, "folder"), *backend, tiny.context);
    const auto run = [&](int32_t chunk) {
      return SingleSequence(*backend, *model, static_cast<int32_t>(ids.size()), chunk).feed_all(ids, chunk);
    };
    const std::vector<float> whole = run(static_cast<int32_t>(ids.size()));
    for (int32_t chunk : {1, 7, 33}) EXPECT_EQ(whole, run(chunk)) << name << ", chunks of " << chunk;
  }
}

TEST_P(TinyTest, CpuEqualsTransformers) {
  const TinyCase& tiny = GetParam();
  const Fixture fixture(kData + "/tiny/" + tiny.logits + ".logits.safetensors");
  for (const std::string kind : {"folder", "gguf"}) {
    const auto backend = make_cpu_backend({.threads = 2});
    const auto model = load_network(path_of(tiny, kind), *backend, tiny.context);
    const double found = distance_of(fixture, *backend, *model, 50);
    EXPECT_LE(found, tolerance(fixture.values<float>("noise")[0], backend->info())) << kind;
    RecordProperty(kind, fmt::format("{}", found));
  }
}

INSTANTIATE_TEST_SUITE_P(Models, TinyTest, ::testing::ValuesIn(kCases), [](const auto& info) {
  std::string name = info.param.logits;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
  return name;
});

/// The tests above can fail: each of these mistakes is far outside the tolerance, for both backends.
struct Mistake {
  std::string name;
  std::string model;
  void (*make)(ModelConfig& config);
};

const std::vector<Mistake> kMistakes = {
    {"no_stretching", "llama-linear",
     [](ModelConfig& c) {
       for (float& f : c.ropes[0].inv_freq) f *= 4;
     }},
    {"one_frequency", "llama3", [](ModelConfig& c) { c.ropes[0].inv_freq[12] *= 1.1f; }},
    {"no_attention_factor", "llama-yarn", [](ModelConfig& c) { c.ropes[0].scale = 1; }},
    {"wrong_pairs", "llama-plain", [](ModelConfig& c) { c.ropes[0].style = RopeStyle::pairs; }},
    {"window_one_longer", "mistral",
     [](ModelConfig& c) {
       for (auto& l : c.layer) ++l.sliding_window;
     }},
    {"window_on_first_layer", "qwen2-yarn-window", [](ModelConfig& c) { c.layer[0].sliding_window = 24; }},
    {"whole_head_turned", "phi3",
     [](ModelConfig& c) { c.ropes[0] = make_rope(RopeStyle::halves, 64, 10000, {}); }},
    {"global_rope_everywhere", "gemma3",
     [](ModelConfig& c) {
       for (auto& l : c.layer) l.rope = 0;
     }},
    {"wrong_scale", "gemma3", [](ModelConfig& c) { c.attention_scale = 0.125f; }},
    {"silu", "gemma3", [](ModelConfig& c) { c.activation = Activation::silu; }},
};

class MistakeTest : public ::testing::TestWithParam<Mistake> {};

TEST_P(MistakeTest, IsSeen) {
  const Mistake& mistake = GetParam();
  const Fixture fixture(kData + "/tiny/" + mistake.model + ".logits.safetensors");
  for (const std::string name : {"reference", "cpu"}) {
    const auto backend = make(name);
    const auto model = load_network(kData + "/tiny/" + mistake.model, *backend);
    mistake.make(model->config);
    EXPECT_GE(distance_of(fixture, *backend, *model, 50),
              2 * tolerance(fixture.values<float>("noise")[0], backend->info()))
        << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Mistakes, MistakeTest, ::testing::ValuesIn(kMistakes),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quintet::testing
