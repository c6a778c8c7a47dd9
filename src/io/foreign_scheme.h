// What a folder's configuration says of weights that another tool has compressed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace quintet {

/// How the compressed tensors of a folder lie in its files.
struct ForeignScheme {
  enum class Kind : uint8_t {
    gptq,           ///< qweight, qzeros, scales, g_idx (AutoGPTQ, GPTQModel)
    awq,            ///< qweight, qzeros, scales in AutoAWQ's order ("gemm")
    packed,         ///< compressed-tensors: weight_packed, weight_scale, ...
    rows,           ///< E4M3 or bytes under one scale a row or tensor: weight, weight_scale
    bitsandbytes,   ///< NF4 of bitsandbytes
  };
  Kind kind = Kind::gptq;
  int bits = 4;
  int64_t group = 128;       ///< inputs under one scale; -1: all
  bool symmetric = true;     ///< gptq, awq, packed: the zero point is the middle code
  bool act_order = false;    ///< gptq: the inputs of a group need not be neighbours, g_idx says which they are
  std::string_view rows_dtype;  ///< rows: what the settings say of the weights, empty: nothing
  bool zeros_less_one = true;  ///< gptq: version 1 of the format stores zero points less 1
};

/// The scheme of a config.json's quantization_config; where that has none, of `sidecar` (quantize_config.json of older
/// GPTQ folders; empty: there is none). Nothing where the weights are dense. Methods and settings that are not read are
/// bad_input, named by file and field.
Result<std::optional<ForeignScheme>> read_foreign_scheme(const std::string& folder, std::string_view config,
                                                         std::string_view sidecar);

}  // namespace quintet
