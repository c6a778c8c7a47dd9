// Compression of dense weights while a model is loaded (--quantize-on-load): methods that need no calibration.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"
#include "model/model.h"
#include "quant/quantize.h"

namespace quintet {

/// "none", "rtn", "outlier", "nf4", "fp8", "int8".
std::optional<OnLoad> on_load_from_name(std::string_view name);

/// What a weight of a linear layer becomes; nothing where it stays as it is: compressed already, of another role, or with
/// rows that are no whole number of blocks.
std::optional<WeightFormat> format_on_load(OnLoad method, WeightRole role, const HostWeight& weight);

/// Makes it. bad_input, named by tensor, where a value is not finite.
Result<QuantizedMatrix> compress_on_load(OnLoad method, WeightFormat format, const HostWeight& weight);

}  // namespace quintet
