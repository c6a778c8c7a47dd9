// The vendor library's FP16 products of the same shapes, timed beside ours: what a prompt's figures are divided by.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"

namespace quintet {

/// out[rows, n] = x[rows, k] w[n, k]^T.
struct ProductShape {
  int64_t n = 0, k = 0;
};

/// Milliseconds of cuBLAS for these products one after the other, FP16 with FP32 accumulation on random numbers, the
/// median of several rounds; nothing where the library cannot be loaded or the GPU has no room for the operands.
/// Uses the current device.
Result<std::optional<double>> measure_library_products(std::span<const ProductShape> products, int64_t rows);

}  // namespace quintet
