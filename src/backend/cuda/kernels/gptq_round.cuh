// Ranges of groups, and rounding of 128 columns with what each leaves to those before it.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/cuda/kernels/gptq.h"
#include "backend/cuda/kernels/path.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kRangeThreads = 64;                            // a group each
inline constexpr int kMostGroup = 128, kRangeStride = kMostGroup + 1;  // odd, so that lanes read different banks
inline constexpr int kRangeBytes = kRangeThreads * kRangeStride * 4;
inline constexpr int kFactors = 17;
inline constexpr float kFactorStep = 0.025f;
inline constexpr float kRoundingShift = 12582912.0f;  // as in quant/integer_range.h
inline constexpr int kRoundWarps = 16, kRoundStride = kRoundColumns + 1;
inline constexpr int kRoundBytes = kRoundColumns * kRoundStride * 4;

__device__ __forceinline__ float as_half(float value) { return __half2float(__float2half_rn(value)); }

// The functions below are those of quant/integer_range.cpp step by step, with every product and sum rounded on its own as
// there (__fmul_rn and __fadd_rn are never fused): a range that differed would make results differ from the CPU's.

__device__ __forceinline__ float2 whole_zero_range(const IntegerRules& rules, float low, float high) {
  low = fminf(low, 0.f), high = fmaxf(high, 0.f);
  const float most = static_cast<float>(rules.most);
  float scale = as_half(__fdiv_rn(__fsub_rn(high, low), most));
  if (scale == 0) return {0.f, 0.f};
  float zero = roundf(__fdiv_rn(-low, scale));
  if (zero < 1) {
    zero = 1;
    scale = as_half(__fdiv_rn(high, most - 1));
  }
  return {scale, __fmul_rn(-scale, fminf(zero, most))};
}

__device__ __forceinline__ float2 range_of(const IntegerRules& rules, float low, float high, float factor) {
  if (!rules.minimum) {
    const float largest = __fmul_rn(fmaxf(-low, high), factor);
    return {as_half(__fdiv_rn(largest, static_cast<float>(rules.most / 2))), 0.f};
  }
  const float middle = __fmul_rn(__fadd_rn(low, high), 0.5f), half = __fmul_rn(__fmul_rn(__fsub_rn(high, low), 0.5f), factor);
  if (rules.whole_zero) return whole_zero_range(rules, __fsub_rn(middle, half), __fadd_rn(middle, half));
  return {as_half(__fdiv_rn(2 * half, static_cast<float>(rules.most))), as_half(__fsub_rn(middle, half))};
}

/// Threads of a block have the same group of kRangeThreads rows, so that they read the same moments.
/// grid: x = groups of a row, y = chunks of rows; dynamic shared memory: kRangeBytes.
__global__ void __launch_bounds__(kRangeThreads) gptq_ranges(const __grid_constant__ RangesParams p) {
  extern __shared__ float values[];  // [rows of the block][kRangeStride]
  const int group = p.rules.group, first = blockIdx.y * kRangeThreads, here = min(kRangeThreads, p.n - first);
  for (int i = threadIdx.x; i < here * group; i += kRangeThreads)
    values[i / group * kRangeStride + i % group] = p.weights[static_cast<size_t>(first + i / group) * p.k + blockIdx.x * group + i % group];
  __syncthreads();
  if (static_cast<int>(threadIdx.x) >= here) return;
  const float* of = values + threadIdx.x * kRangeStride;
  const float* moments = p.moments + blockIdx.x * group;
  float low = INFINITY, high = -INFINITY;
  for (int i = 0; i < group; ++i) low = fminf(low, of[i]), high = fmaxf(high, of[i]);
  float2 best = range_of(p.rules, low, high, 1.f);
  float least = INFINITY;
  const float bottom = static_cast<float>(-p.rules.offset), top = static_cast<float>(p.rules.most - p.rules.offset);
  for (int f = 0; f < kFactors; ++f) {
    const float2 range = range_of(p.rules, low, high, __fsub_rn(1.f, __fmul_rn(kFactorStep, static_cast<float>(f))));
    if (range.x == 0) break;
    const float inverse = __frcp_rn(range.x);
    float sum = 0;
    for (int i = 0; i < group; ++i) {
      const float steps = fminf(fmaxf(__fmul_rn(__fsub_rn(of[i], range.y), inverse), bottom), top);
      const float rounded = __fsub_rn(__fadd_rn(steps, kRoundingShift), kRoundingShift);
      const float error = __fsub_rn(of[i], __fadd_rn(__fmul_rn(range.x, rounded), range.y));
      sum = __fadd_rn(sum, __fmul_rn(__fmul_rn(moments[i], error), error));
    }
    if (sum < least) least = sum, best = range;
  }
  p.ranges[static_cast<size_t>(first + threadIdx.x) * gridDim.x + blockIdx.x] = best;
}

/// As nearest_code() and value_of() of quant/integer_range.h.
__device__ __forceinline__ int nearest_code(const IntegerRules& rules, float2 range, float value) {
  if (range.x == 0) return rules.offset;
  const float steps = fminf(fmaxf(__fdiv_rn(__fsub_rn(value, range.y), range.x), -300.f), 300.f);
  const int code = static_cast<int>(__fsub_rn(__fadd_rn(steps, kRoundingShift), kRoundingShift)) + rules.offset;
  return min(max(code, 0), rules.most);
}
__device__ __forceinline__ float value_of(const IntegerRules& rules, float2 range, int code) {
  return __fadd_rn(__fmul_rn(range.x, static_cast<float>(code - rules.offset)), range.y);
}

/// A warp has a row at a time, lane l its columns l, l + 32, l + 64 and l + 96 of the block. Every lane rounds its column of
/// the current 32 at each step, so that one shuffle is all that a step waits for; a lane's last look is at the sum that it
/// had at its turn, since a column leaves nothing to itself and those behind it.
/// grid: x = blocks of threads that share out the rows; dynamic shared memory: kRoundBytes.
__global__ void __launch_bounds__(kRoundWarps * 32) gptq_round(const __grid_constant__ RoundParams p) {
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

  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kRoundWarps + warp; row < p.n; row += static_cast<int64_t>(gridDim.x) * kRoundWarps) {
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
