// A weight of the reference backend: the file's own bytes, decoded row by row with the scalar codecs when
// used.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/weight.h"
#include "base/result.h"
#include "quant/format.h"

namespace quintet::reference {

struct ReferencePart {
  WeightFormat format = WeightFormat::f32;
  int64_t rows = 0;
  std::vector<uint8_t> bytes;  // [rows, k] blocks of `format`
  std::vector<uint8_t> outlier_rows, outlier_columns, outlier_values;  // as in Outliers; empty where it has none
  std::vector<uint8_t> row_scales;  // as in HostWeight
  std::vector<int32_t> in_perm;     // as in HostWeight
};

struct ReferenceWeight : PackedWeight {
  int64_t k = 0;
  std::vector<ReferencePart> parts;

  /// Row `row` of the stacked parts, decoded: out [k].
  void decode_row(int64_t row, float* out) const;
};

/// The reference's own layout of a prepared weight.
const ReferenceWeight& unwrap(const Weight& weight);

/// Copies the parts; a value that is not finite is bad_input, named by tensor, row and column.
Result<Weight> prepare_weight(WeightRole role, std::span<const HostWeight> parts);

}  // namespace quintet::reference
