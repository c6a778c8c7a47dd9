// A Hugging Face folder into one GGUF file, without compressing beyond the format that is asked for.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "quant/format.h"

namespace quintet {

/// A tensor as it was written.
struct ConvertedTensor {
  std::string source, name;    ///< in the folder (empty: made from the configuration) and in the file
  std::vector<int64_t> shape;  ///< outermost first
  WeightFormat from = WeightFormat::f32, to = WeightFormat::f32;
};

struct ConvertOptions {
  WeightFormat format = WeightFormat::f16;  ///< of matrices: f16, bf16 or q8_0. Vectors become f32
  int threads = 0;
};

struct ConvertHooks {
  std::function<void(const ConvertedTensor&)> on_tensor;
  std::function<void(std::string_view message)> on_warning;
  /// In bytes of the source. false: stop (cancelled).
  std::function<bool(uint64_t done, uint64_t all)> progress;
};

/// The dimensions of what was converted.
struct ConvertReport {
  std::string architecture;
  int32_t layers = 0, hidden = 0, ffn = 0, heads = 0, kv_heads = 0, head_dim = 0, vocabulary = 0, context = 0;
  uint64_t weights = 0, source_bytes = 0, bytes = 0;
};

/// Checks every tensor's name and shape against config.json and writes `destination`, which must not exist, under
/// another name until it is whole. One tensor at a time is in memory. Rows that are no multiple of 32 stay F16 with
/// q8_0. A value that is NaN or infinite, or beyond F16 with f16, is bad_input named by tensor, row and column.
Result<ConvertReport> convert_model(const std::string& source, const std::string& destination,
                                    const ConvertOptions& options, const ConvertHooks& hooks);

}  // namespace quintet
