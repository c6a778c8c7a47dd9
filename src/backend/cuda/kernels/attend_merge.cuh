// Merges the partial results of attention's splits (attend.cuh).
#pragma once

#include "backend/cuda/kernels/attend.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kMergeRun = 128, kMergeBatch = 16;  ///< splits whose factors, and whose sums, are at hand together
inline constexpr int kMergeMostDim = 256;
static_assert(kMergeRun % (2 * kMergeBatch) == 0);

/// Volatile keeps the loads of a batch together: the compiler moves others to where their numbers are met, a latency a split.
__device__ __forceinline__ float load_sum(const float* from) {
  float value;
  asm volatile("ld.global.f32 %0,[%1];" : "=f"(value) : "l"(from));
  return value;
}

/// How each split of a run meets what is before it, by one warp: .x and .y are the factors of what is before and of the split, .z is the
/// split's denominator. `states`: maximum and denominator of the first of them, `step` floats from split to split. The maxima before the
/// splits are found by a scan, since a maximum does not hang on its order.
__device__ __forceinline__ void make_factors(float4 (&factors)[kMergeRun], const float* states, size_t step, int count, float& maximum, int lane) {
  constexpr int kOwn = kMergeRun / 32;
  float2 state[kOwn];
  float own = -INFINITY;
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    const int split = lane * kOwn + i;
    state[i] = split < count ? *reinterpret_cast<const float2*>(states + split * step) : make_float2(-INFINITY, 0);
  }
#pragma unroll
  for (int i = 0; i < kOwn; ++i) own = fmaxf(own, state[i].x);
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const float before = __shfl_up_sync(0xffffffffu, own, distance);
    if (lane >= distance) own = fmaxf(own, before);
  }
  float m = __shfl_up_sync(0xffffffffu, own, 1);
  m = lane == 0 ? maximum : fmaxf(m, maximum);
#pragma unroll
  for (int i = 0; i < kOwn; ++i) {
    float ft, fp, met;
    merge_factors(m, state[i].x, ft, fp, met);
    m = met;
    factors[lane * kOwn + i] = make_float4(ft, fp, state[i].y, 0);
  }
  maximum = __shfl_sync(0xffffffffu, m, 31);
}

/// Merges a row's splits in ascending order. grid: x = heads, y = rows; a thread a column, whose next batch is on its way while the one
/// before is met.
__global__ void __launch_bounds__(kMergeMostDim) attend_merge(const __grid_constant__ AttendParams p) {
  __shared__ float4 factors[kMergeRun];
  launch_dependents();
  const int head = blockIdx.x, row = blockIdx.y, column = threadIdx.x, dim = blockDim.x;
  const int pos = p.pos[row];
  wait_for_previous();
  if (pos < 0) return;
  const int first = p.merge_from ? p.merge_from[row * p.kv_heads + head / (p.heads / p.kv_heads)] : p.window ? max(0, pos - p.window + 1) / kSplit : 0;
  if (first < 0) return;
  const int last = max(first, pos / kSplit);  // a row's last split may be before those that are left
  const float* from = partial_result(p, dim, row, head, 0);
  const size_t step = static_cast<size_t>(p.heads) * partial_width(dim);  // from split to split
  float maximum = -INFINITY, sum = 0, total = 0;
  float batch[2][kMergeBatch];
  const auto load = [&](float (&to)[kMergeBatch], int split) {
#pragma unroll
    for (int i = 0; i < kMergeBatch; ++i) to[i] = load_sum(from + min(split + i, last) * step + column);
  };
  const auto meet = [&](const float (&values)[kMergeBatch], int split) {
#pragma unroll
    for (int i = 0; i < kMergeBatch; ++i) {
      if (split + i > last) break;
      const float4 f = factors[(split + i - first) % kMergeRun];
      sum = fmaf(f.z, f.y, sum * f.x);
      total = fmaf(values[i], f.y, total * f.x);
    }
  };
  load(batch[0], first);
  for (int run = first; run <= last; run += kMergeRun) {
    __syncthreads();  // the factors of the run before have been used
    if (column < 32) make_factors(factors, from + run * step + dim, step, last - run + 1, maximum, column);
    __syncthreads();
#pragma unroll 1
    for (int split = run; split <= min(last, run + kMergeRun - 1); split += 2 * kMergeBatch) {
      load(batch[1], split + kMergeBatch);
      meet(batch[0], split);
      load(batch[0], split + 2 * kMergeBatch);
      meet(batch[1], split + kMergeBatch);
    }
  }
  if (head == p.heads - 1) clear_padding(p, row, p.heads * dim, column, dim);
  const float own = total * (1.f / sum), next = __shfl_down_sync(0xffffffffu, own, 1);
  if (column % 2 == 0) *reinterpret_cast<half2*>(p.out + p.layout.index(row, head * dim + column)) = __floats2half2_rn(own, next);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
