// The Hessian in order, and blocks of its Cholesky factor.
#pragma once

#include <cuda_runtime.h>

#include "backend/cuda/kernels/gptq.h"
#include "backend/cuda/kernels/path.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kSolveThreads = 128, kFactorThreads = 512;

__global__ void __launch_bounds__(256) gptq_arrange(const __grid_constant__ ArrangeParams p) {
  const int a = blockIdx.y, b = blockIdx.x * 256 + threadIdx.x;
  if (b < a || b >= p.k) return;
  const int i = p.order[a], j = p.order[b];
  const size_t from = i <= j ? static_cast<size_t>(i) * p.k + j : static_cast<size_t>(j) * p.k + i;
  p.out[static_cast<size_t>(a) * p.k + b] = p.scale * p.hessian[from];
}

__global__ void __launch_bounds__(256) gptq_diagonal(const __grid_constant__ DiagonalParams p) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  if (i >= p.k) return;
  float& entry = p.matrix[static_cast<size_t>(i) * p.k + i];
  if (p.out)
    p.out[i] = p.scale * entry;
  else
    entry = p.from[p.order[i]] + p.add;
}

/// One block of threads: the rows' own columns, right-looking, one column after the other.
__global__ void __launch_bounds__(kFactorThreads) gptq_factor_block(const __grid_constant__ FactorParams p) {
  __shared__ float h[kFactorBlock][kFactorBlock + 1];
  float* corner = p.matrix + static_cast<size_t>(p.at) * p.k + p.at;
  for (int i = threadIdx.x; i < p.rows * p.rows; i += kFactorThreads) {
    const int row = i / p.rows, column = i % p.rows;
    h[row][column] = corner[static_cast<size_t>(row) * p.k + column];
  }
  __syncthreads();
  for (int i = 0; i < p.rows; ++i) {
    const float pivot = h[i][i];
    __syncthreads();  // everybody has read the pivot before it becomes its root
    // A NaN anywhere in the upper half reaches a later pivot, so that pivots alone are looked at.
    if (!(pivot > 0) || isinf(pivot)) {
      if (threadIdx.x == 0) *p.failed = 1;
      return;
    }
    const float root = sqrtf(pivot);
    for (int j = i + static_cast<int>(threadIdx.x); j < p.rows; j += kFactorThreads) h[i][j] = h[i][j] / root;
    __syncthreads();
    const int left = p.rows - i - 1;
    for (int at = threadIdx.x; at < left * left; at += kFactorThreads) {
      const int row = i + 1 + at / left, column = i + 1 + at % left;
      if (column >= row) h[row][column] -= h[i][row] * h[i][column];
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < p.rows * p.rows; i += kFactorThreads) {
    const int row = i / p.rows, column = i % p.rows;
    if (column >= row) corner[static_cast<size_t>(row) * p.k + column] = h[row][column];
  }
}

/// A thread has one column to the right in registers: forward substitution with the block's transpose. Rows that the last,
/// shorter block lacks are those of the identity. grid: x = chunks of kSolveThreads columns.
__global__ void __launch_bounds__(kSolveThreads) gptq_solve_block(const __grid_constant__ FactorParams p) {
  __shared__ float r[kFactorBlock][kFactorBlock];
  __shared__ float inverse[kFactorBlock];
  const float* corner = p.matrix + static_cast<size_t>(p.at) * p.k + p.at;
  for (int i = threadIdx.x; i < kFactorBlock * kFactorBlock; i += kSolveThreads) {
    const int row = i / kFactorBlock, column = i % kFactorBlock;
    r[row][column] = column < p.rows && row <= column ? corner[static_cast<size_t>(row) * p.k + column] : row == column ? 1.f : 0.f;
  }
  __syncthreads();
  if (threadIdx.x < kFactorBlock) inverse[threadIdx.x] = 1.f / r[threadIdx.x][threadIdx.x];
  __syncthreads();
  const int column = p.at + p.rows + blockIdx.x * kSolveThreads + threadIdx.x;
  if (column >= p.k) return;
  float* at = p.matrix + static_cast<size_t>(p.at) * p.k + column;
  float x[kFactorBlock];
#pragma unroll
  for (int i = 0; i < kFactorBlock; ++i) x[i] = i < p.rows ? at[static_cast<size_t>(i) * p.k] : 0.f;
#pragma unroll
  for (int i = 0; i < kFactorBlock; ++i) {
    x[i] *= inverse[i];
#pragma unroll
    for (int t = i + 1; t < kFactorBlock; ++t) x[t] = fmaf(-r[i][t], x[i], x[t]);
  }
#pragma unroll
  for (int i = 0; i < kFactorBlock; ++i)
    if (i < p.rows) at[static_cast<size_t>(i) * p.k] = x[i];
}

/// grid: x = rows.
__global__ void __launch_bounds__(256) gptq_unit_rows(float* matrix, int k) {
  const int row = blockIdx.x;
  float* of = matrix + static_cast<size_t>(row) * k;
  const float diagonal = of[row];
  __syncthreads();  // the diagonal is overwritten below
  for (int j = row + static_cast<int>(threadIdx.x); j < k; j += 256) of[j] = j == row ? 1.f : of[j] / diagonal;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
