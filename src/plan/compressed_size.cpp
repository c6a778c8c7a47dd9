// Sums over the matrices of all layers.
#include "plan/compressed_size.h"

#include <fmt/format.h>

#include <cmath>

namespace quintet {
namespace {

constexpr uint64_t kOutlierBytes = 4;  // column and value; and 4 a row, where its entries begin

Result<uint64_t> matrix_bytes(WeightFormat format, int64_t n, int64_t k) {
  const FormatInfo& info = format_info(format);
  if (k % info.block_weights != 0)
    return bad_input(fmt::format("format {}: found rows of {} weights, allowed are multiples of {}",
                                 info.name, k, info.block_weights));
  const uint64_t scales = info.decode_scaled ? sizeof(float) * static_cast<uint64_t>(n) : 0;
  return format_bytes_of(format, static_cast<uint64_t>(n * k)) + scales;
}

}  // namespace

Result<CompressedSize> compressed_size(const SizeQuestion& question) {
  const ModelConfig& c = question.config;
  const int64_t q = int64_t{c.heads} * c.head_dim, kv = int64_t{c.kv_heads} * c.head_dim;
  CompressedSize layer;  // of one
  const std::pair<int64_t, int64_t> matrices[] = {{q, c.hidden},    {kv, c.hidden},    {kv, c.hidden},
                                                  {c.hidden, q},    {c.ffn, c.hidden}, {c.ffn, c.hidden},
                                                  {c.hidden, c.ffn}};
  for (const auto& [n, k] : matrices) {
    TRY_ASSIGN(const uint64_t bytes, matrix_bytes(question.linear, n, k));
    layer.linear_weights += static_cast<uint64_t>(n * k);
    layer.linear_bytes += bytes;
    if (question.outliers > 0)
      layer.outlier_bytes +=
          kOutlierBytes *
          static_cast<uint64_t>(std::llround(question.outliers * static_cast<double>(n * k)) + n + 1);
  }
  const int64_t norms = (c.post_norms ? 4 : 2) * c.hidden + (c.qk_norm ? 2 * c.head_dim : 0);
  const int64_t biases = c.qkv_bias ? q + 2 * kv : 0;
  const auto layers = static_cast<uint64_t>(c.layers);
  const uint64_t tables = c.tied_embeddings ? 1 : 2;
  TRY_ASSIGN(const uint64_t table_bytes, matrix_bytes(question.tables, c.vocabulary, c.hidden));
  return CompressedSize{
      .linear_weights = layers * layer.linear_weights,
      .table_weights = tables * static_cast<uint64_t>(c.vocabulary) * static_cast<uint64_t>(c.hidden),
      .linear_bytes = layers * layer.linear_bytes,
      .outlier_bytes = layers * layer.outlier_bytes,
      .table_bytes = tables * table_bytes,
      .vector_bytes =
          sizeof(float) * (layers * static_cast<uint64_t>(norms + biases) + static_cast<uint64_t>(c.hidden))};
}

}  // namespace quintet
