// What the outliers of one output add to it, by one rule for any number of rows: entry e goes to sum e % 8, products in ascending
// order by fused multiply-adds in FP32 (products of halves are exact); the eight sums meet as
// ((0 + 4) + (2 + 6)) + ((1 + 5) + (3 + 7)).
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/row_inputs.cuh"

namespace quintet::cuda {

inline constexpr int kOutlierSums = 8;

__device__ __forceinline__ int outlier_input(uint32_t entry) { return entry & 0xffff; }
__device__ __forceinline__ float outlier_value(uint32_t entry) { return __half2float(__ushort_as_half(static_cast<unsigned short>(entry >> 16))); }

/// Of row i of kEach.
template <int kEach>
__device__ __forceinline__ float meet_outlier_sums(const float (&sum)[kOutlierSums][kEach], int i) {
  return ((sum[0][i] + sum[4][i]) + (sum[2][i] + sum[6][i])) + ((sum[1][i] + sum[5][i]) + (sum[3][i] + sum[7][i]));
}

/// Entries of one output, kOutlierSums at a time. The first are asked for when it is made, so that they are on their way before
/// the inputs are there; places past the last entry hold 0.
struct OutlierEntries {
  const uint32_t* entries;
  uint32_t begin, end;
  uint32_t entry[kOutlierSums];

  __device__ __forceinline__ OutlierEntries(const OutlierSide& side, int output) : entries(side.entries), begin(side.begin[output]), end(side.begin[output + 1]) { ask(); }
  __device__ __forceinline__ int left() const { return static_cast<int>(end - begin); }
  __device__ __forceinline__ void advance() {
    begin = min(begin + kOutlierSums, end);
    ask();
  }

 private:
  __device__ __forceinline__ void ask() {
#pragma unroll
    for (int j = 0; j < kOutlierSums; ++j) entry[j] = begin + j < end ? entries[begin + j] : 0;
  }
};

/// The sum of one output and one row, by one thread; `row` lies as store_inputs() leaves it.
template <bool kPlain>
__device__ __forceinline__ float outlier_sum(OutlierEntries& of, const __half* row) {
  float sum[kOutlierSums][1] = {};
  for (; of.left() > 0; of.advance())
#pragma unroll
    for (int j = 0; j < kOutlierSums; ++j)
      if (j < of.left()) sum[j][0] = fmaf(outlier_value(of.entry[j]), __half2float(row[input_place<kPlain>(outlier_input(of.entry[j]))]), sum[j][0]);
  return meet_outlier_sums(sum, 0);
}

}  // namespace quintet::cuda
