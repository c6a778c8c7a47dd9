// The forward pass with nothing fused: logits near the fused ones, the same at every cut of a prompt, and an engine that runs so.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "backend/cpu/cpu.h"
#include "engine/engine_client.h"
#include "engine/step_bench.h"
#include "model/synthetic.h"

namespace quintet {
namespace {

struct Case {
  std::string_view shape;
  WeightFormat format;
  double outliers = 0;
};
const Case kCases[] = {{"tiny", WeightFormat::q8_0},       {"tiny-wide", WeightFormat::int4_g128, 0.005}, {"tiny-wide", WeightFormat::int4_g64_asym},
                       {"tiny-256", WeightFormat::q4_k},   {"tiny", WeightFormat::nf4_dq},                {"tiny-96", WeightFormat::bf16},
                       {"tiny-wide", WeightFormat::fp8}};

std::unique_ptr<Model> model_of(const Case& one, Backend& backend) {
  return make_synthetic_model({.shape = one.shape, .format = one.format, .outliers = one.outliers, .seed = 7}, backend).value();
}

std::vector<float> logits(Backend& backend, const Model& model, int32_t chunk, bool unfused) {
  std::vector<TokenId> tokens(40);
  std::iota(tokens.begin(), tokens.end(), 5);
  std::vector<float> all;
  const auto status = prompt_logits(backend, model, tokens, chunk, [&](int32_t, int32_t rows, const float* values) -> Status {
    all.insert(all.end(), values, values + int64_t{rows} * model.config.vocabulary);
    return {};
  }, unfused);
  EXPECT_TRUE(status) << (status ? "" : status.error().message);
  return all;
}

TEST(Unfused, LogitsAreNearTheFusedOnes) {
  for (const Case& one : kCases) {
    SCOPED_TRACE(std::string(one.shape) + " " + std::string(format_info(one.format).name));
    const auto backend = make_cpu_backend({.threads = 2});
    const auto model = model_of(one, *backend);
    const std::vector<float> fused = logits(*backend, *model, 64, false), unfused = logits(*backend, *model, 64, true);
    ASSERT_EQ(fused.size(), unfused.size());
    double error = 0, norm = 0;
    for (size_t i = 0; i < fused.size(); ++i) {
      const double difference = static_cast<double>(unfused[i]) - static_cast<double>(fused[i]);
      error += difference * difference;
      norm += static_cast<double>(fused[i]) * static_cast<double>(fused[i]);
    }
    // Weights are rounded to FP16, each by at most 2^-11 of itself, independently: so is what a product gives, and the errors of the
    // four products of a layer and of the head meet as independent ones do. Activations differ by far less (16 bits).
    EXPECT_LE(std::sqrt(error / norm), 0x1p-11 * std::sqrt(4.0 * model->config.layers + 1));
    EXPECT_EQ(error == 0, one.format == WeightFormat::bf16) << "dense weights are taken as they are, others another way";
    EXPECT_EQ(logits(*backend, *model, 13, true), unfused) << "however the prompt is cut";
  }
}

TEST(Unfused, StepsAreTimedBesideFusedOnesAndTheirBytesCounted) {
  const auto backend = make_cpu_backend({.threads = 2});
  const auto model = model_of({"tiny", WeightFormat::q8_0}, *backend);
  const ModelConfig& config = model->config;
  const PageClass page = backend->page_class(config.layers, config.kv_heads, config.head_dim, 16);
  const WorkspaceLimits limits = {.rows = 40, .seqs = 3, .logit_rows = 3, .context = 64, .unfused = true};
  const auto bench = StepBench::make(*backend, *model, {.limits = limits, .page = page, .pages = 12}).value();
  // Of every linear weight a half, written and read: tiles of 16 outputs, of which all widths are multiples but the vocabulary.
  const double width = config.heads * config.head_dim, kv = 2.0 * config.kv_heads * config.head_dim;
  const double weights = config.layers * config.hidden * (2.0 * width + kv + 3.0 * config.ffn) + (config.vocabulary + 15) / 16 * 16.0 * config.hidden;
  for (const StepWork& work : {StepWork{StepWork::Kind::decode, 3, 20}, StepWork{StepWork::Kind::prompt, 40, 0}}) {
    const StepTime fused = bench->run(work, 4).value();
    EXPECT_EQ(fused.extra_bytes, 0);
    EXPECT_GT(fused.ms, 0);
    StepWork apart = work;
    apart.unfused = true;
    const StepTime unfused = bench->run(apart, 4).value();
    EXPECT_GT(unfused.ms, 0);
    // Of a row, in FP32: the residual stream twice through norm (read, written), product (read), projection (written), addition (two
    // read, one written); q, k and v out of the product, turned in place, into attention; its output and the gated MLP out and in.
    const double layer = 2 * (2 + 1 + 1 + 3.0) * config.hidden + (1 + 2 + 1) * (width + kv) + 2 * width + (2 + 2 + 2.0) * config.ffn;
    const double logit_rows = work.kind == StepWork::Kind::prompt ? 1 : work.rows;
    const double rows = work.rows * config.layers * layer + logit_rows * (2.0 * config.hidden + 2.0 * config.hidden + config.hidden + config.vocabulary);
    EXPECT_EQ(unfused.extra_bytes, 4 * weights + 4 * rows);
    EXPECT_EQ(bench->run(work, 4).value().extra_bytes, 0) << "fused again";
  }
}

TEST(Unfused, AnEngineRunsSo) {
  std::vector<TokenId> answers[2];
  for (const bool unfused : {false, true}) {
    const auto backend = make_cpu_backend({.threads = 2});
    const auto model = model_of({"tiny", WeightFormat::q8_0}, *backend);
    const auto engine = start_engine(*backend, *model, {.context = 64, .sequences = 2, .kv_tokens = 128, .unfused = unfused}).value();
    Request request{.id = 1, .prompt = {3, 4, 5, 6}, .max_new_tokens = 12, .ignore_eos = true};
    ASSERT_TRUE(engine->submit(std::move(request)));
    for (bool ended = false; !ended;)
      for (const TokenEvent& event : engine->poll(1'000'000)) {
        if (event.token >= 0) answers[unfused].push_back(event.token);
        ended |= event.finish != FinishReason::none;
      }
  }
  EXPECT_EQ(answers[1].size(), 12u);
  EXPECT_EQ(answers[0][0], answers[1][0]) << "no near-tie there";
}

TEST(Unfused, TheSumHasWhatIsWrittenOut) {
  const auto backend = make_cpu_backend(CpuOptions{.threads = 1});
  StepLimits limits = {.rows = 4, .max_k = 512, .max_n = 1024, .vocabulary = 2000};
  const uint64_t fused = backend->scratch_bytes(limits).value();
  limits.unfused = true;
  EXPECT_GE(backend->scratch_bytes(limits).value(), fused + uint64_t{2000} * 512 * 2);
  limits.vocabulary = 1 << 20;  // in runs
  EXPECT_LT(backend->scratch_bytes(limits).value(), fused + (uint64_t{80} << 20));
}

}  // namespace
}  // namespace quintet
