// A real model on the GPU: close to the reference forward pass, and the same bits however a prompt is cut.
#include <filesystem>
#include <numeric>

#include "backend/reference/reference.h"
#include "cuda_fixture.h"
#include "engine/engine_client.h"
#include "flat_inputs.h"
#include "model/model.h"
#include "model/synthetic.h"
#include "../model/single_sequence.h"

namespace quintet {
namespace {

const std::string kModel = source_folder() + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

class CudaModel : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (!std::filesystem::exists(kModel)) GTEST_SKIP() << kModel << " is missing: run make models";
    flat_ = std::make_unique<testing::FlatInputs>(*backend_);
    auto loaded = load_model(kModel, *backend_, {});
    ASSERT_TRUE(loaded) << loaded.error().message;
    model_ = std::move(loaded).value();
    tokens_ = model_->tokenizer->encode("The history of natural language processing generally started in the 1950s. In 1950, Alan Turing "
                                        "published an article titled Computing Machinery and Intelligence. Et puis, 42 + 17 = 59?",
                                        {});
  }
  std::vector<float> logits(int32_t chunk) {
    testing::SingleSequence sequence(*flat_, *model_, 512, 64);
    return sequence.feed_all(tokens_, chunk);
  }
  std::unique_ptr<testing::FlatInputs> flat_;
  std::unique_ptr<Model> model_;
  std::vector<TokenId> tokens_;
};

/// Mean KL(a || b) over rows of `vocabulary` logits.
double mean_kl(const std::vector<float>& a, const std::vector<float>& b, size_t vocabulary) {
  double total = 0;
  const size_t rows = a.size() / vocabulary;
  for (size_t row = 0; row < rows; ++row) {
    const auto log_sum = [&](const float* x) {
      const double max = *std::max_element(x, x + vocabulary);
      double sum = 0;
      for (size_t i = 0; i < vocabulary; ++i) sum += std::exp(x[i] - max);
      return max + std::log(sum);
    };
    const float *p = &a[row * vocabulary], *q = &b[row * vocabulary];
    const double zp = log_sum(p), zq = log_sum(q);
    for (size_t i = 0; i < vocabulary; ++i) total += std::exp(p[i] - zp) * ((p[i] - zp) - (q[i] - zq));
  }
  return total / static_cast<double>(rows);
}

/// Random models small enough for the oracle, over several splits of attention.
class CudaSynthetic : public CudaTest {
 protected:
  std::vector<float> logits(Backend& backend, const Model& model, std::span<const TokenId> tokens, int32_t chunk) {
    testing::FlatInputs flat(backend);
    testing::SingleSequence sequence(flat, model, 1024, 300);
    return sequence.feed_all(tokens, chunk);
  }
  std::vector<TokenId> random_tokens(int32_t count, int32_t vocabulary) {
    std::uniform_int_distribution<TokenId> token(0, vocabulary - 1);
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    for (TokenId& id : tokens) id = token(random_);
    return tokens;
  }
};

TEST_F(CudaSynthetic, AgreesWithTheReferenceAndKeepsItsBits) {
  for (const std::string_view shape : {"tiny", "tiny-wide", "tiny-96", "tiny-256"})
    for (const int32_t window : {0, 100, 300}) {
      for (const WeightFormat format : gpu_layouts()) {
        // Formats in blocks of 256 fit one shape alone, and the others need not run there once more.
        if ((format_info(format).block_weights == 256) != (shape == "tiny-256") || (shape == "tiny-96" && format != WeightFormat::bf16)) continue;
        const bool outliers = format == WeightFormat::int4_g128 || format == WeightFormat::f16;
        if (window == 100 && !outliers) continue;  // a window within one split asks nothing of a format
        SCOPED_TRACE(fmt::format("{} {} window {}", shape, format_info(format).name, window));
        backend_ = make_cuda_backend({.path = tested_path()}).value();
        const auto model = make_synthetic_model({.shape = shape, .format = format, .outliers = outliers ? 0.005 : 0, .seed = random_()}, *backend_).value();
        for (LayerConfig& layer : model->config.layer) layer.sliding_window = window;
        const std::vector<TokenId> tokens = random_tokens(700, model->config.vocabulary);
        const std::vector<float> whole = logits(*backend_, *model, tokens, 300);
        for (const int32_t chunk : {7, 20, 64, 65}) {
          const std::vector<float> cut = logits(*backend_, *model, tokens, chunk);
          EXPECT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * 4), 0) << "chunks of " << chunk;
        }
        const std::vector<float> start = logits(*backend_, *model, std::span(tokens).first(330), 1);  // more than one split
        EXPECT_EQ(std::memcmp(whole.data(), start.data(), start.size() * 4), 0) << "token by token";
      }
    }
}

// Of a chain of one row: down begins before gate and up have ended, in blocks with whole panels, with slices and with nothing of it.
TEST_F(CudaSynthetic, ProductsThatBeginEarlyKeepARowsBits) {
  using enum WeightFormat;
  for (const auto& [format, outliers] : {std::pair{int4_g128, 0.0}, {int4_g128, 0.005}, {f16, 0.0}, {f16, 0.002}, {q4_k, 0.0}, {q3_k, 0.0}, {q4_1, 0.0}, {int8, 0.0}}) {
    SCOPED_TRACE(fmt::format("{} outliers {}", format_info(format).name, outliers));
    const auto model = make_synthetic_model({.shape = "tiny-ffn", .format = format, .outliers = outliers, .seed = random_()}, *backend_).value();
    const std::vector<TokenId> tokens = random_tokens(120, model->config.vocabulary);
    const std::vector<float> whole = logits(*backend_, *model, tokens, 120), alone = logits(*backend_, *model, tokens, 1);
    EXPECT_EQ(std::memcmp(whole.data(), alone.data(), whole.size() * 4), 0);
  }
}

TEST_F(CudaSynthetic, IsCloseToTheReference) {
  for (const auto& [format, outliers] : {std::pair{WeightFormat::q8_0, 0.0}, {WeightFormat::int4_g128, 0.005}, {WeightFormat::bf16, 0.0}, {WeightFormat::fp8, 0.0}})
    for (const int32_t window : {0, 300}) {
      const std::string_view shape = format == WeightFormat::bf16 ? "tiny-96" : window ? "tiny" : "tiny-wide";
      SCOPED_TRACE(fmt::format("{} {} outliers {}", shape, format_info(format).name, outliers));
      const uint64_t seed = random_();
      const auto on_gpu = make_synthetic_model({.shape = shape, .format = format, .outliers = outliers, .seed = seed}, *backend_).value();
      const auto reference = make_reference_backend();
      const auto oracle = make_synthetic_model({.shape = shape, .format = format, .outliers = outliers, .seed = seed}, *reference).value();
      for (LayerConfig& layer : on_gpu->config.layer) layer.sliding_window = window;
      for (LayerConfig& layer : oracle->config.layer) layer.sliding_window = window;
      const std::vector<TokenId> tokens = random_tokens(600, oracle->config.vocabulary);
      const std::vector<float> want = logits(*reference, *oracle, tokens, 300), got = logits(*backend_, *on_gpu, tokens, 300);
      double error = 0, norm = 0;
      for (size_t i = 0; i < want.size(); ++i) {
        error += (static_cast<double>(got[i]) - want[i]) * (static_cast<double>(got[i]) - want[i]);
        norm += static_cast<double>(want[i]) * want[i];
      }
      // Activations are rounded to FP16 (2^-11 relative) once before each of the 8 products of two layers, q, k, v and
      // the probabilities once more: about 16 independent roundings, each at most 2^-11 of its operand.
      EXPECT_LE(std::sqrt(error / norm), 4 * std::sqrt(16.0) * 0x1p-11) << shape << " window " << window;
    }
}

TEST_F(CudaSynthetic, UnfusedLogitsAreNearTheFusedOnes) {
  using enum WeightFormat;
  for (const auto& [shape, format, outliers] : {std::tuple<std::string_view, WeightFormat, double>{"tiny", q8_0, 0}, {"tiny-wide", int4_g128, 0.005},
                                                {"tiny-256", q4_k, 0}, {"tiny", nf4_dq, 0}, {"tiny-96", bf16, 0}}) {
    SCOPED_TRACE(fmt::format("{} {}", shape, format_info(format).name));
    const auto model = make_synthetic_model({.shape = shape, .format = format, .outliers = outliers, .seed = random_()}, *backend_).value();
    const std::vector<TokenId> tokens = random_tokens(300, model->config.vocabulary);
    const auto logits_of = [&](int32_t chunk, bool unfused) {
      std::vector<float> all;
      const auto status = prompt_logits(*backend_, *model, tokens, chunk, [&](int32_t, int32_t rows, const float* values) -> Status {
        all.insert(all.end(), values, values + int64_t{rows} * model->config.vocabulary);
        return {};
      }, unfused);
      EXPECT_TRUE(status) << (status ? "" : status.error().message);
      return all;
    };
    const std::vector<float> fused = logits_of(100, false), unfused = logits_of(100, true);
    double error = 0, norm = 0;
    for (size_t i = 0; i < fused.size(); ++i) {
      error += (static_cast<double>(unfused[i]) - fused[i]) * (static_cast<double>(unfused[i]) - fused[i]);
      norm += static_cast<double>(fused[i]) * fused[i];
    }
    // As IsCloseToTheReference has it, of weights and of what operations hand each other in FP16 beside the activations.
    EXPECT_LE(std::sqrt(error / norm), 4 * std::sqrt(32.0) * 0x1p-11);
    for (const int32_t chunk : {1, 7, 33}) {
      const std::vector<float> cut = logits_of(chunk, true);
      EXPECT_EQ(std::memcmp(cut.data(), unfused.data(), cut.size() * 4), 0) << "chunks of " << chunk;
    }
  }
}

TEST_F(CudaModel, IsCloseToTheReference) {
  const auto reference = make_reference_backend();
  auto loaded = load_model(kModel, *reference, {});
  ASSERT_TRUE(loaded) << loaded.error().message;
  testing::SingleSequence sequence(*reference, **loaded, 512, 64);
  const std::vector<float> want = sequence.feed_all(tokens_, 64), got = logits(64);
  ASSERT_EQ(want.size(), got.size());
  const double kl = mean_kl(want, got, static_cast<size_t>(model_->config.vocabulary));
  RecordProperty("kl", std::to_string(kl));
  EXPECT_LE(kl, 1e-4);
  EXPECT_GE(kl, 0);
}

TEST_F(CudaModel, SameBitsHoweverThePromptIsCut) {
  const std::vector<float> whole = logits(64);
  for (const int32_t chunk : {1, 2, 7, 16, 33}) {
    const std::vector<float> cut = logits(chunk);
    EXPECT_EQ(std::memcmp(whole.data(), cut.data(), whole.size() * 4), 0) << "chunks of " << chunk;
  }
}

}  // namespace
}  // namespace quintet
