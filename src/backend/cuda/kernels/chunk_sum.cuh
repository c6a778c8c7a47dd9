// The reduction tree of every norm, for whoever runs one.
//
// The reduction tree of every norm (Numerics::norm_tree "chunk1024-lane8-xor-warp4"): a chunk of 1024 columns belongs to
// 128 threads; a thread adds the squares of its 8 neighbouring columns in ascending order, a warp adds its lanes by
// exclusive-or steps of 16, 8, 4, 2, 1, a chunk adds its 4 warps in order, a row adds its chunks in order.
#pragma once

#include "backend/cuda/kernels/params.h"

namespace quintet::cuda {

/// Sum over the chunk held by this block's threads, by the tree above; every thread gets it.
__device__ __forceinline__ float chunk_sum(float value, float* warp_sums) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffffu, value, step);
  if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = value;
  __syncthreads();
  const float sum = ((warp_sums[0] + warp_sums[1]) + warp_sums[2]) + warp_sums[3];
  __syncthreads();
  return sum;
}

}  // namespace quintet::cuda
