// Calibration sees what the weights see: statistics against those computed from a layer's inputs by hand.
#include "compress/calibration.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "compress/observing_backend.h"
#include "compress/quantize_model.h"
#include "engine/engine_client.h"

namespace quintet {
namespace {

const std::string kTiny = std::string(QUINTET_SOURCE_DIR) + "/tests/golden/data/tiny/";

std::vector<std::vector<TokenId>> sequences() {
  std::vector<std::vector<TokenId>> all(3);
  for (size_t s = 0; s < all.size(); ++s)
    for (int i = 0; i < 40; ++i)
      all[s].push_back(static_cast<TokenId>((i * 37 + static_cast<int>(s) * 11) % 250));
  return all;
}

TEST(Calibration, HessiansAreTheMeanProductsOfTheInputs) {
  // Two backends that share no code of products: the statistics of one are checked with the other's inputs.
  for (const char* name : {"llama-plain.gguf", "gemma3.gguf", "qwen2.gguf"}) {
    SCOPED_TRACE(name);
    const auto reference = make_reference_backend();
    const auto cpu = make_cpu_backend({.threads = 1});
    const auto model = load_model(kTiny + name, *cpu, {}), other = load_model(kTiny + name, *reference, {});
    ASSERT_TRUE(model && other);
    const auto hessians = calibrate(*cpu, **model, sequences(),
                                    {.first_layer = 1, .layers = 1, .hessians = true, .threads = 2});
    const auto moments = calibrate(*cpu, **model, sequences(), {.first_layer = 0, .layers = 2});
    ASSERT_TRUE(hessians && moments);

    const LayerWeights& layer = (*other)->weights.layer[1];
    const Weight* inputs[kLayerInputs] = {&layer.qkv, &layer.attn_out, &layer.gate_up, &layer.mlp_out};
    for (int i = 0; i < kLayerInputs; ++i) {
      std::vector<double> expected(static_cast<size_t>(inputs[i]->k * inputs[i]->k));
      int64_t seen = 0;
      const auto observed = make_observing_backend(
          *reference, [&](const Weight& weight) { return &weight == inputs[i]; },
          [&](const Weight&, const float* x, int64_t rows, int64_t k) {
            seen += rows;
            for (int64_t r = 0; r < rows; ++r)
              for (int64_t a = 0; a < k; ++a)
                for (int64_t b = 0; b < k; ++b)
                  expected[static_cast<size_t>(a * k + b)] +=
                      static_cast<double>(x[r * k + a]) * x[r * k + b];
          });
      for (const auto& sequence : sequences()) ASSERT_TRUE(prompt_pass(*observed, **other, sequence, 16));
      EXPECT_EQ(seen, 120);
      const InputStatistics& of = (*hessians)[0][static_cast<size_t>(i)];
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
        EXPECT_NEAR((*moments)[1][static_cast<size_t>(i)].moments[static_cast<size_t>(j)],
                    of.moments[static_cast<size_t>(j)], 1e-4f * of.moments[static_cast<size_t>(j)] + 1e-9f);
    }
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
      *cpu, [](const Weight&) { return true; }, [](auto&&...) {});
  EXPECT_EQ(logits_of(*observed), plain);
}

TEST(Calibration, SequencesAreSpreadOverTheText) {
  const auto cpu = make_cpu_backend({.threads = 1});
  const auto model = load_model(kTiny + "llama-plain.gguf", *cpu, {});
  ASSERT_TRUE(model);
  const std::string text(1000, 'x');
  const auto made = calibration_sequences(**model, text, 5, 50);
  ASSERT_TRUE(made);
  ASSERT_EQ(made->size(), 5u);
  for (const auto& sequence : *made) EXPECT_EQ(sequence.size(), 50u);
  EXPECT_EQ(calibration_sequences(**model, text, 500, 50)->size(), 20u) << "no stretch twice";
  const auto none = calibration_sequences(**model, "short", 5, 50);
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
}

}  // namespace
}  // namespace quintet
