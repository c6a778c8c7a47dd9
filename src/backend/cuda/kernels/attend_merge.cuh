// Merges the partial results of attention's splits (attend.cuh).
#pragma once

#include "backend/cuda/kernels/attend.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kMergeRun = 16, kMergeMostDim = 256;  ///< splits that are copied together

/// Merges a row's splits in ascending order. grid: x = heads, y = rows; dim / 2 threads. A run of splits is on its way into shared memory
/// while the run before is met: loads of registers are moved by the compiler to where their numbers are met, a latency a split.
__global__ void __launch_bounds__(kMergeMostDim / 2) attend_merge(const __grid_constant__ AttendParams p) {
  __shared__ __align__(16) float2 runs[2][kMergeRun][kMergeMostDim / 2 + 1];  // two columns each; behind them maximum and sum
  launch_dependents();
  wait_for_previous();
  const int head = blockIdx.x, row = blockIdx.y, pair = threadIdx.x, pairs = blockDim.x, dim = pairs * 2;
  const int pos = p.pos[row];
  if (pos < 0) return;
  const int first = p.window ? max(0, pos - p.window + 1) / kSplit : 0, last = pos / kSplit;
  const float2* from = reinterpret_cast<const float2*>(p.partial + (static_cast<size_t>(row) * p.heads + head) * p.splits * (dim + 2));
  const auto ask = [&](int run, int to) {
    for (int i = pair; i < kMergeRun * (pairs + 1) && run + i / (pairs + 1) <= last; i += pairs)
      copy_async_8(shared_address(&runs[to][i / (pairs + 1)][i % (pairs + 1)]), from + static_cast<size_t>(run) * (pairs + 1) + i);
    copy_async_commit();
  };
  float maximum = -INFINITY, sum = 0, v0 = 0, v1 = 0;
  int at = 0;
  ask(first, 0);
  for (int run = first; run <= last; run += kMergeRun, at ^= 1) {
    ask(run + kMergeRun, at ^ 1);
    copy_async_wait<1>();
    __syncthreads();
    const int count = min(kMergeRun, last - run + 1);
    for (int i = 0; i < count; ++i) {
      const float2 value = runs[at][i][pair], state = runs[at][i][pairs];
      float ft, fp, m;
      merge_factors(maximum, state.x, ft, fp, m);
      maximum = m;
      sum = fmaf(state.y, fp, sum * ft);
      v0 = fmaf(value.x, fp, v0 * ft);
      v1 = fmaf(value.y, fp, v1 * ft);
    }
    __syncthreads();
  }
  const float inverse = 1.f / sum;
  if (head == p.heads - 1) clear_padding(p, row, p.heads * dim, pair, pairs);
  *reinterpret_cast<half2*>(p.out + p.layout.index(row, head * dim + pair * 2)) = __floats2half2_rn(v0 * inverse, v1 * inverse);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
