// Partial results of attend_splits that never leave shared memory: a block, or two of a cluster, attend for all splits of a pair of sequence and
// kv head, and warps of their own merge them in ascending order, with the operations of attend_merge.
//
// A group is 64 columns of a row; each block merges its half of the groups. An attending warp writes its result over a split into a slot of its
// block and goes on with its next split; before it writes again those who merge must have read the slot. Instructions between blocks are
// illegal in a launch without clusters.
#pragma once

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/split_jobs.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kMostCluster = 2;

template <class Shape>
class SplitFold {
 public:
  static constexpr bool kFolds = true;
  static constexpr int kDim = Shape::kDim, kRows = Shape::kRows, kWarps = Shape::kWarps, kMergers = Shape::kMergers, kGroups = Shape::kGroups;
  struct Barriers {
    uint64_t full[kWarps * kMostCluster];  // of slot warp * blocks + rank: a split's result is there
    uint64_t empty[kWarps];                // of an attending warp: its slot has been read
  };

  /// Where p.arriving_lanes is 32 (ring_release says why) all lanes wait for what one would, too. `p`: the kernel's parameters themselves.
  __device__ __forceinline__ SplitFold(Barriers& barriers, uint32_t slots, const AttendParams& p)
      : full_(shared_address(barriers.full)), empty_(shared_address(barriers.empty)), slots_(slots), rank_(cluster_rank()), blocks_(cluster_size()), params_(p) {}
  __device__ __forceinline__ int rank() const { return rank_; }
  __device__ __forceinline__ int blocks() const { return blocks_; }

  /// By all threads.
  __device__ __forceinline__ void begin() {
    if (static_cast<int>(threadIdx.x) < kWarps * blocks_) barrier_init(full_ + threadIdx.x * 8, params_.arriving_lanes);
    if (threadIdx.x < kWarps) barrier_init(empty_ + threadIdx.x * 8, blocks_ * kMergers * params_.arriving_lanes);
    if (alone()) {
      __syncthreads();
      return;
    }
    barrier_init_fence();
    __syncwarp();
    cluster_arrive();
  }

  /// By the attending warps, before they attend. They and those who merge need different numbers of registers, which together are what the
  /// launch gave.
  __device__ __forceinline__ void attend() { take_registers<200, kLaunchRegisters>(); }
  /// By an attending warp: its result over a split of a pair that begins in the cluster's range.
  template <class State>
  __device__ __forceinline__ void hand_over(const State& part, int warp, int lane) {
    wait_for_slot(warp);
    ++handed_;
#pragma unroll
    for (int r = 0; r < kRows / 8; ++r)
#pragma unroll
      for (int h = 0; h < kDim / kFoldColumns; ++h) {
        const uint32_t to = slots_ + (warp * kGroups + part.row(r, lane) * (kDim / kFoldColumns) + h) * kGroupBytes;
#pragma unroll
        for (int i = 0; i < kFoldColumns / 8; ++i) store_shared(to + part.column(i, lane) * 4, part.columns(r, h * (kFoldColumns / 8) + i, lane));
        if (lane < 8) store_shared(to + kFoldColumns * 4, part.state(r, lane));
      }
    const uint32_t full = full_ + (warp * blocks_ + rank_) * 8;
    if (alone()) arrive(1, lane, [&](int) { barrier_arrive(full); });
    else arrive(blocks_, lane, [&](int rank) { barrier_arrive_cluster(cluster_address(full, rank)); });
  }
  /// By an attending warp, behind its last split: a block stays until nobody signals it any more.
  __device__ __forceinline__ void end(int warp) { wait_for_slot(warp); }

  /// By merging warp `merger`: all pairs that begin in the range.
  __device__ __forceinline__ void run(const AttendParams& p, SplitJobs& jobs, const SplitRange& range, int merger, int lane) {
    take_registers<104, kLaunchRegisters>();
    wait_for_previous();
    if (alone()) {
      run_groups<true>(p, jobs, range, merger, lane);
    } else {
      cluster_wait();
      run_groups<false>(p, jobs, range, merger, lane);
    }
  }

 private:
  static constexpr int kLaunchRegisters = 168;  // of 12 warps
  static_assert(kWarps == 8 && kMergers == 4);
  __device__ __forceinline__ bool alone() const { return blocks_ == 1; }
  /// Until what the warp handed over last has been read; before it hands over first, until both blocks have their barriers.
  __device__ __forceinline__ void wait_for_slot(int warp) {
    const uint32_t empty = empty_ + warp * 8, parity = (handed_ - 1) & 1;
    if (alone()) {
      if (handed_ > 0) barrier_wait(empty, parity);
    } else if (handed_ > 0) {
      barrier_wait_cluster(empty, parity);
    } else {
      cluster_wait();
    }
  }

  /// A warp's arrivals at `count` barriers: lane i's at number i, or every lane's at all of them. `at`: one arrival.
  template <class At>
  __device__ __forceinline__ void arrive(int count, int lane, At at) const {
    __syncwarp();
    if (params_.arriving_lanes == 1) {
      if (lane < count) at(lane);
    } else {
      for (int i = 0; i < count; ++i) at(i);
    }
  }

  template <bool kAlone>
  __device__ static __forceinline__ float2 load_pair(uint32_t from) {
    if constexpr (kAlone) return load_shared_pair(from);
    else return load_cluster_pair(from);
  }

  /// kAlone: a block without a cluster.
  template <bool kAlone>
  __device__ __forceinline__ void run_groups(const AttendParams& p, SplitJobs& jobs, const SplitRange& range, int merger, int lane) {
    constexpr int kOwn = kGroups / (kAlone ? 1 : 2) / kMergers, kBatch = kOwn > 1 ? 16 / kOwn : 8;
    constexpr int kRowGroups = kDim / kFoldColumns, kSame = kOwn < kRowGroups ? kOwn : kRowGroups;  // kSame: own groups of a row
    static_assert(kOwn > 0 && kBatch <= kWarps);  // splits of a batch have slots of their own
    const int first_group = (rank_ * kMergers + merger) * kOwn, slots = kWarps * blocks_, group_size = p.heads / p.kv_heads;
    // A slot's splits count from the first that is merged here.
    const int first_round = (range.folded - range.begin) / slots, first_slot = (range.folded - range.begin) % slots;
    for (int job = range.folded; job < range.end;) {
      SplitPlace place;
      if (!jobs.find(job, place)) return;
      const int splits = place.splits(), count = min(splits, range.end - job);
      float maximum[kOwn / kSame], sum[kOwn / kSame];
      float2 total[kOwn];
#pragma unroll
      for (int i = 0; i < kOwn; ++i) maximum[i / kSame] = -INFINITY, sum[i / kSame] = 0, total[i] = make_float2(0, 0);
#pragma unroll 1
      for (int done = 0; done < count; done += kBatch) {
        const int batch = min(kBatch, count - done), at = job + done + min(lane, batch - 1) - range.begin, round = at / slots, slot = at - round * slots;
        const int warp = slot / blocks_, rank = slot - warp * blocks_;
        uint32_t own_slot = slots_ + (warp * kGroups + first_group) * kGroupBytes;
        if constexpr (!kAlone) own_slot = cluster_address(own_slot, rank);
        const uint32_t own_full = full_ + slot * 8, own_parity = (round - first_round - (slot < first_slot ? 1 : 0)) & 1;
        const auto wait = [](uint32_t full, uint32_t parity) {
          if constexpr (kAlone) barrier_wait(full, parity);
          else barrier_wait_cluster(full, parity);
        };
        if (params_.arriving_lanes == 1) {
          if (lane < batch) wait(own_full, own_parity);
        } else {
          for (int b = 0; b < batch; ++b) wait(__shfl_sync(0xffffffffu, own_full, b), __shfl_sync(0xffffffffu, own_parity, b));
        }
        __syncwarp();
        float2 value[kBatch][kOwn], state[kBatch][kOwn / kSame];
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          const uint32_t from = __shfl_sync(0xffffffffu, own_slot, b);
#pragma unroll
          for (int i = 0; i < kOwn; ++i) {
            value[b][i] = load_pair<kAlone>(from + i * kGroupBytes + lane * 8);
            if (i % kSame == 0) state[b][i / kSame] = load_pair<kAlone>(from + i * kGroupBytes + kFoldColumns * 4);
          }
        }
#pragma unroll
        for (int b = 0; b < kBatch; ++b) {
          if (b >= batch) break;
#pragma unroll
          for (int row = 0; row < kOwn / kSame; ++row) {
            float ft, fp, m;
            merge_factors(maximum[row], state[b][row].x, ft, fp, m);
            maximum[row] = m;
            sum[row] = fmaf(state[b][row].y, fp, sum[row] * ft);
#pragma unroll
            for (int i = row * kSame; i < (row + 1) * kSame; ++i)
              total[i] = make_float2(fmaf(value[b][i].x, fp, total[i].x * ft), fmaf(value[b][i].y, fp, total[i].y * ft));
          }
        }
        uint32_t own_empty = empty_ + warp * 8;
        if constexpr (!kAlone) own_empty = cluster_address(own_empty, rank);
        arrive(batch, lane, [&](int b) {
          const uint32_t empty = params_.arriving_lanes == 1 ? own_empty : __shfl_sync(0xffffffffu, own_empty, b);
          if constexpr (kAlone) barrier_arrive(empty);
          else barrier_arrive_cluster(empty);
        });
      }
      job += count;
      // What is left over is of later ranges, whose splits attend_merge merges: it begins with what there is so far.
      const bool whole = count == splits;
      const int last = place.first_split() + count - 1;
#pragma unroll
      for (int i = 0; i < kOwn; ++i) {
        const int own_row = (first_group + i) / kRowGroups, first = (first_group + i) % kRowGroups * kFoldColumns, column = first + lane * 2;
        if (own_row >= place.rows) break;
        const int head = place.kv_head * group_size + own_row % group_size, row = place.row_begin + own_row / group_size;
        if (whole) {
          const float inverse = 1.f / sum[i / kSame];
          if (head == p.heads - 1 && first == 0) clear_padding(p, row, p.heads * kDim, lane, 32);
          *reinterpret_cast<half2*>(p.out + p.layout.index(row, head * kDim + column)) = __floats2half2_rn(total[i].x * inverse, total[i].y * inverse);
        } else {
          float* to = partial_result(p, kDim, row, head, last);
          *reinterpret_cast<float2*>(to + column) = total[i];
          if (first == 0 && lane == 0) *reinterpret_cast<float2*>(to + kDim) = make_float2(maximum[i / kSame], sum[i / kSame]);
        }
        if (own_row % group_size == 0 && first == 0 && lane == 0) p.merge_from[row * p.kv_heads + place.kv_head] = whole ? -1 : last;
      }
    }
  }

  uint32_t full_, empty_, slots_;
  int rank_, blocks_, handed_ = 0;
  const AttendParams& params_;
};

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
