// The splits of a step's only row, merged by warps of their own while others attend: these say which results they have left in memory, so that
// nothing has to be launched behind them. All blocks must be on the device at once.
#pragma once

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/grid_progress.cuh"
#include "backend/cuda/kernels/slices.cuh"
#include "backend/cuda/kernels/split_jobs.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// A merging warp has a part of 32 columns of a head at a time; there are as many of them on each multiprocessor, so that their reads are spread.
template <class Shape>
class SplitMerge {
 public:
  static constexpr bool kFolds = false, kMerges = true;
  static constexpr int kDim = Shape::kDim, kWarps = Shape::kWarps, kMergers = Shape::kMergers, kParts = kDim / 32;
  struct Barriers {};

  __device__ __forceinline__ SplitMerge(Barriers&, uint32_t, const AttendParams&) {}
  __device__ __forceinline__ int rank() const { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ int blocks() const { return static_cast<int>(gridDim.x); }
  __device__ __forceinline__ void begin() {}
  /// By the attending warps, before they attend.
  __device__ __forceinline__ void attend() { take_registers<200, kLaunchRegisters>(); }

  /// By an attending warp that has written its result over a split: tells all who merge parts of it.
  __device__ __forceinline__ void leave(const AttendParams& p, const SplitPlace& place, int lane) const {
    __syncwarp();
    for (int i = lane; i < place.rows * kParts; i += 32) announce(left(p, place.kv_head * place.rows * kParts + i) + place.split, 1);
  }

  /// By merging warp `merger` of the block.
  __device__ __forceinline__ void run(const AttendParams& p, int merger, int lane) const {
    take_registers<104, kLaunchRegisters>();
    const int row = p.row_begin[0], context = p.row_begin[1] > row ? p.context[0] : 0;
    wait_for_previous();
    if (context == 0) return;
    const int first = p.window ? max(0, context - p.window) / kSplit : 0, last = (context - 1) / kSplit;
    const int64_t step = static_cast<int64_t>(p.heads) * partial_width(kDim);  // from split to split
#pragma unroll 1
    for (int item = merger * blocks() + rank(); item < p.heads * kParts; item += kMergers * blocks()) {
      const int head = item / kParts, column = item % kParts * 32 + lane;
      const float* from = partial_result(p, kDim, row, head, 0);
      float maximum = -INFINITY, sum = 0, total = 0;
#pragma unroll 1
      for (int at = first; at <= last;) {
        const int count = wait(left(p, item), at, last, lane);
        float values[32];
#pragma unroll
        for (int i = 0; i < 32; ++i) values[i] = load_l2(from + (at + min(i, count - 1)) * step + column);
        float2 state = load_l2(reinterpret_cast<const float2*>(from + (at + min(lane, count - 1)) * step + kDim));
        if (lane >= count) state = make_float2(-INFINITY, 0);
        const RunFactors factors(state, maximum, lane);
#pragma unroll
        for (int i = 0; i < 32; ++i) {
          if (i % 8 == 0 && i >= count) break;
          const float t = factors.before(i), f = factors.own(i), denominator = factors.denominator(i);
          if (i >= count) continue;
          sum = fmaf(denominator, f, sum * t);
          total = fmaf(values[i], f, total * t);
        }
        at += count;
      }
      if (item == p.heads * kParts - 1) clear_padding(p, row, p.heads * kDim, lane, 32);
      const float result = total * (1.f / sum), next = __shfl_down_sync(0xffffffffu, result, 1);
      if (lane % 2 == 0) *reinterpret_cast<half2*>(p.out + p.layout.index(row, head * kDim + column)) = __floats2half2_rn(result, next);
    }
  }

 private:
  static constexpr int kLaunchRegisters = 168;  // of 12 warps
  static_assert(kWarps == 8 && kMergers == 4);

  __device__ __forceinline__ static uint32_t* left(const AttendParams& p, int item) { return p.left + static_cast<size_t>(item) * p.splits; }
  /// Until the result of split `at` is there; returns how many are from it on, up to 32.
  __device__ __forceinline__ static int wait(uint32_t* left, int at, int last, int lane) {
    uint32_t missing;
    do {
      uint32_t there = 0;
      if (at + lane <= last) there = look_at(left + at + lane);
      missing = __ballot_sync(0xffffffffu, there == 0);
    } while (missing & 1);
    const int count = missing ? __ffs(static_cast<int>(missing)) - 1 : 32;
    if (lane < count) left[at + lane] = 0;  // for the next launch
    return count;
  }
};

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
