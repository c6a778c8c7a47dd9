// Residual add and RMSNorm in one pass: takes the four partial sums of the product before, adds them in slice order to
// the residual stream, and leaves the normalised row as operand B of the product after.
//
// The reduction tree is that of chunk_sum.cuh. // Chunks of a row go to the blocks of a cluster (sm_90) or one after the other (sm_80): the same tree either way.
#pragma once

#include <cooperative_groups.h>

#include "backend/cuda/kernels/chunk_sum.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda {

/// grid: x = blocks of a row's cluster, y = rows.
__global__ void __launch_bounds__(kNormThreads) norm_rows(const __grid_constant__ NormParams p) {
  namespace cg = cooperative_groups;
  __shared__ float warp_sums[4];
  __shared__ float sums[2][kNormMaxChunks];  // of the row's chunks: squares of the partial sums, squares of the residual
  launch_dependents();
  wait_for_previous();
  const int row = blockIdx.y, source = p.row_index ? p.row_index[row] : row;
  const int chunks = (p.hidden + kNormChunk - 1) / kNormChunk;
  float* residual = p.residual + static_cast<size_t>(source) * p.hidden;

  auto share = [&](int which, int chunk, float sum) {
#if __CUDA_ARCH__ >= 900
    auto cluster = cg::this_cluster();
    if (threadIdx.x < cluster.num_blocks()) *cluster.map_shared_rank(&sums[which][chunk], threadIdx.x) = sum;
#else
    if (threadIdx.x == 0) sums[which][chunk] = sum;
#endif
  };
  auto row_scale = [&](int which, float eps) {
#if __CUDA_ARCH__ >= 900
    cg::this_cluster().sync();
#else
    __syncthreads();
#endif
    float sum = 0;
    for (int c = 0; c < chunks; ++c) sum += sums[which][c];
    return rsqrtf(sum / p.hidden + eps);
  };
  // A thread's 8 columns of a chunk: the partial sums added in slice order.
  auto added = [&](int column, float (&v)[8]) {
    const float* from = p.partial + static_cast<size_t>(row) * p.partial_stride + column;
    const int64_t stride = static_cast<int64_t>(p.rows) * p.partial_stride;
    const float4 a = add_slices<float4>(from, stride, p.slices), b = add_slices<float4>(from + 4, stride, p.slices);
    const float sum[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] = sum[i];
    if (p.partial_bias)
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i] += p.partial_bias[column + i];
  };

  float post_scale = 1;
  if (p.partial && p.post_weight) {
    for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
      const int column = chunk * kNormChunk + threadIdx.x * 8;
      float squares = 0, v[8];
      if (column < p.hidden) {
        added(column, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) squares = fmaf(v[i], v[i], squares);
      }
      share(0, chunk, chunk_sum(squares, warp_sums));
    }
    post_scale = row_scale(0, p.post_eps);
  }
  for (int chunk = blockIdx.x; chunk < chunks; chunk += gridDim.x) {
    const int column = chunk * kNormChunk + threadIdx.x * 8;
    float squares = 0;
    if (column < p.hidden) {
      float4* at = reinterpret_cast<float4*>(residual + column);
      float4 a = at[0], b = at[1];
      float r[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
      if (p.partial) {
        float v[8];
        added(column, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) r[i] += p.post_weight ? v[i] * post_scale * p.post_weight[column + i] : v[i];
        at[0] = make_float4(r[0], r[1], r[2], r[3]);
        at[1] = make_float4(r[4], r[5], r[6], r[7]);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) squares = fmaf(r[i], r[i], squares);
    }
    if (p.weight) share(1, chunk, chunk_sum(squares, warp_sums));
  }
  if (!p.weight) return;
  const float scale = row_scale(1, p.eps);
  for (int column = blockIdx.x * kNormChunk + threadIdx.x * 8; column < p.layout.k_padded; column += gridDim.x * kNormChunk) {
#pragma unroll
    for (int i = 0; i < 8; i += 2) {
      half2 value = __float2half2_rn(0.f);
      if (column + i < p.hidden)
        value = __floats2half2_rn(residual[column + i] * scale * p.weight[column + i],
                                  residual[column + i + 1] * scale * p.weight[column + i + 1]);
      *reinterpret_cast<half2*>(p.out + p.layout.index(row, column + i)) = value;
    }
  }
}

}  // namespace quintet::cuda
