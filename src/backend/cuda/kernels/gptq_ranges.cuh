// Ranges of groups, and which weights are worth keeping apart: quant/integer_range.cpp and quant/quantize_outlier.cpp step by
// step, with every product and sum rounded on its own as there (__fmul_rn and __fadd_rn are never fused), so that ranges and
// outliers are the CPU's.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "backend/cuda/kernels/gptq.h"
#include "backend/cuda/kernels/path.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kRangeThreads = 64;                               // a group each
inline constexpr int kMostGroup = 128, kRangeStride = kMostGroup + 1;  // odd, so that lanes read different banks
inline constexpr int kRangeBytes = kRangeThreads * kRangeStride * 4;
inline constexpr int kFactors = 17;
inline constexpr float kFactorStep = 0.025f;
inline constexpr float kRoundingShift = 12582912.0f;  // as in quant/integer_range.h

/// std::min and std::max, which differ from the device's own in zeros' signs.
__device__ __forceinline__ float lesser(float a, float b) { return b < a ? b : a; }
__device__ __forceinline__ float greater(float a, float b) { return a < b ? b : a; }

__device__ __forceinline__ float as_half(float value) { return __half2float(__float2half_rn(value)); }

__device__ __forceinline__ float2 whole_zero_range(const IntegerRules& rules, float low, float high) {
  low = lesser(low, 0.f), high = greater(high, 0.f);
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
    const float largest = __fmul_rn(greater(-low, high), factor);
    return {as_half(__fdiv_rn(largest, static_cast<float>(rules.most / 2))), 0.f};
  }
  const float middle = __fmul_rn(__fadd_rn(low, high), 0.5f), half = __fmul_rn(__fmul_rn(__fsub_rn(high, low), 0.5f), factor);
  if (rules.whole_zero) return whole_zero_range(rules, __fsub_rn(middle, half), __fadd_rn(middle, half));
  return {as_half(__fdiv_rn(2 * half, static_cast<float>(rules.most))), as_half(__fsub_rn(middle, half))};
}

/// Values and moments of the group that a thread has: those of a block have the same group of kRangeThreads rows, so that they
/// read the same moments. `values` [kRangeThreads][kRangeStride]; an outlier is one whose `kept` is 0.
struct GroupOfThread {
  const float* values;
  const float* moments;
  const uint8_t* kept;  ///< null: all are
  int count;
  size_t begin;  ///< of the group in the matrix
  size_t index;  ///< of the group among all; beyond the rows: nothing to do
  bool here;

  __device__ bool keeps(int i) const { return !kept || kept[i]; }
};

__device__ __forceinline__ GroupOfThread load_group(const RangesParams& p, float* values) {
  const int group = p.rules.group, first = blockIdx.y * kRangeThreads, rows = min(kRangeThreads, p.n - first);
  for (int i = threadIdx.x; i < rows * group; i += kRangeThreads)
    values[i / group * kRangeStride + i % group] = p.weights[static_cast<size_t>(first + i / group) * p.k + blockIdx.x * group + i % group];
  __syncthreads();
  const size_t row = first + threadIdx.x, begin = row * p.k + blockIdx.x * group;
  return {.values = values + threadIdx.x * kRangeStride,
          .moments = p.moments + blockIdx.x * group,
          .kept = p.kept ? p.kept + begin : nullptr,
          .count = group,
          .begin = begin,
          .index = row * gridDim.x + blockIdx.x,
          .here = static_cast<int>(threadIdx.x) < rows};
}

/// Least and greatest of those that are kept and are not `but`; low > high: there is none.
__device__ __forceinline__ float2 extent_of(const GroupOfThread& of, int but) {
  float low = INFINITY, high = -INFINITY;
  for (int i = 0; i < of.count; ++i)
    if (i != but && of.keeps(i)) low = lesser(low, of.values[i]), high = greater(high, of.values[i]);
  return {low, high};
}

/// grid: x = groups of a row, y = chunks of rows; dynamic shared memory: kRangeBytes.
__global__ void __launch_bounds__(kRangeThreads) gptq_ranges(const __grid_constant__ RangesParams p) {
  extern __shared__ float values[];
  const GroupOfThread of = load_group(p, values);
  if (!of.here) return;
  const auto [lowest, highest] = extent_of(of, -1);
  const float low = lowest > highest ? 0.f : lowest, high = lowest > highest ? 0.f : highest;
  float2 best = range_of(p.rules, low, high, 1.f);
  float least = INFINITY;
  const float bottom = static_cast<float>(-p.rules.offset), top = static_cast<float>(p.rules.most - p.rules.offset);
  for (int f = 0; f < kFactors; ++f) {
    const float2 range = range_of(p.rules, low, high, __fsub_rn(1.f, __fmul_rn(kFactorStep, static_cast<float>(f))));
    if (range.x == 0) break;
    const float inverse = __frcp_rn(range.x);
    float sum = 0;
    for (int i = 0; i < of.count; ++i) {
      const float steps = fminf(fmaxf(__fmul_rn(__fsub_rn(of.values[i], range.y), inverse), bottom), top);
      const float rounded = __fsub_rn(__fadd_rn(steps, kRoundingShift), kRoundingShift);
      const float error = __fsub_rn(of.values[i], __fadd_rn(__fmul_rn(range.x, rounded), range.y));
      sum = __fadd_rn(sum, __fmul_rn(__fmul_rn(of.keeps(i) ? of.moments[i] : 0.f, error), error));
    }
    if (sum < least) least = sum, best = range;
  }
  p.ranges[of.index] = best;
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

/// Scores of a group's weights as OutlierChooser::score_group() gives them; of outliers -1. Launched as gptq_ranges, whose
/// ranges it reads.
__global__ void __launch_bounds__(kRangeThreads) gptq_scores(const __grid_constant__ RangesParams p) {
  extern __shared__ float values[];
  const GroupOfThread of = load_group(p, values);
  if (!of.here) return;
  const float2 range = p.ranges[of.index];
  float* scores = p.scores + of.begin;
  float moment_sum = 0;
  for (int i = 0; i < of.count; ++i) {
    moment_sum = __fadd_rn(moment_sum, of.moments[i]);
    const float error = __fsub_rn(of.values[i], value_of(p.rules, range, nearest_code(p.rules, range, of.values[i])));
    scores[i] = of.keeps(i) ? __fmul_rn(__fmul_rn(of.moments[i], error), error) : -1.f;
  }
  const auto [low, high] = extent_of(of, -1);
  const float reach = low > high ? 0.f : p.rules.minimum ? __fsub_rn(high, low) : fmaxf(-low, high);
  if (!(reach > 0)) return;
  for (int i = 0; i < of.count; ++i) {
    const float value = of.values[i];
    const bool end = p.rules.minimum ? value == low || value == high : fabsf(value) == reach;
    if (!end || !of.keeps(i)) continue;
    const auto [rest_low, rest_high] = extent_of(of, i);
    if (rest_low > rest_high) continue;
    const float left = p.rules.minimum ? __fsub_rn(rest_high, rest_low) : fmaxf(-rest_low, rest_high);
    const float narrower = __fdiv_rn(__fmul_rn(range.x, left), reach);
    const float gain = __fsub_rn(__fmul_rn(range.x, range.x), __fmul_rn(narrower, narrower));
    scores[i] = __fadd_rn(scores[i], __fdiv_rn(__fmul_rn(moment_sum, gain), 12.f));
  }
}

/// Orders scores of 0 and more as they are, below them all those of outliers.
__device__ __forceinline__ uint32_t score_key(float score) { return score >= 0 ? __float_as_uint(score + 0.f) + 1 : 0; }

/// Counts keys by their upper half, or by the lower one those whose upper half is `upper`. grid: any number of blocks.
__global__ void __launch_bounds__(256) gptq_count_scores(const __grid_constant__ ScoresParams p) {
  const size_t all = static_cast<size_t>(p.n) * p.k;
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < all; i += size_t{256} * gridDim.x) {
    const uint32_t key = score_key(p.scores[i]);
    if (p.upper < 0)
      atomicAdd(p.counts + (key >> 16), 1u);
    else if (key >> 16 == static_cast<uint32_t>(p.upper))
      atomicAdd(p.counts + (key & 0xffff), 1u);
  }
}

/// A warp a row. Without `kept`: counts[row] = keys equal to the threshold. With it: keys above the threshold become outliers,
/// and of those equal to it the first counts[row] of the row. grid: x = chunks of 8 rows.
__global__ void __launch_bounds__(256) gptq_take_scores(const __grid_constant__ ScoresParams p) {
  const int lane = threadIdx.x % 32, row = blockIdx.x * 8 + threadIdx.x / 32;
  if (row >= p.n) return;
  const float* scores = p.scores + static_cast<size_t>(row) * p.k;
  const uint32_t most = p.kept ? p.counts[row] : 0;
  uint32_t seen = 0;
  for (int i = lane; i < (p.k + 31) / 32 * 32; i += 32) {
    const uint32_t key = i < p.k ? score_key(scores[i]) : 0;
    const bool equal = i < p.k && key == p.threshold;
    const uint32_t among = __ballot_sync(0xffffffffu, equal), before = seen + __popc(among & ((1u << lane) - 1));
    if (p.kept && i < p.k && (key > p.threshold || (equal && before < most))) p.kept[static_cast<size_t>(row) * p.k + i] = 0;
    seen += __popc(among);
  }
  if (!p.kept && lane == 0) p.counts[row] = seen;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
