// What a model's weights take in a format, from its shape alone.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "model/config.h"
#include "quant/format.h"

namespace quintet {

/// A matrix of the network.
struct SizedMatrix {
  std::string_view name;  ///< as GGUF names it, without the layer: "attn_v.weight", "token_embd.weight"
  int32_t layer = -1;     ///< -1: embedding and head
  int64_t n = 0, k = 0;
};

struct SizeQuestion {
  const ModelConfig& config;
  double outliers = 0;  ///< share of the layers' weights that is kept apart in FP16
  /// Of every matrix; one of which its rows are whole blocks.
  std::function<WeightFormat(const SizedMatrix&)> format_of;
};

/// Bytes as `quintet quantize` writes them, headers of files apart.
struct CompressedSize {
  uint64_t linear_weights = 0, table_weights = 0;
  uint64_t linear_bytes = 0, outlier_bytes = 0, table_bytes = 0;
  uint64_t vector_bytes = 0;  ///< norms and biases, in F32
  uint64_t bytes() const { return linear_bytes + outlier_bytes + table_bytes + vector_bytes; }
};

CompressedSize compressed_size(const SizeQuestion& question);

}  // namespace quintet
