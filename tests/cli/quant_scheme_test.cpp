// A file's scheme is told from its tensors, whatever format stood in for rows that super-blocks cannot divide.
#include "cli/quant_scheme.h"

#include <gtest/gtest.h>

namespace quintet {
namespace {

using enum WeightFormat;

ModelTensor matrix(const char* name, int64_t k, WeightFormat format) {
  return {.weight = {.name = name, .format = format, .n = 64, .k = k}, .shape = {64, k}};
}

TEST(QuantScheme, NamesIq4XsWhereMostRowsFellBack) {
  // SmolLM2's rows: 576 weights, but 1536 in ffn_down.
  const ModelTensor q = matrix("blk.0.attn_q.weight", 576, iq4_nl), gate = matrix("blk.0.ffn_gate.weight", 576, iq4_nl);
  EXPECT_EQ(quant_scheme({q, gate, matrix("blk.0.ffn_down.weight", 1536, iq4_xs)}), "IQ4_XS");
  EXPECT_EQ(quant_scheme({q, gate, matrix("blk.0.ffn_down.weight", 1536, iq4_xs), matrix("blk.1.ffn_down.weight", 1536, q5_k)}), "IQ4_XS");
  EXPECT_EQ(quant_scheme({q, gate, matrix("blk.0.ffn_down.weight", 1536, q3_k)}), "Q3_K_S");
  EXPECT_EQ(quant_scheme({q, gate}), "IQ4_NL");
}

}  // namespace
}  // namespace quintet
