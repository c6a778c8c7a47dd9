// Residual add and RMSNorm (norm.cuh) of many rows with one partial sum each: blocks that stay take row after row, the next one's numbers on
// their way. The reduction tree is that of chunk_sum.cuh.
#pragma once

#include "backend/cuda/kernels/inverse_rms.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// Chunks of a row at most.
inline constexpr int kNormManyChunks = 8;

/// Whether norm_many takes them.
constexpr bool norms_many(const NormParams& p) {
  return p.weight && !p.post_weight && !p.row_index && p.slices <= 1 && p.hidden % 16 == 0 && p.hidden <= kNormManyChunks * kNormChunk;
}

/// A thread has 8 columns of each row. Two neighbours read and write their 64 bytes together, half of each other's: L2 moves 32 bytes for
/// 16 of them, too. grid: x = blocks, which take rows in turn; block: kNormThreads for each chunk.
__global__ void __launch_bounds__(kNormManyChunks* kNormThreads, 1) norm_many(const __grid_constant__ NormParams p) {
  __shared__ __align__(16) float warp_sums[2][kNormManyChunks * 4];
  launch_dependents();
  const int column = threadIdx.x * 8, warp = threadIdx.x / 32, chunks = blockDim.x / kNormThreads;
  const bool odd = threadIdx.x % 2, exists = column < p.hidden;
  const int first = odd ? column - 4 : column;  // of the 4 columns that this thread reads; 8 further are as many more
  float weight[8] = {};
  if (exists) load_8(p.weight + column, weight);
  wait_for_previous();
  const auto residual_of = [&](int row) { return reinterpret_cast<float4*>(p.residual + static_cast<int64_t>(row) * p.hidden + first); };
  float4 residual[2], added[2];
  const auto load = [&](int row) {
    if (!exists) return;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      residual[i] = load_l2(residual_of(row) + i * 2);
      if (p.partial) added[i] = load_l2(reinterpret_cast<const float4*>(p.partial + static_cast<int64_t>(row) * p.partial_stride + first) + i * 2);
    }
  };
#pragma unroll
  for (int i = 0; i < 2; ++i) residual[i] = added[i] = make_float4(0, 0, 0, 0);
  int row = blockIdx.x, turn = 0;
  if (row < p.rows) load(row);
  for (; row < p.rows; row += gridDim.x, turn ^= 1) {
    float4 sum[2] = {residual[0], residual[1]};
    if (p.partial && exists) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float4 v = added[i];
        if (p.partial_bias) v = plus(v, *reinterpret_cast<const float4*>(p.partial_bias + first + i * 8));
        sum[i] = plus(sum[i], v);
        residual_of(row)[i * 2] = sum[i];
      }
    }
    if (row + gridDim.x < p.rows) load(row + gridDim.x);
    const float4 given = odd ? sum[0] : sum[1];
    float4 taken;
    taken.x = __shfl_xor_sync(0xffffffffu, given.x, 1), taken.y = __shfl_xor_sync(0xffffffffu, given.y, 1);
    taken.z = __shfl_xor_sync(0xffffffffu, given.z, 1), taken.w = __shfl_xor_sync(0xffffffffu, given.w, 1);
    const float4 low = odd ? taken : sum[0], high = odd ? sum[1] : taken;
    const float kept[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    float squares = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) squares = fmaf(kept[i], kept[i], squares);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    if (threadIdx.x % 32 == 0) warp_sums[turn][warp] = squares;
    __syncthreads();  // one a row: the sums of two rows lie apart
    float total = 0;
    for (int c = 0; c < chunks; ++c) {
      const float4 w = *reinterpret_cast<const float4*>(&warp_sums[turn][c * 4]);
      total += ((w.x + w.y) + w.z) + w.w;
    }
    const float scale = inverse_rms(total, p.hidden, p.eps);
    uint4 halves = make_uint4(0, 0, 0, 0);  // past the row's end, up to a whole piece: another layout's numbers may lie there
    half2* const half = reinterpret_cast<half2*>(&halves);
#pragma unroll
    for (int i = 0; i < 8; i += 2)
      if (exists) half[i / 2] = __floats2half2_rn(kept[i] * scale * weight[i], kept[i + 1] * scale * weight[i + 1]);
    if (column < p.layout.k_padded) *reinterpret_cast<uint4*>(p.out + p.layout.index(row, column)) = halves;
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
