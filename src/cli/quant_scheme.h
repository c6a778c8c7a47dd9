// Which quantization a model file uses, told from its tensors and not from its name.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/model_files.h"

namespace quintet {

/// What one format holds of a model.
struct FormatShare {
  WeightFormat format;
  int64_t tensors = 0;
  uint64_t parameters = 0;
  uint64_t bytes = 0;
};

/// Most bytes first.
std::vector<FormatShare> format_shares(const std::vector<ModelTensor>& tensors);

/// The scheme's name as the field knows it: "Q4_K_M", "Q8_0", "BF16"; "none" without tensors. The k-quant
/// mixes
/// (..._S, _M, _L) differ in the formats of attn_v and ffn_down, and store rows that are no multiple of 256
/// in an older format of about the same size, which is undone here.
std::string quant_scheme(const std::vector<ModelTensor>& tensors);

/// "Q4_K", "BF16".
std::string format_label(WeightFormat format);

}  // namespace quintet
