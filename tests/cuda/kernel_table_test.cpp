// Choices among kernels: each fits the device, and none changes a bit.
#include "backend/cuda/kernel_variants.h"
#include "cuda_fixture.h"
#include "engine/engine_client.h"
#include "model/synthetic.h"

namespace quintet {
namespace {

class CudaKernelTable : public CudaTest {
 protected:
  /// Tokens and their log probabilities of ten requests at once.
  std::vector<std::pair<TokenId, float>> answers(const KernelTable& table, const SyntheticOptions& weights) {
    backend_ = make_cuda_backend({.path = tested_path(), .table = table}).value();
    const auto model = make_synthetic_model(weights, *backend_).value();
    const auto engine = start_engine(*backend_, *model, {.context = 1100, .sequences = 10, .kv_tokens = 11000, .step_tokens = 100}).value();
    constexpr size_t kRequests = 10, kTokens = 30;
    std::vector<std::pair<TokenId, float>> all(kRequests * kTokens);
    for (RequestId id = 0; id < kRequests; ++id) {
      Request request{.id = id, .max_new_tokens = kTokens, .ignore_eos = true};
      // One of two rows at first, all ten in the end: contexts of one split and of four.
      for (size_t i = 0; i < 5 + id * 110; ++i) request.prompt.push_back(static_cast<TokenId>((i * 31 + id * 7) % 500));
      EXPECT_TRUE(engine->submit(std::move(request)));
    }
    for (size_t ended = 0; ended < kRequests;)
      for (const TokenEvent& event : engine->poll(1'000'000)) {
        if (event.token >= 0) all[event.id * kTokens + static_cast<size_t>(event.index)] = {event.token, event.logprob};
        ended += event.finish != FinishReason::none;
      }
    return all;
  }
};

TEST_F(CudaKernelTable, NoChoiceChangesABit) {
  for (const WeightFormat format : {WeightFormat::int4_g128, WeightFormat::q5_k}) {
    const bool in_blocks_of_256 = format == WeightFormat::q5_k;
    const SyntheticOptions weights = {.shape = in_blocks_of_256 ? "tiny-256" : "tiny", .format = format, .outliers = in_blocks_of_256 ? 0 : 0.005, .seed = random_()};
    const KernelTable usual;
    const auto want = answers(usual, weights);
    KernelTable lowest = usual;
    for (const KernelChoice& choice : kernel_choices()) {
      KernelTable table = usual;
      table.*choice.value = lowest.*choice.value = choice.low;
      EXPECT_EQ(answers(table, weights), want) << choice.name << " " << choice.low;
      table.*choice.value = choice.high;
      EXPECT_EQ(answers(table, weights), want) << choice.name << " " << choice.high;
    }
    EXPECT_EQ(answers(lowest, weights), want) << "all at their lowest";
  }
}

TEST_F(CudaKernelTable, OfAnotherDeviceIsRefusedByBothNames) {
  const auto made = make_cuda_backend({.path = tested_path(), .table = KernelTable{.device = "Another GPU"}});
  ASSERT_FALSE(made);
  EXPECT_NE(made.error().message.find("Another GPU"), std::string::npos) << made.error().message;
  EXPECT_NE(made.error().message.find(cuda_device_name(0)), std::string::npos) << made.error().message;
}

TEST_F(CudaKernelTable, EveryVariantFitsAMultiprocessor) {
  for (const WeightFormat format : gpu_formats()) {
    const auto variants = cuda_kernel_variants({.path = tested_path()}, format);
    ASSERT_TRUE(variants) << variants.error().message;
    EXPECT_GE(variants->size(), 10u);
    for (const KernelVariant& one : *variants) {
      SCOPED_TRACE(fmt::format("{}, tiles of {} rows, {}", format_info(format).name, one.tile_rows, one.result));
      EXPECT_GE(one.blocks, 1);
      EXPECT_GT(one.registers, 0);
      EXPECT_LE(one.threads * one.registers * one.blocks, 65536) << "registers of a multiprocessor";
    }
  }
}

}  // namespace
}  // namespace quintet
