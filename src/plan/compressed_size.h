// What a model's weights take in a format, from its shape alone.
#pragma once

#include <cstdint>

#include "base/result.h"
#include "model/config.h"
#include "quant/format.h"

namespace quintet {

struct SizeQuestion {
  const ModelConfig& config;
  WeightFormat linear = WeightFormat::int4_g128;  ///< of the layers' matrices
  double outliers = 0;                            ///< share of their weights that is kept apart in FP16
  WeightFormat tables = WeightFormat::int4_g128;  ///< of embedding and head
};

/// Bytes as `quintet quantize` writes them, headers of files apart.
struct CompressedSize {
  uint64_t linear_weights = 0, table_weights = 0;
  uint64_t linear_bytes = 0, outlier_bytes = 0, table_bytes = 0;
  uint64_t vector_bytes = 0;  ///< norms and biases, in F32
  uint64_t bytes() const { return linear_bytes + outlier_bytes + table_bytes + vector_bytes; }
};

/// bad_input where rows are no whole number of a format's blocks.
Result<CompressedSize> compressed_size(const SizeQuestion& question);

}  // namespace quintet
