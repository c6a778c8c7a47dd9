// Calibration sees what the weights see: statistics against those computed from a layer's inputs by hand.
#include "compress/layer_calibration.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "compress/observing_backend.h"
#include "compress/quantize_model.h"
#include "compress/sample_rows.h"
#include "engine/engine_client.h"
#include "golden/golden_data.h"
#include "model/config_reader.h"
#include "model/weight_map.h"

namespace quintet {
namespace {

using testing::load_network;

const std::string kTiny = std::string(QUINTET_SOURCE_DIR) + "/tests/golden/data/tiny/";

std::vector<std::vector<TokenId>> sequences() {
  std::vector<std::vector<TokenId>> all(3);
  for (size_t s = 0; s < all.size(); ++s)
    for (int i = 0; i < 40; ++i)
      all[s].push_back(static_cast<TokenId>((i * 37 + static_cast<int>(s) * 11) % 250));
  return all;
}

/// A folder for hidden states, removed at the end.
struct WorkPlace {
  std::string path = ::testing::TempDir() + fmt::format("calibration-{}-{}", ::getpid(), counter());
  WorkPlace() { std::filesystem::create_directories(path); }
  ~WorkPlace() { std::filesystem::remove_all(path); }
  static int counter() {
    static int next = 0;
    return next++;
  }
};

/// Statistics of all inputs of layer `layer`, reached layer by layer.
LayerStatistics statistics_of(const std::string& path, Backend& backend, int32_t layer, bool hessians) {
  const WorkPlace place;
  const auto files = ModelFiles::open(path);
  const auto config = read_config(*files, 0);
  const CalibrationTokens tokens = sequences();
  auto states = HiddenStates::open(place.path, {.tokens = 120, .hidden = config->hidden});
  const LayerCalibration::Setup setup{
      .files = *files, .config = *config, .backend = backend, .tokens = tokens, .threads = 2};
  const auto calibration = LayerCalibration::make(setup, std::move(states).value(), 0);
  EXPECT_TRUE(calibration.has_value());
  for (int32_t i = 0; i < layer; ++i) {
    EXPECT_TRUE((*calibration)->load(i));
    EXPECT_TRUE((*calibration)->pass({.advance = true}));
  }
  EXPECT_TRUE((*calibration)->load(layer));
  auto made = (*calibration)->pass({.inputs = {true, true, true, true}, .hessians = hessians, .advance = true});
  EXPECT_TRUE(made.has_value());
  return std::move(made).value();
}

TEST(Calibration, HessiansAreTheMeanProductsOfTheInputs) {
  // Two backends that share no code of products: the statistics of one are checked with the other's inputs, and layers
  // one by one with the whole model.
  for (const char* name : {"llama-plain.gguf", "gemma3.gguf", "qwen2.gguf", "phi3", "mistral"}) {
    SCOPED_TRACE(name);
    const auto reference = make_reference_backend();
    const auto cpu = make_cpu_backend({.threads = 1});
    const auto other = load_network(kTiny + name, *reference);
    const int32_t last = other->config.layers - 1;
    const LayerStatistics hessians = statistics_of(kTiny + name, *cpu, last, true),
                          moments = statistics_of(kTiny + name, *cpu, last, false);
    LayerWeights& layer = other->weights.layer[static_cast<size_t>(last)];
    const auto inputs = input_weights(layer);
    for (size_t i = 0; i < kLayerInputs; ++i) {
      std::vector<double> expected(static_cast<size_t>(inputs[i]->k * inputs[i]->k));
      int64_t seen = 0;
      const auto observed = make_observing_backend(
          *reference, {.wants = [&](const Weight& weight) { return &weight == inputs[i]; },
                       .sink = [&](const Weight&, const float* x, int64_t rows, int64_t k) {
                         seen += rows;
                         for (int64_t r = 0; r < rows; ++r)
                           for (int64_t a = 0; a < k; ++a)
                             for (int64_t b = 0; b < k; ++b)
                               expected[static_cast<size_t>(a * k + b)] +=
                                   static_cast<double>(x[r * k + a]) * x[r * k + b];
                       }});
      ASSERT_TRUE(prompt_passes(*observed, *other, sequences(), 16, nullptr));
      EXPECT_EQ(seen, 120);
      const InputStatistics& of = hessians[i];
      EXPECT_EQ(of.rows, 120);
      ASSERT_EQ(of.hessian.size(), expected.size());
      double difference = 0, size = 0;
      for (size_t j = 0; j < expected.size(); ++j) {
        difference += std::pow(of.hessian[j] - expected[j] / 120, 2);
        size += std::pow(expected[j] / 120, 2);
      }
      EXPECT_GT(size, 0);
      // 16-bit activations leave about 2^-12 a product, a layer deep.
      EXPECT_LT(std::sqrt(difference / size), 1e-2) << "input " << i;
      for (int64_t j = 0; j < of.k; ++j)
        EXPECT_NEAR(moments[i].moments[static_cast<size_t>(j)], of.moments[static_cast<size_t>(j)],
                    1e-4f * of.moments[static_cast<size_t>(j)] + 1e-9f);
    }
  }
}

TEST(Calibration, CompressedWeightsTakeTheirPlaceForWhatComesAfter) {
  const WorkPlace place;
  const std::string path = kTiny + "qwen2.gguf";
  const auto cpu = make_cpu_backend({.threads = 1});
  const auto files = ModelFiles::open(path);
  const auto config = read_config(*files, 0);
  const CalibrationTokens tokens = sequences();
  auto states = HiddenStates::open(place.path, {.tokens = 120, .hidden = config->hidden});
  const LayerCalibration::Setup setup{.files = *files, .config = *config, .backend = *cpu, .tokens = tokens, .threads = 1};
  const auto calibration = LayerCalibration::make(setup, std::move(states).value(), 0);
  ASSERT_TRUE(calibration.has_value());
  ASSERT_TRUE((*calibration)->load(0));
  const PassRequest all{.inputs = {true, true, true, true}};
  const auto before = (*calibration)->pass(all);
  const ModelTensor* v = files->find("blk.0.attn_v.weight");
  std::vector<float> zeros(static_cast<size_t>(v->weight.n * v->weight.k));
  const QuantizedMatrix made = quantize_direct({.name = "v", .n = v->weight.n, .k = v->weight.k, .weights = zeros.data()},
                                               WeightFormat::int8);
  ASSERT_TRUE((*calibration)->replace(0, {{"blk.0.attn_v.weight", made.view("blk.0.attn_v.weight")}}));
  const auto after = (*calibration)->pass(all);
  ASSERT_TRUE(before && after);
  EXPECT_EQ((*before)[0].moments, (*after)[0].moments);
  EXPECT_NE((*before)[1].moments, (*after)[1].moments);
  EXPECT_NE((*before)[2].moments, (*after)[2].moments);
}

/// Hessians of all inputs of all layers as GPTQ asks for them, each weight rounded before the next input is looked at, and the
/// rows behind the last layer. Kept on the backend, with room for inputs of so many bytes, or (-1) in files.
std::vector<std::vector<float>> sequential_passes(const std::string& path, int64_t kept_bytes) {
  const WorkPlace place;
  const auto cpu = make_cpu_backend({.threads = 1});
  const auto files = ModelFiles::open(path);
  const auto config = read_config(*files, 0);
  const CalibrationTokens tokens = sequences();
  const HiddenStates::Shape shape{.tokens = 120, .hidden = config->hidden};
  auto states = kept_bytes < 0 ? HiddenStates::open(place.path, shape) : HiddenStates::keep(place.path, shape, *cpu, false);
  const LayerCalibration::Setup setup{.files = *files,
                                      .config = *config,
                                      .backend = *cpu,
                                      .tokens = tokens,
                                      .threads = 1,
                                      .kept_bytes = static_cast<uint64_t>(std::max<int64_t>(kept_bytes, 0))};
  const auto calibration = LayerCalibration::make(setup, std::move(states).value(), 0);
  EXPECT_TRUE(calibration.has_value());
  ModelWeights weights;
  const auto plan = plan_weights(*files, *find_architecture(config->architecture), *config, weights);
  std::vector<std::vector<float>> seen;
  for (int32_t layer = 0; layer < config->layers; ++layer) {
    EXPECT_TRUE((*calibration)->load(layer));
    for (int input = 0; input < kLayerInputs; ++input) {
      PassRequest request{.hessians = true, .sequential = true};
      request.inputs[input] = true;
      auto made = (*calibration)->pass(request);
      EXPECT_TRUE(made.has_value());
      seen.push_back(std::move((*made)[static_cast<size_t>(input)].hessian));
      const Weight* target = input_weights(weights.layer[static_cast<size_t>(layer)])[static_cast<size_t>(input)];
      std::map<std::string, QuantizedMatrix, std::less<>> rounded;
      std::map<std::string, HostWeight, std::less<>> views;
      for (const PlannedWeight& planned : *plan)
        if (planned.target == target)
          for (const HostWeight& part : planned.parts) {
            const HostWeight& whole = (*files->require(part.name))->weight;
            const auto values = sample_rows(whole, whole.n);
            rounded[std::string(part.name)] =
                quantize_direct({.name = part.name, .n = whole.n, .k = whole.k, .weights = values->data()}, WeightFormat::int8);
          }
      for (const auto& [name, matrix] : rounded) views.emplace(name, matrix.view(name));
      EXPECT_TRUE((*calibration)->replace(input, views));
    }
    EXPECT_TRUE((*calibration)->pass({.advance = true, .sequential = true}));
  }
  EXPECT_TRUE((*calibration)->save());
  EXPECT_EQ((*calibration)->entering(), kept_bytes < 0 ? config->layers % 2 : 1);
  auto again = HiddenStates::keep(place.path, {.tokens = 120, .hidden = config->hidden, .entering = (*calibration)->entering()}, *cpu, true);
  EXPECT_TRUE(again.has_value());
  seen.emplace_back(again->row_in(0), again->row_in(120));
  return seen;
}

TEST(Calibration, PassesThatGoOnSeeWhatThoseFromTheLayersBeginningSee) {
  for (const char* name : {"llama-plain.gguf", "gemma3.gguf", "qwen2.gguf", "phi3"}) {
    const auto expected = sequential_passes(kTiny + name, -1);
    for (const auto& values : expected) EXPECT_FALSE(values.empty());
    for (const int64_t kept_bytes : {int64_t{0}, int64_t{40000}, int64_t{1} << 30}) {
      SCOPED_TRACE(fmt::format("{}, {} bytes", name, kept_bytes));
      EXPECT_TRUE(sequential_passes(kTiny + name, kept_bytes) == expected) << "the same bits";
    }
  }
}

TEST(Calibration, RowsThatGoThroughLayerByLayerGiveTheModelsLogits) {
  for (const char* name : {"llama-plain.gguf", "gemma3.gguf", "phi3"}) {
    SCOPED_TRACE(name);
    const WorkPlace place;
    const auto cpu = make_cpu_backend({.threads = 1});
    const auto files = ModelFiles::open(kTiny + name);
    const auto config = read_config(*files, 0);
    const CalibrationTokens tokens = sequences(), probe = {tokens[0], {tokens[1].begin(), tokens[1].begin() + 7}};
    auto states = HiddenStates::open(place.path, {.tokens = 120, .hidden = config->hidden});
    const LayerCalibration::Setup setup{.files = *files, .config = *config, .backend = *cpu, .tokens = tokens, .threads = 1};
    const auto calibration = LayerCalibration::make(setup, std::move(states).value(), 0);
    ASSERT_TRUE(calibration.has_value());
    std::vector<float> rows(47 * static_cast<size_t>(config->hidden));
    ASSERT_TRUE((*calibration)->embed(probe, rows.data()));
    for (int32_t layer = 0; layer < config->layers; ++layer) {
      ASSERT_TRUE((*calibration)->load(layer));
      ASSERT_TRUE((*calibration)->pass({.advance = true}));  // on its own rows, whatever others go through
      ASSERT_TRUE((*calibration)->through(probe, rows.data()));
    }
    std::vector<float> read, expected;
    ASSERT_TRUE((*calibration)->read_out(probe, rows.data(), nullptr, [&](const float* logits) {
      read.insert(read.end(), logits, logits + config->vocabulary);
    }));
    const auto model = load_network(kTiny + name, *cpu);
    for (const auto& sequence : probe)
      ASSERT_TRUE(prompt_logits(*cpu, *model, sequence, 16, [&](int32_t, int32_t count, const float* logits) {
        expected.insert(expected.end(), logits, logits + count * config->vocabulary);
        return Status();
      }));
    EXPECT_TRUE(read == expected) << "the same bits";
  }
}

TEST(Calibration, WatchingChangesNoBit) {
  const auto cpu = make_cpu_backend({.threads = 2});
  const auto model = load_model(kTiny + "gemma3.gguf", *cpu, {});
  ASSERT_TRUE(model);
  const auto logits_of = [&](Backend& backend) {
    std::vector<float> all;
    EXPECT_TRUE(
        prompt_logits(backend, **model, sequences()[0], 7, [&](int32_t, int32_t rows, const float* logits) {
          all.insert(all.end(), logits, logits + rows * (*model)->config.vocabulary);
          return Status();
        }));
    return all;
  };
  const auto plain = logits_of(*cpu);
  const auto observed = make_observing_backend(
      *cpu, {.wants = [](const Weight&) { return true; }, .sink = [](auto&&...) {}});
  EXPECT_EQ(logits_of(*observed), plain);
}

TEST(Calibration, SequencesAreSpreadOverTheText) {
  const auto text_of = load_text(kTiny + "llama-plain.gguf", {});
  ASSERT_TRUE(text_of);
  const Tokenizer& tokenizer = *(*text_of)->tokenizer;
  const std::string text(1000, 'x');
  const auto made = calibration_sequences(tokenizer, {text}, 5, 50);
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 5u);
  for (const auto& sequence : *made) EXPECT_EQ(sequence.size(), 50u);
  EXPECT_EQ(calibration_sequences(tokenizer, {text}, 500, 50)->size(), 20u) << "no stretch twice";
  const auto none = calibration_sequences(tokenizer, {"short"}, 5, 50);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().kind, ErrorKind::bad_input);
}

TEST(Patterns, StarsStandForAnything) {
  EXPECT_TRUE(matches("blk.1.w", "blk.1.w"));
  EXPECT_FALSE(matches("blk.1", "blk.1.w"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("blk.*.ffn_*", "blk.12.ffn_up.weight"));
  EXPECT_FALSE(matches("blk.*.ffn_*", "blk.12.attn_q.weight"));
  EXPECT_TRUE(matches("*embd*", "token_embd.weight"));
  EXPECT_TRUE(matches("*a*b", "xaabab"));
  EXPECT_TRUE(matches("a*b*c", "a-b-b-c"));
  EXPECT_FALSE(matches("a*bc*c", "abc"));
  EXPECT_FALSE(matches("ab*b", "ab"));
  EXPECT_TRUE(matches("***", ""));
  // Each star tried at each place with all others would take longer than anyone waits.
  EXPECT_FALSE(matches(std::string(60, '*') + "z", "model.layers.0.self_attn.q_proj.weight"));
}

}  // namespace
}  // namespace quintet
