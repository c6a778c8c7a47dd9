// Vector code of the integer formats: rows of groups to ranges, codes and errors.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/cpu_simd.h"
#include "quant/integer_range.h"

namespace quintet {

/// Groups of format.group weights, one after the other.
struct RowGroups {
  const IntegerFormat& format;
  size_t groups = 0;
  const float* values = nullptr;   ///< [groups * group]
  const uint8_t* kept = nullptr;   ///< [groups * group] as in OutlierChoice; null: all
  const float* weights = nullptr;  ///< [groups * group] how much an error counts; null: 1
};

/// Each gives the bits of the scalar functions in integer_range.h and tensor/half.h on all targets: no sum is
/// fused, and none takes its terms in another order.
struct RowKernels {
  void (*decode_f16)(const uint8_t* in, size_t count, float* out);
  /// Whether all are numbers of at most `most`.
  bool (*all_within)(const float* values, size_t count, float most);
  void (*extents)(const RowGroups& row, Extent* extents);                             ///< extent_of()
  void (*search)(const RowGroups& row, const Extent* extents, IntegerRange* ranges);  ///< search_range()
  void (*round)(const RowGroups& row, const IntegerRange* ranges, uint8_t* codes);    ///< nearest_code()
  void (*decode)(const IntegerFormat& format, const uint8_t* codes, size_t groups, const IntegerRange* ranges,
                 float* values);  ///< value_of()
  /// Sums of moment * (weight - decoded)^2 and moment * weight^2; `moments` null: 1. Eight sums side by side,
  /// added up in order.
  void (*errors)(const float* weights, const float* decoded, const float* moments, size_t count, double* lost,
                 double* had);
};

/// Those of this machine.
const RowKernels& row_kernels(CpuSimd simd = CpuSimd::best);

}  // namespace quintet
