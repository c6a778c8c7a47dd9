// Merges the partial results of attention's splits (attend.cuh).
#pragma once

#include "backend/cuda/kernels/attend.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// Merges a row's splits in ascending order. grid: x = heads, y = rows; dim / 2 threads. The loads of a run of splits are issued before
/// the first of them is met: one latency instead of many.
__global__ void attend_merge(const __grid_constant__ AttendParams p) {
  launch_dependents();
  wait_for_previous();
  const int head = blockIdx.x, row = blockIdx.y, column = threadIdx.x * 2, dim = blockDim.x * 2;
  const int pos = p.pos[row];
  if (pos < 0) return;
  const int first = p.window ? max(0, pos - p.window + 1) / kSplit : 0, last = pos / kSplit;
  const float* from = p.partial + (static_cast<size_t>(row) * p.heads + head) * p.splits * (dim + 2);
  float maximum = -INFINITY, sum = 0, v0 = 0, v1 = 0;
  constexpr int kRun = 16;
  for (int run = first; run <= last; run += kRun) {
    float2 value[kRun], state[kRun];  // state: maximum, sum
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      const float* part = from + static_cast<size_t>(min(run + i, last)) * (dim + 2);
      value[i] = *reinterpret_cast<const float2*>(part + column);
      state[i] = *reinterpret_cast<const float2*>(part + dim);
    }
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
      if (run + i > last) break;
      float ft, fp, m;
      merge_factors(maximum, state[i].x, ft, fp, m);
      maximum = m;
      sum = fmaf(state[i].y, fp, sum * ft);
      v0 = fmaf(value[i].x, fp, v0 * ft);
      v1 = fmaf(value[i].y, fp, v1 * ft);
    }
  }
  const float inverse = 1.f / sum;
  if (head == p.heads - 1) clear_padding(p, row, p.heads * dim, threadIdx.x, blockDim.x);
  *reinterpret_cast<half2*>(p.out + p.layout.index(row, head * dim + column)) = __floats2half2_rn(v0 * inverse, v1 * inverse);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
