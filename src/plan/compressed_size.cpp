// Sums over the matrices of all layers.
#include "plan/compressed_size.h"

#include <cmath>
#include <vector>

#include "base/check.h"

namespace quintet {
namespace {

constexpr uint64_t kOutlierBytes = 4;  // column and value; and 4 a row, where its entries begin

uint64_t bytes_of(const SizedMatrix& matrix, WeightFormat format) {
  const FormatInfo& info = format_info(format);
  QUINTET_CHECK(matrix.k % info.block_weights == 0, "{}: rows of {} in {}", matrix.name, matrix.k, info.name);
  const uint64_t scales = info.decode_scaled ? sizeof(float) * static_cast<uint64_t>(matrix.n) : 0;
  return format_bytes_of(format, static_cast<uint64_t>(matrix.n * matrix.k)) + scales;
}

}  // namespace

CompressedSize compressed_size(const SizeQuestion& question) {
  const ModelConfig& c = question.config;
  const int64_t q = int64_t{c.heads} * c.head_dim, kv = int64_t{c.kv_heads} * c.head_dim;
  const int64_t norms = (c.post_norms ? 4 : 2) * c.hidden + (c.qk_norm ? 2 * c.head_dim : 0);
  const int64_t biases = c.qkv_bias ? q + 2 * kv : 0;
  CompressedSize size{.vector_bytes = sizeof(float) * static_cast<uint64_t>(c.layers * (norms + biases) + c.hidden)};
  for (int32_t layer = 0; layer < c.layers; ++layer) {
    std::vector<SizedMatrix> matrices = {{"attn_output.weight", layer, c.hidden, q}, {"ffn_down.weight", layer, c.hidden, c.ffn}};
    if (c.architecture == "phi3")  // fused
      matrices.insert(matrices.end(), {{"attn_qkv.weight", layer, q + 2 * kv, c.hidden}, {"ffn_up.weight", layer, 2 * c.ffn, c.hidden}});
    else
      matrices.insert(matrices.end(), {{"attn_q.weight", layer, q, c.hidden},
                                       {"attn_k.weight", layer, kv, c.hidden},
                                       {"attn_v.weight", layer, kv, c.hidden},
                                       {"ffn_gate.weight", layer, c.ffn, c.hidden},
                                       {"ffn_up.weight", layer, c.ffn, c.hidden}});
    for (const SizedMatrix& matrix : matrices) {
      const int64_t weights = matrix.n * matrix.k;
      size.linear_weights += static_cast<uint64_t>(weights);
      size.linear_bytes += bytes_of(matrix, question.format_of(matrix));
      if (question.outliers > 0)
        size.outlier_bytes +=
            kOutlierBytes * static_cast<uint64_t>(std::llround(question.outliers * static_cast<double>(weights)) + matrix.n + 1);
    }
  }
  std::vector<SizedMatrix> tables = {{"token_embd.weight", -1, c.vocabulary, c.hidden}};
  if (!c.tied_embeddings) tables.push_back({"output.weight", -1, c.vocabulary, c.hidden});
  for (const SizedMatrix& table : tables) {
    size.table_weights += static_cast<uint64_t>(table.n * table.k);
    size.table_bytes += bytes_of(table, question.format_of(table));
  }
  return size;
}

}  // namespace quintet
