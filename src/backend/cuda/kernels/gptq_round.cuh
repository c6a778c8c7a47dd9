// Rounding of 128 columns, with what each leaves to those before it.
#pragma once

#include "backend/cuda/kernels/gptq_ranges.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kRoundWarps = 16, kRoundBlocks = 2, kRoundStride = kRoundColumns + 1;
inline constexpr int kRoundBytes = kRoundColumns * kRoundStride * 4;

/// A warp has a row at a time, lane l its columns l, l + 32, l + 64 and l + 96 of the block. Every lane rounds its column of
/// the current 32 at each step, so that one shuffle is all that a step waits for; a lane's last look is at the sum that it
/// had at its turn, since a column leaves nothing to itself and those behind it.
/// grid: x = blocks of threads that share out the rows; dynamic shared memory: kRoundBytes.
__global__ void __launch_bounds__(kRoundWarps * 32, kRoundBlocks) gptq_round(const __grid_constant__ RoundParams p) {
  extern __shared__ float left[];  // [column c][column j before it]: m[j][c], 0 for j >= c
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int i = threadIdx.x; i < kRoundColumns * kRoundColumns; i += kRoundWarps * 32) {
    const int j = i / kRoundColumns, c = i % kRoundColumns;
    left[c * kRoundStride + j] = j < c && c < p.columns ? p.factor[static_cast<size_t>(p.begin + j) * p.k + p.begin + c] : 0.f;
  }
  __syncthreads();
  constexpr int kOfLane = kRoundColumns / 32;
  int column[kOfLane];  // in the matrix's own order; -1: the block is shorter
#pragma unroll
  for (int s = 0; s < kOfLane; ++s) column[s] = s * 32 + lane < p.columns ? p.order[p.begin + s * 32 + lane] : -1;

  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRoundWarps + warp; row < p.n;
       row += static_cast<int64_t>(gridDim.x) * kRoundWarps) {
    float weight[kOfLane], sum[kOfLane], lost[kOfLane];
    float2 range[kOfLane];
    bool kept[kOfLane];
    int code[kOfLane];
#pragma unroll
    for (int s = 0; s < kOfLane; ++s) {
      weight[s] = sum[s] = 0, range[s] = {0.f, 0.f}, kept[s] = true;
      if (column[s] < 0) continue;
      weight[s] = p.weights[row * p.k + column[s]];
      sum[s] = p.sums[row * p.k + p.begin + s * 32 + lane];
      range[s] = p.ranges[row * (p.k / p.rules.group) + column[s] / p.rules.group];
      if (p.kept) kept[s] = p.kept[row * p.k + column[s]];
    }
#pragma unroll
    for (int s = kOfLane - 1; s >= 0; --s) {
#pragma unroll 4
      for (int l = 31; l >= 0; --l) {
        const float turn = weight[s] + sum[s];
        code[s] = nearest_code(p.rules, range[s], turn);
        // An outlier keeps in FP16 what stands at its turn: only what others left to it is a difference.
        lost[s] = kept[s] ? weight[s] - value_of(p.rules, range[s], code[s]) : -sum[s];
        const float d = __shfl_sync(0xffffffffu, lost[s], l);
        const float* of = left + (s * 32 + l) * kRoundStride + lane;
#pragma unroll
        for (int t = 0; t <= s; ++t) sum[t] = fmaf(of[t * 32], d, sum[t]);
      }
    }
#pragma unroll
    for (int s = 0; s < kOfLane; ++s) {
      if (column[s] < 0) continue;
      p.lost[row * p.lost_stride + p.lost_begin + s * 32 + lane] = lost[s];
      p.codes[row * p.k + column[s]] = static_cast<uint8_t>(code[s]);
      if (!kept[s]) p.weights[row * p.k + column[s]] = weight[s] + sum[s];
    }
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
