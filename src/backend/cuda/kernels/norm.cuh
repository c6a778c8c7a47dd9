// Residual add and RMSNorm in one pass: takes the four partial sums of the product before, adds them in slice order to
// the residual stream, and leaves the normalised row as operand B of the product after.
//
// The reduction tree is that of chunk_sum.cuh. Chunks of a row go to the blocks of a cluster (Hopper) or to groups of warps of
// one block (sm80): the same tree either way.
#pragma once

#include <cooperative_groups.h>

#include "backend/cuda/kernels/chunk_sum.cuh"
#include "backend/cuda/kernels/inverse_rms.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// A row's members are the blocks of its cluster, or the groups of kNormThreads threads of its block.
inline constexpr int kNormBlockThreads = QUINTET_CUDA_HOPPER ? kNormThreads : kNormThreads * kNormCluster;

/// grid: x = blocks of a row's cluster (Hopper) or 1, y = rows. kEach: chunks of a member at most.
template <int kEach>
__global__ void __launch_bounds__(kNormBlockThreads) norm_rows(const __grid_constant__ NormParams p) {
#if QUINTET_CUDA_HOPPER
  namespace cg = cooperative_groups;
  __shared__ float warp_sums[4];
  __shared__ float sums[2][kNormMaxChunks];  // of the row's chunks: squares of the partial sums, squares of the residual
  const int member = blockIdx.x, members = gridDim.x, thread = threadIdx.x;
#else
  __shared__ __align__(16) float warp_sums[2][kNormMaxChunks * 4];  // the same, of the chunks' warps
  const int member = threadIdx.x / kNormThreads, members = blockDim.x / kNormThreads, thread = threadIdx.x % kNormThreads;
#endif
  launch_dependents();
  const int chunks = (p.hidden + kNormChunk - 1) / kNormChunk;
  const auto each = [&](auto&& body) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int chunk = member + i * members;
      if (chunk < chunks) body(i, chunk, chunk * kNormChunk + thread * 8);
    }
  };
  float weight[kEach][8];  // read while the kernel before still runs
  if (p.weight)
    each([&](int i, int, int column) {
      if (column < p.hidden) load_8(p.weight + column, weight[i]);
    });
#if QUINTET_CUDA_HOPPER
  cg::this_cluster().barrier_arrive();  // the wait before share() makes sure that all blocks have started
#endif
  wait_for_previous();
#if QUINTET_CUDA_HOPPER
  cg::this_cluster().barrier_wait();
#endif
  const int row = blockIdx.y, source = p.row_index ? p.row_index[row] : row;
  float* residual = p.residual + static_cast<size_t>(source) * p.hidden;

  auto share = [&](int which, int chunk, float squares) {
#if QUINTET_CUDA_HOPPER
    const float sum = chunk_sum(squares, warp_sums);
    auto cluster = cg::this_cluster();
    if (threadIdx.x < cluster.num_blocks()) *cluster.map_shared_rank(&sums[which][chunk], threadIdx.x) = sum;
#else
#pragma unroll
    for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    if (thread % 32 == 0) warp_sums[which][chunk * 4 + thread / 32] = squares;
#endif
  };
  auto row_scale = [&](int which, float eps) {
    float sum = 0;
#if QUINTET_CUDA_HOPPER
    cg::this_cluster().sync();
    for (int c = 0; c < chunks; ++c) sum += sums[which][c];
#else
    __syncthreads();
    for (int c = 0; c < chunks; ++c) {
      const float4 w = *reinterpret_cast<const float4*>(&warp_sums[which][c * 4]);
      sum += ((w.x + w.y) + w.z) + w.w;
    }
#endif
    return inverse_rms(sum, p.hidden, eps);
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

  // This block's columns of the row stay in registers from the addition to the output.
  float kept[kEach][8];
  float post_scale = 1;
  if (p.partial && p.post_weight) {
    each([&](int, int chunk, int column) {
      float squares = 0, v[8];
      if (column < p.hidden) {
        added(column, v);
#pragma unroll
        for (int i = 0; i < 8; ++i) squares = fmaf(v[i], v[i], squares);
      }
      share(0, chunk, squares);
    });
    post_scale = row_scale(0, p.post_eps);
  }
  float partial[kEach][8];  // all chunks are on their way before the first is met
  each([&](int i, int, int column) {
    if (column >= p.hidden) return;
    load_8(residual + column, kept[i]);
    if (p.partial) added(column, partial[i]);
  });
  each([&](int i, int chunk, int column) {
    float squares = 0;
    if (column < p.hidden) {
      float(&r)[8] = kept[i];
      if (p.partial) {
#pragma unroll
        for (int j = 0; j < 8; ++j) r[j] += p.post_weight ? partial[i][j] * post_scale * p.post_weight[column + j] : partial[i][j];
        float4* at = reinterpret_cast<float4*>(residual + column);
        at[0] = make_float4(r[0], r[1], r[2], r[3]);
        at[1] = make_float4(r[4], r[5], r[6], r[7]);
      }
#pragma unroll
      for (int j = 0; j < 8; ++j) squares = fmaf(r[j], r[j], squares);
    }
    if (p.weight) share(1, chunk, squares);
  });
  if (!p.weight) return;
  const float scale = row_scale(1, p.eps);
  each([&](int i, int, int column) {
#pragma unroll
    for (int j = 0; j < 8; j += 2)
      if (column < p.hidden)
        *reinterpret_cast<half2*>(p.out + p.layout.index(row, column + j)) =
            __floats2half2_rn(kept[i][j] * scale * weight[i][j], kept[i][j + 1] * scale * weight[i][j + 1]);
  });
  // Inputs past the row's end, up to a whole piece: another layout's numbers may lie there.
  for (int column = p.hidden + (member * kNormThreads + thread) * 2; column < p.layout.k_padded; column += members * kNormThreads * 2)
    *reinterpret_cast<half2*>(p.out + p.layout.index(row, column)) = __float2half2_rn(0.f);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
