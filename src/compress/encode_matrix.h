// A matrix into one of GGUF's formats, or a dense one.
#pragma once

#include "quant/quantize.h"

namespace quintet {

/// Weighted by the matrix's moments, where it has any. `format` is one that can_encode() takes, and rows are whole blocks.
QuantizedMatrix encode_matrix(const MatrixToQuantize& matrix, WeightFormat format);

}  // namespace quintet
