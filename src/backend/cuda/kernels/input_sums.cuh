// Sums of a product's inputs over the groups of formats with minima: sum of (scale * q - minimum) * x is scale * (q . x)
// - minimum * (sum of x). The mma.sync kernels form them as they go; those for many rows read them from here.
#pragma once

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/ptx.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kInputSumWarps = 4;

/// out [row tiles][k / (16 kGroupSteps)][rows of a tile]. The additions are those of a group's product,
/// with ones. grid: x = runs of kInputSumWarps groups, y = runs of 8 rows; a warp a group.
template <int kGroupSteps>
__global__ void __launch_bounds__(kInputSumWarps * 32) input_sums(const __grid_constant__ InputSumParams p) {
  launch_dependents();
  const int group = blockIdx.x * kInputSumWarps + threadIdx.x / 32, lane = threadIdx.x % 32, row = blockIdx.y * 8 + lane / 4, q = lane % 4;
  const int groups = p.layout.k_padded / (16 * kGroupSteps), tile = p.layout.tiles;
  wait_for_previous();
  if (group >= groups) return;
  float sum[4] = {};
#pragma unroll
  for (int step = 0; step < kGroupSteps; ++step) {
    const int k = (group * kGroupSteps + step) * 16 + q * 2;
    constexpr uint32_t kOnes = 0x3c003c00;
    const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
    mma_f16(sum, ones, *reinterpret_cast<const uint32_t*>(p.x + p.layout.index(row, k)), *reinterpret_cast<const uint32_t*>(p.x + p.layout.index(row, k + 8)));
  }
  // Every row of the product is the sums; lane q holds those of batch rows 2 q and 2 q + 1.
  if (lane < 4) {
    const int first = blockIdx.y * 8 + q * 2;
    float* to = p.out + (static_cast<size_t>(first / tile) * groups + group) * tile + first % tile;
    *reinterpret_cast<float2*>(to) = make_float2(sum[0], sum[1]);
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
