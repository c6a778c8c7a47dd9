// A real model on the GPU: close to the reference forward pass, and the same bits however a prompt is cut.
#include <filesystem>
#include <numeric>

#include "backend/reference/reference.h"
#include "cuda_fixture.h"
#include "flat_inputs.h"
#include "model/model.h"
#include "../model/single_sequence.h"

namespace quintet {
namespace {

constexpr const char* kModel = QUINTET_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

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
