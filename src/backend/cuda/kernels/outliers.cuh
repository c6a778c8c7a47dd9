// Weights that a format cannot hold well, kept apart as FP16 (quant/host_weight.h): what they add to the outputs of a product, or
// to rows of an embedding table. And inputs in the order of a weight's columns.
//
// The rule is that of outlier_sum.cuh. The result is added to the product's, after its slices.
#pragma once

#include <cuda_fp16.h>

#include <type_traits>

#include "backend/cuda/kernels/outlier_sum.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/ptx.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kOutlierThreads = 256, kOutlierOutputs = 32, kColumnInputs = 64;

/// One row: a lane a sum. grid: x = runs of kOutlierOutputs outputs.
__global__ void __launch_bounds__(kOutlierThreads) outliers_row(const __grid_constant__ OutlierParams p) {
  launch_dependents();
  const int output = blockIdx.x * kOutlierOutputs + threadIdx.x / kOutlierSums, own = threadIdx.x % kOutlierSums;
  const uint32_t begin = p.side.begin[output], end = p.side.begin[output + 1];
  uint32_t entry = begin + own < end ? p.side.entries[begin + own] : 0;
  wait_for_previous();
  float sum = 0;
  for (uint32_t e = begin + own; e < end; e += kOutlierSums) {
    const uint32_t next = e + kOutlierSums < end ? p.side.entries[e + kOutlierSums] : 0;
    sum = fmaf(outlier_value(entry), __half2float(p.x[p.layout.index(0, outlier_input(entry))]), sum);
    entry = next;
  }
#pragma unroll
  for (int step = kOutlierSums / 2; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, step);
  if (own == 0) p.out[output] = p.add ? p.out[output] + sum : sum;
}

/// Operand B by columns, tiles of kRows rows: [row tiles][k_padded][kRows], so that an entry finds its input of all rows together.
/// grid: x = runs of kColumnInputs inputs, y = row tiles.
template <int kRows>
__global__ void __launch_bounds__(kOutlierThreads) input_columns(const __grid_constant__ OutlierParams p) {
  __shared__ __half tile[kColumnInputs][kRows + 2];
  launch_dependents();
  const int k0 = blockIdx.x * kColumnInputs, row0 = blockIdx.y * kRows;
  wait_for_previous();
#pragma unroll
  for (int i = threadIdx.x; i < kColumnInputs / 2 * kRows; i += kOutlierThreads) {
    const int k = i % (kColumnInputs / 2) * 2, row = i / (kColumnInputs / 2);
    const half2 both = *reinterpret_cast<const half2*>(p.x + p.layout.index(row0 + row, k0 + k));
    tile[k][row] = __low2half(both);
    tile[k + 1][row] = __high2half(both);
  }
  __syncthreads();
  half2* to = reinterpret_cast<half2*>(p.columns + (static_cast<size_t>(blockIdx.y) * p.layout.k_padded + k0) * kRows);
#pragma unroll
  for (int i = threadIdx.x; i < kColumnInputs * kRows / 2; i += kOutlierThreads)
    to[i] = *reinterpret_cast<const half2*>(&tile[i / (kRows / 2)][i % (kRows / 2) * 2]);
}

template <int kEach>
__device__ __forceinline__ void load_inputs(const __half* from, float (&to)[kEach]) {
  if constexpr (kEach == 1) {
    to[0] = __half2float(*from);
  } else {
    using Word = std::conditional_t<kEach == 2, uint32_t, uint2>;
    static_assert(sizeof(Word) == kEach * 2);
    const Word word = *reinterpret_cast<const Word*>(from);
#pragma unroll
    for (int i = 0; i < kEach; i += 2) {
      const float2 both = __half22float2(reinterpret_cast<const half2*>(&word)[i / 2]);
      to[i] = both.x, to[i + 1] = both.y;
    }
  }
}

/// More rows: a lane one row of an output, two or four, and all sums of them; outputs of a block in as few turns as registers allow.
/// grid: x = runs of kOutlierOutputs outputs, y = row tiles.
template <int kRows>
struct OutlierTile {
  static constexpr int kLanes = kRows < 32 ? kRows : 32, kEach = kRows / kLanes, kTogether = 32 / kLanes;
  static constexpr int kWarps = kEach > 2 ? 16 : 32 / kTogether, kThreads = kWarps * 32, kWarpOutputs = kOutlierOutputs / kWarps;
};
template <int kRows>
__global__ void __launch_bounds__(OutlierTile<kRows>::kThreads) outliers_rows(const __grid_constant__ OutlierParams p) {
  using Tile = OutlierTile<kRows>;
  constexpr int kLanes = Tile::kLanes, kEach = Tile::kEach, kWarpOutputs = Tile::kWarpOutputs;
  __shared__ float tile[kRows][kOutlierOutputs + 1];
  launch_dependents();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, output0 = blockIdx.x * kOutlierOutputs, row0 = blockIdx.y * kRows;
  const __half* x = p.columns + static_cast<size_t>(blockIdx.y) * p.layout.k_padded * kRows + lane % kLanes * kEach;
  int local = warp * kWarpOutputs + lane / kLanes;
  OutlierEntries next(p.side, output0 + local);
  wait_for_previous();
  while (true) {
    float sum[kOutlierSums][kEach] = {};
    while (next.left() > 0) {
      const int count = next.left();
      uint32_t entry[kOutlierSums];
      float input[kOutlierSums][kEach];
#pragma unroll
      for (int j = 0; j < kOutlierSums; ++j) entry[j] = next.entry[j];
      next.advance();
#pragma unroll
      for (int j = 0; j < kOutlierSums; ++j) load_inputs(x + static_cast<size_t>(outlier_input(entry[j])) * kRows, input[j]);
#pragma unroll
      for (int j = 0; j < kOutlierSums; ++j)
#pragma unroll
        for (int i = 0; i < kEach; ++i)
          if (j < count) sum[j][i] = fmaf(outlier_value(entry[j]), input[j][i], sum[j][i]);
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i) tile[lane % kLanes * kEach + i][local] = meet_outlier_sums(sum, i);
    local += Tile::kTogether;
    if (local >= (warp + 1) * kWarpOutputs) break;
    next = OutlierEntries(p.side, output0 + local);
  }
  __syncthreads();
#pragma unroll
  for (int i = threadIdx.x; i < kRows * kOutlierOutputs; i += Tile::kThreads) {
    const int row = i / kOutlierOutputs, output = i % kOutlierOutputs;
    if (row0 + row >= p.rows) break;
    float& to = p.out[static_cast<size_t>(row0 + row) * p.out_stride + output0 + output];
    to = p.add ? to + tile[row][output] : tile[row][output];
  }
}

/// grid: x = rows.
__global__ void __launch_bounds__(kOutlierThreads) outliers_embed(const __grid_constant__ OutlierEmbedParams p) {
  launch_dependents();
  wait_for_previous();
  int token = p.token[blockIdx.x];
  if (token < 0) token = p.sampled[p.prev[blockIdx.x]].token;
  token = min(max(token, 0), p.vocabulary - 1);
  float* row = p.out + static_cast<size_t>(blockIdx.x) * p.k;
  for (uint32_t e = p.side.begin[token] + threadIdx.x; e < p.side.begin[token + 1]; e += kOutlierThreads) row[outlier_input(p.side.entries[e])] += outlier_value(p.side.entries[e]);
  __syncthreads();
  for (int i = threadIdx.x; i < p.k; i += kOutlierThreads) row[i] = __fmul_rn(row[i], p.scale);
}

/// grid: x = runs of 2 kOutlierThreads inputs, y = rows.
__global__ void __launch_bounds__(kOutlierThreads) permute_inputs(const __grid_constant__ PermuteParams p) {
  launch_dependents();
  const int row = blockIdx.y, k = (blockIdx.x * kOutlierThreads + threadIdx.x) * 2;
  if (k >= p.layout.k_padded) return;
  const int first = k < p.k ? p.in_perm[k] : 0, second = k + 1 < p.k ? p.in_perm[k + 1] : 0;
  wait_for_previous();
  const __half zero = __float2half_rn(0.f);
  *reinterpret_cast<half2*>(p.out + p.layout.index(row, k)) =
      __halves2half2(k < p.k ? p.x[p.layout.index(row, first)] : zero, k + 1 < p.k ? p.x[p.layout.index(row, second)] : zero);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
