// Which layers keep which tensors wider, as told from files of a model of 30 layers that llama.cpp made.
#include "compress/gguf_mix.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

namespace quintet {
namespace {

using enum WeightFormat;

/// The layers of 30 whose `tensor` has the format.
std::set<int32_t> layers_with(std::string_view mix, std::string_view tensor, WeightFormat format) {
  std::set<int32_t> layers;
  for (int32_t layer = 0; layer < 30; ++layer)
    if (format_in_mix(*find_gguf_mix(mix), fmt::format("blk.{}.{}.weight", layer, tensor), layer, 30, true) == format)
      layers.insert(layer);
  return layers;
}

TEST(GgufMix, TheSameLayersAreWiderAsInOtherFiles) {
  using Layers = std::set<int32_t>;
  const Layers more = {0, 1, 2, 5, 8, 11, 14, 17, 20, 23, 26, 27, 28, 29};
  for (const std::string_view tensor : {"attn_v", "ffn_down"}) {
    EXPECT_EQ(layers_with("q4_k_m", tensor, q6_k), more);
    EXPECT_EQ(layers_with("q5_k_m", tensor, q6_k), more);
  }
  EXPECT_EQ(layers_with("q3_k_m", "attn_v", q5_k), (Layers{0, 1}));
  EXPECT_EQ(layers_with("q3_k_m", "attn_v", q4_k).size(), 28u);
  EXPECT_EQ(layers_with("q3_k_m", "ffn_down", q5_k), (Layers{0}));
  EXPECT_EQ(layers_with("q3_k_m", "ffn_down", q4_k).size(), 29u);
  EXPECT_EQ(layers_with("q4_k_s", "attn_v", q5_k), (Layers{0, 1, 2, 3}));
  EXPECT_EQ(layers_with("q4_k_s", "ffn_down", q5_k), (Layers{0, 1, 2}));
  EXPECT_EQ(layers_with("iq4_xs", "ffn_down", q5_k), (Layers{0, 1, 2}));
  EXPECT_EQ(layers_with("q6_k", "ffn_down", q6_k).size(), 30u);
}

TEST(GgufMix, AHeadIsWiderAndSoIsAnEmbeddingThatIsOne) {
  const GgufMix& mix = *find_gguf_mix("q4_k_m");
  EXPECT_EQ(format_in_mix(mix, "output.weight", -1, 30, false), q6_k);
  EXPECT_EQ(format_in_mix(mix, "token_embd.weight", -1, 30, true), q6_k);
  EXPECT_EQ(format_in_mix(mix, "token_embd.weight", -1, 30, false), q4_k);
}

}  // namespace
}  // namespace quintet
