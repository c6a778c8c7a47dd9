// Which kernels a device runs on, and that the choice changes no bit.
#include <gmock/gmock.h>

#include "cuda_fixture.h"
#include "flat_inputs.h"
#include "model/synthetic.h"
#include "../model/single_sequence.h"

namespace quintet {
namespace {

TEST(CudaPath, FollowsTheComputeCapability) {
  const auto chosen = [](std::string_view architectures, int major, int minor, CudaPath wanted = CudaPath::automatic) {
    const auto path = choose_cuda_path(wanted, architectures, major, minor);
    EXPECT_TRUE(path) << (path ? "" : path.error().message);
    return path ? *path : CudaPath::automatic;
  };
  EXPECT_EQ(chosen("80,90a", 8, 0), CudaPath::sm80);
  EXPECT_EQ(chosen("80,90a", 8, 6), CudaPath::sm80);
  EXPECT_EQ(chosen("80,90a", 8, 9), CudaPath::sm80);
  EXPECT_EQ(chosen("80,90a", 9, 0), CudaPath::hopper);
  EXPECT_EQ(chosen("86", 8, 9), CudaPath::sm80);
  EXPECT_EQ(chosen("90,90a", 9, 0), CudaPath::hopper);
  EXPECT_EQ(chosen("90", 9, 0), CudaPath::sm80);
  EXPECT_EQ(chosen("90,90a", 9, 0, CudaPath::sm80), CudaPath::sm80);
  EXPECT_EQ(chosen("90,90a", 9, 0, CudaPath::hopper), CudaPath::hopper);
}

TEST(CudaPath, ARefusalNamesWhatThereIsAndWhatIsAllowed) {
  using ::testing::AllOf;
  using ::testing::HasSubstr;
  const auto refused = [](std::string_view architectures, int major, int minor, CudaPath wanted = CudaPath::automatic) {
    const auto path = choose_cuda_path(wanted, architectures, major, minor);
    EXPECT_FALSE(path);
    if (path) return std::string();
    EXPECT_EQ(path.error().kind, ErrorKind::bad_input);
    return path.error().message;
  };
  EXPECT_THAT(refused("80,90a", 7, 5), AllOf(HasSubstr("7.5"), HasSubstr("sm_80, sm_90a")));
  EXPECT_THAT(refused("80,90a", 10, 0), AllOf(HasSubstr("10.0"), HasSubstr("sm_80, sm_90a")));
  EXPECT_THAT(refused("86,90a", 8, 0), AllOf(HasSubstr("8.0"), HasSubstr("sm_86, sm_90a")));
  EXPECT_THAT(refused("80,90a", 9, 0, CudaPath::sm80), AllOf(HasSubstr("--cuda-path sm80"), HasSubstr("9.0"), HasSubstr("sm_80, sm_90a"), HasSubstr("allowed are kernels for sm_90 ")));
  EXPECT_THAT(refused("80,90a", 8, 6, CudaPath::hopper), AllOf(HasSubstr("--cuda-path hopper"), HasSubstr("8.6"), HasSubstr("allowed are compute capability 9.0")));
  EXPECT_THAT(refused("80,90", 9, 0, CudaPath::hopper), AllOf(HasSubstr("--cuda-path hopper"), HasSubstr("allowed are kernels for sm_90a")));
}

/// Both sets of kernels on one device; skips where the build or the device has one alone.
class CudaPaths : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    for (const CudaPath path : {CudaPath::hopper, CudaPath::sm80}) {
      auto made = make_cuda_backend({.path = path});
      if (!made) GTEST_SKIP() << made.error().message;
    }
  }
};

TEST_F(CudaPaths, ProductsHaveTheSameBits) {
  const std::vector<int64_t> all_rows = {1, 2, 8, 9, 16, 17, 32, 33, 64, 65, 200};
  for (const WeightFormat format : gpu_layouts())
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{960, 576}, {40, 64}, {129, 896}, {200, 768}, {1100, 2048}, {520, 7168}}) {
      if (k % format_info(format).block_weights) continue;
      const bool sides = format == WeightFormat::int4_g64 || format == WeightFormat::f16;
      const RandomWeight weight = random_weight(format, n, k, "test.weight", sides && k != 896 ? 0.01 : 0, sides && k == 896);
      const HostWeight parts[] = {weight.host};
      const std::vector<float> x = random_values(static_cast<size_t>(all_rows.back() * k));
      std::vector<std::vector<float>> of_hopper;
      for (const CudaPath path : {CudaPath::hopper, CudaPath::sm80}) {
        backend_ = make_cuda_backend({.path = path}).value();
        const Weight prepared = backend_->prepare(WeightRole::linear, parts).value();
        ASSERT_TRUE(backend_->reserve({.rows = 320, .seqs = 8, .logit_rows = 8, .context = 1024, .hidden = 2048, .max_k = 7168, .max_n = 2048,
                                       .vocabulary = 256, .max_heads = 8, .max_head_dim = 64}));
        for (size_t i = 0; i < all_rows.size(); ++i) {
          const int64_t rows = all_rows[i];
          Matrix in = upload({x.begin(), x.begin() + rows * k}, rows, k, DType::f16), out = poisoned(rows, n, DType::f32);
          backend_->ops().linear({.x = in.view, .w = &prepared, .out = out.view});
          const std::vector<float> got = download(out.view);
          if (path == CudaPath::hopper) of_hopper.push_back(got);
          else EXPECT_EQ(std::memcmp(got.data(), of_hopper[i].data(), got.size() * 4), 0) << format_info(format).name << " " << n << "x" << k << " rows " << rows;
        }
      }
    }
}

TEST_F(CudaPaths, ModelsHaveTheSameBits) {
  for (const std::string_view shape : {"tiny", "tiny-wide", "tiny-96", "tiny-256"})
    for (const WeightFormat format : {WeightFormat::int4_g128, WeightFormat::q4_1, WeightFormat::int8, WeightFormat::nf4_dq, WeightFormat::q4_k, WeightFormat::bf16}) {
      if ((format_info(format).block_weights == 256) != (shape == "tiny-256") || (shape == "tiny-96" && format != WeightFormat::bf16)) continue;
      SCOPED_TRACE(fmt::format("{} {}", shape, format_info(format).name));
      const uint64_t seed = random_();
      std::vector<TokenId> tokens;
      std::vector<std::vector<float>> of_hopper;
      for (const CudaPath path : {CudaPath::hopper, CudaPath::sm80}) {
        backend_ = make_cuda_backend({.path = path}).value();
        const auto model = make_synthetic_model({.shape = shape, .format = format, .outliers = format == WeightFormat::int4_g128 ? 0.005 : 0, .seed = seed}, *backend_).value();
        std::uniform_int_distribution<TokenId> token(0, model->config.vocabulary - 1);
        while (tokens.size() < 330) tokens.push_back(token(random_));
        size_t at = 0;
        for (const int32_t chunk : {1, 5, 16, 40, 330}) {
          testing::FlatInputs flat(*backend_);
          testing::SingleSequence sequence(flat, *model, 1024, 330);
          std::vector<float> got = sequence.feed_all(tokens, chunk);
          if (path == CudaPath::hopper) of_hopper.push_back(std::move(got));
          else EXPECT_EQ(std::memcmp(got.data(), of_hopper[at].data(), got.size() * 4), 0) << "chunks of " << chunk;
          ++at;
        }
      }
    }
}

// Blocks of 99 KiB are all that sm_86 and sm_89 have: one row of 8192 inputs leaves room for few rings there, and for no chain.
TEST_F(CudaPaths, BlocksOfSmallerCardsHaveTheSameBits) {
  for (const WeightFormat format : {WeightFormat::int4_g128, WeightFormat::nf4, WeightFormat::q4_1, WeightFormat::f16}) {
    SCOPED_TRACE(format_info(format).name);
    const uint64_t seed = random_();
    std::vector<float> of_hopper;
    for (const CudaOptions& options : {CudaOptions{.path = CudaPath::hopper}, CudaOptions{.path = CudaPath::sm80}, CudaOptions{.path = CudaPath::sm80, .most_shared_bytes = 163 << 10},
                                       CudaOptions{.path = CudaPath::sm80, .most_shared_bytes = 99 << 10}}) {
      backend_ = make_cuda_backend(options).value();
      const auto model = make_synthetic_model({.shape = "llama3-70b", .format = format, .layers = 1, .seed = seed}, *backend_).value();
      testing::FlatInputs flat(*backend_);
      testing::SingleSequence sequence(flat, *model, 64, 8);
      const std::vector<TokenId> tokens = {3, 1, 4, 1, 5, 9, 2, 6};
      const std::vector<float> got = sequence.feed_all(tokens, 1);
      if (of_hopper.empty()) of_hopper = got;
      ASSERT_EQ(got.size(), of_hopper.size());
      EXPECT_EQ(std::memcmp(got.data(), of_hopper.data(), got.size() * 4), 0) << cuda_path_name(options.path) << ", at most " << options.most_shared_bytes << " bytes a block";
    }
  }
}

// Long contexts: one row and a few rows take attention by splits, a prompt takes it by tiles of many rows.
TEST_F(CudaPaths, LongContextsKeepARowsBits) {
  constexpr int32_t kTokens = 1700, kLast = 12;
  for (const std::string_view shape : {"tiny", "tiny-wide"}) {
    SCOPED_TRACE(shape);
    const uint64_t seed = random_();
    std::vector<float> of_one;  // logits of the last kLast tokens
    for (const CudaPath path : {CudaPath::hopper, CudaPath::sm80}) {
      backend_ = make_cuda_backend({.path = path}).value();
      const auto model = make_synthetic_model({.shape = shape, .format = WeightFormat::int4_g128, .seed = seed}, *backend_).value();
      std::mt19937 tokens_of(static_cast<uint32_t>(seed));
      std::vector<TokenId> tokens;
      while (tokens.size() < kTokens) tokens.push_back(static_cast<TokenId>(tokens_of() % static_cast<uint32_t>(model->config.vocabulary)));
      for (const int32_t chunk : {1, 2, 3, kLast}) {
        testing::FlatInputs flat(*backend_);
        testing::SingleSequence sequence(flat, *model, 2048, 1024);
        const std::span<const TokenId> all(tokens);
        sequence.feed(all.first(1000), 1);
        sequence.feed(all.subspan(1000, kTokens - kLast - 1000), 1);
        std::vector<float> got;
        for (int32_t at = kTokens - kLast; at < kTokens; at += chunk) {
          const std::vector<float> some = sequence.feed(all.subspan(static_cast<size_t>(at), static_cast<size_t>(chunk)), chunk);
          got.insert(got.end(), some.begin(), some.end());
        }
        if (of_one.empty()) of_one = got;
        EXPECT_EQ(std::memcmp(got.data(), of_one.data(), of_one.size() * 4), 0) << cuda_path_name(path) << ", " << chunk << " at a time";
      }
      testing::FlatInputs flat(*backend_);
      testing::SingleSequence whole(flat, *model, 2048, kTokens);
      const std::vector<float> got = whole.feed(tokens, kLast);
      EXPECT_EQ(std::memcmp(got.data(), of_one.data(), of_one.size() * 4), 0) << cuda_path_name(path) << ", whole";
    }
  }
}

}  // namespace
}  // namespace quintet
