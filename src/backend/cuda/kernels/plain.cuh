// The fine operations on plain row-major matrices (FP32 or FP16): each alone, for tests, for `--unfused` and for parts of
// the forward pass that have no fused kernel.
#pragma once

#include "backend/cuda/kernels/activation_function.cuh"
#include "backend/cuda/kernels/chunk_sum.cuh"
#include "backend/cuda/kernels/inverse_rms.cuh"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

__device__ __forceinline__ float load_plain(const PlainMatrix& m, int row, int column) {
  const size_t at = static_cast<size_t>(row) * m.stride + column;
  return m.is_half ? __half2float(static_cast<const __half*>(m.data)[at]) : static_cast<const float*>(m.data)[at];
}
__device__ __forceinline__ void store_plain(const PlainMatrix& m, int row, int column, float value) {
  const size_t at = static_cast<size_t>(row) * m.stride + column;
  if (m.is_half) static_cast<__half*>(m.data)[at] = __float2half_rn(value);
  else static_cast<float*>(m.data)[at] = value;
}

/// Rows to operand B, zeros beyond the columns. grid: x = chunks of 256 of k_padded, y = rows.
__global__ void __launch_bounds__(256) pack_rows(const __grid_constant__ PackRowsParams p) {
  launch_dependents();
  wait_for_previous();
  const int row = blockIdx.y, k = blockIdx.x * 256 + threadIdx.x;
  if (k >= p.layout.k_padded) return;
  p.out[p.layout.index(row, k & ~1) + (k & 1)] = k < p.columns ? __float2half_rn(load_plain(p.x, row, k)) : __float2half_rn(0.f);
}

/// Partial sums added in slice order, bias, and into a plain matrix. grid: x = chunks of 256 columns, y = rows.
__global__ void __launch_bounds__(256) reduce_rows(const __grid_constant__ ReduceParams p) {
  launch_dependents();
  wait_for_previous();
  const int row = blockIdx.y, column = blockIdx.x * 256 + threadIdx.x;
  if (column >= p.columns) return;
  const size_t from = static_cast<size_t>(row) * p.stride + p.place.piece(column) * 16 + p.place.local(column);
  float value = add_slices<float>(p.partial + from, p.slice_stride, p.slices);
  if (p.bias) value += p.bias[column];
  if (p.add) value += load_plain(p.out, row, column);
  store_plain(p.out, row, column, value);
}

/// RMSNorm by the tree of norm.cuh, one block a row. grid: x = rows.
__global__ void __launch_bounds__(kNormThreads) norm_plain(const __grid_constant__ NormPlainParams p) {
  __shared__ float warp_sums[4];
  launch_dependents();
  wait_for_previous();
  const int row = blockIdx.x, chunks = (p.columns + kNormChunk - 1) / kNormChunk;
  float total = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    float squares = 0;
    for (int i = 0; i < 8; ++i) {
      const int column = chunk * kNormChunk + threadIdx.x * 8 + i;
      const float v = column < p.columns ? load_plain(p.x, row, column) : 0.f;
      squares = fmaf(v, v, squares);
    }
    total += chunk_sum(squares, warp_sums);
  }
  const float scale = inverse_rms(total, p.columns, p.eps);
  for (int column = threadIdx.x; column < p.columns; column += kNormThreads)
    store_plain(p.out, row, column, load_plain(p.x, row, column) * scale * p.weight[column]);
}

/// grid: x = chunks of 256 columns, y = rows.
__global__ void __launch_bounds__(256) gate_plain(const __grid_constant__ ElementParams p) {
  launch_dependents();
  wait_for_previous();
  const int row = blockIdx.y, column = blockIdx.x * 256 + threadIdx.x;
  if (column >= p.columns) return;
  store_plain(p.out, row, column, activate(p.activation, load_plain(p.x, row, column)) * load_plain(p.x, row, p.columns + column));
}

/// out += x. grid: x = chunks of 256 columns, y = rows.
__global__ void __launch_bounds__(256) add_plain(const __grid_constant__ ElementParams p) {
  launch_dependents();
  wait_for_previous();
  const int row = blockIdx.y, column = blockIdx.x * 256 + threadIdx.x;
  if (column < p.columns) store_plain(p.out, row, column, load_plain(p.out, row, column) + load_plain(p.x, row, column));
}

/// out[row] = x[row_index[row]]. grid: x = chunks of 256 columns, y = rows.
__global__ void __launch_bounds__(256) gather_plain(const __grid_constant__ ElementParams p) {
  launch_dependents();
  wait_for_previous();
  const int row = blockIdx.y, column = blockIdx.x * 256 + threadIdx.x;
  if (column < p.columns) store_plain(p.out, row, column, load_plain(p.x, p.row_index[row], column));
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
