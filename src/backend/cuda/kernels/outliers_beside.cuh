// What outliers add to a product of few rows, formed by two warps of each of its blocks while the product runs: a slice of its own
// behind the others, by the rule of outlier_sum.cuh.
//
// An entry meets its input of all rows at once, so inputs have to lie by columns: each block turns its share of them, and all wait
// for each other. As kernels of their own before the product that took a quarter of a step of 16 rows (docs/performance.md).
#pragma once

#include "backend/cuda/kernels/grid_progress.cuh"
#include "backend/cuda/kernels/outlier_sum.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda {

inline constexpr int kBesideWarps = 2, kBesideThreads = kBesideWarps * 32;

/// This block's share of operand B, [k / 64][kRows][128 bytes] in swizzle, by columns: [k][kRows]. `thread` of kBesideThreads.
template <int kRows>
__device__ __forceinline__ void turn_inputs(const __half* x, __half* columns, int k, int thread) {
  constexpr int kPairs = kRows / 2, kRounds = kPairs < 8 ? kPairs : 8;  // of half2 that are on their way at a time
  for (int tile = blockIdx.x; tile < k / 64; tile += gridDim.x) {
    const __half* from = x + static_cast<size_t>(tile) * 64 * kRows;
    half2* to = reinterpret_cast<half2*>(columns + static_cast<size_t>(tile) * 64 * kRows);
    static_assert(kBesideThreads == 64);
    for (int first = 0; first < kPairs; first += kRounds) {
      half2 pairs[kRounds];
#pragma unroll
      for (int i = 0; i < kRounds; ++i) {
        const int column = ((first + i) * kBesideThreads + thread) / kPairs, row = thread % kPairs * 2;
        const auto at = [&](int r) { return from[r * 64 + (column / 8 ^ r % 8) * 8 + column % 8]; };
        pairs[i] = __halves2half2(at(row), at(row + 1));
      }
#pragma unroll
      for (int i = 0; i < kRounds; ++i) to[(first + i) * kBesideThreads + thread] = pairs[i];
    }
  }
}

/// Waits until all blocks' inputs are turned; the last to see it clears the counters for the next launch.
__device__ __forceinline__ void meet_blocks(ChainProgress& progress, int thread) {
  named_barrier<14, kBesideThreads>();
  if (thread == 0) {
    publish(&progress.arrived);
    wait_for(&progress.arrived, gridDim.x);
    if (atomicAdd(&progress.left, 1) + 1 == gridDim.x) progress.arrived = progress.left = 0;
  }
  named_barrier<14, kBesideThreads>();
}

/// The slice of all outputs of the product, by `thread` of kBesideThreads of each block; p.x has `inputs` inputs. All blocks must be on the
/// device at once.
template <int kRows>
__device__ __forceinline__ void outliers_beside(const ProductParams& p, int inputs, int thread) {
  constexpr int kEach = 4, kLanes = kRows / kEach, kTogether = 32 / kLanes;  // rows of a lane, lanes of an output, outputs of a warp
  const int lane = thread % 32, row = lane % kLanes * kEach, stride = gridDim.x * kBesideWarps * kTogether;
  int output = (blockIdx.x * kBesideWarps + thread / 32) * kTogether + lane / kLanes;
  const uint32_t* entries = p.outliers.entries;
  keep(entries);
  // Entries are asked for a round ahead of their use, and where those of an output begin an output ahead.
  uint32_t begin = 0, end = 0, next_begin = 0, next_end = 0, entry[kOutlierSums];
  const auto find = [&](int of) {
    next_begin = of < p.n ? p.outliers.begin[of] : 0;
    next_end = of < p.n ? p.outliers.begin[of + 1] : 0;
  };
  const auto ask = [&] {
#pragma unroll
    for (int j = 0; j < kOutlierSums; ++j) entry[j] = begin + j < end ? entries[begin + j] : 0;
  };
  const auto go_on = [&](int next) {  // to the output that was found; `next` follows it
    begin = next_begin, end = next_end;
    ask();
    find(next);
  };
  find(output);
  go_on(output + stride);
  wait_for_previous();
  turn_inputs<kRows>(reinterpret_cast<const __half*>(p.x), p.columns, inputs, thread);
  meet_blocks(*p.progress, thread);

  const __half* x = p.columns + row;
  keep(x);
  float* out = static_cast<float*>(p.out) + kSlices * p.slice_stride + static_cast<size_t>(row) * p.out_stride;
  for (; output - lane / kLanes < p.n; output += stride) {
    float sum[kOutlierSums][kEach] = {};
    for (bool more = true; more;) {
      const int count = static_cast<int>(end - begin);
      float value[kOutlierSums];
      uint2 input[kOutlierSums];
#pragma unroll
      for (int j = 0; j < kOutlierSums; ++j) {
        value[j] = outlier_value(entry[j]);
        input[j] = load_l2(reinterpret_cast<const uint2*>(x + static_cast<size_t>(entry[j] & 0xffff) * kRows));
      }
      more = __any_sync(0xffffffffu, count > kOutlierSums);
      if (more) {
        begin = min(begin + kOutlierSums, end);
        ask();
      } else {
        go_on(output + 2 * stride);
      }
#pragma unroll
      for (int j = 0; j < kOutlierSums; ++j) {
        const float2 low = __half22float2(*reinterpret_cast<const half2*>(&input[j].x)), high = __half22float2(*reinterpret_cast<const half2*>(&input[j].y));
        if (j < count) {
          sum[j][0] = fmaf(value[j], low.x, sum[j][0]);
          sum[j][1] = fmaf(value[j], low.y, sum[j][1]);
          sum[j][2] = fmaf(value[j], high.x, sum[j][2]);
          sum[j][3] = fmaf(value[j], high.y, sum[j][3]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kEach; ++i)
      if (output < p.n && row + i < p.rows) out[static_cast<size_t>(i) * p.out_stride + output] = meet_outlier_sums(sum, i);
  }
}

}  // namespace quintet::cuda
