// Shared by the quantizers: rows of codes into blocks, and the choice of outliers.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "quant/integer_range.h"
#include "quant/quantize.h"

namespace quintet {

/// Writes the rows of a compressed matrix, each once, from any thread.
class RowWriter {
 public:
  RowWriter(const MatrixToQuantize& matrix, const IntegerFormat& format);
  /// `ranges` [k / group], `codes` [k].
  void write(int64_t row, const IntegerRange* ranges, const uint8_t* codes);
  QuantizedMatrix finish() { return std::move(made_); }

 private:
  IntegerFormat format_;
  QuantizedMatrix made_;
};

/// Which weights take part in their groups, and the groups' ranges.
struct OutlierChoice {
  std::vector<uint8_t> kept;         ///< [n, k] 1: in its group, 0: an outlier; empty: no outliers
  std::vector<IntegerRange> ranges;  ///< [n, k / group]

  const uint8_t* kept_row(int64_t row, int64_t k) const {
    return kept.empty() ? nullptr : kept.data() + row * k;
  }
};
/// As quantize_outlier(activation).
OutlierChoice choose_outliers(const MatrixToQuantize& matrix, const IntegerFormat& format, double share);

/// Fills in the outliers of a matrix: value minus what its code decodes to. `value(row, column)` is the
/// weight to keep.
void add_outliers(const OutlierChoice& choice, QuantizedMatrix& quantized, const float* values, int threads);

}  // namespace quintet
