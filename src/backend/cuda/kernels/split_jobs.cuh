// Which splits of a step's sequences there are, who attends for which, and how blocks do (attend_splits.cuh).
#pragma once

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kFoldColumns = 64, kGroupBytes = (kFoldColumns + 2) * 4;  ///< of a group (attend_fold_sm90.cuh): sums, the row's maximum and denominator

/// How a block attends: so many warps, each with a ring of so many stages, each of so many keys or values; up to 8 or 16 rows. kMergers warps
/// merge (attend_fold_sm90.cuh); none: all is left to attend_merge.
template <int kDim_, int kRows_, int kWarps_, int kStages_, int kStageKeys_, int kMergers_>
struct SplitShape {
  static constexpr int kDim = kDim_, kRows = kRows_, kWarps = kWarps_, kStages = kStages_, kStageKeys = kStageKeys_, kMergers = kMergers_;
  static constexpr int kThreads = (kWarps + kMergers) * 32;
  static constexpr int kTileStages = kKeyTile / kStageKeys;  ///< of a tile's keys, or of its values
  static constexpr int kStageBytes = kStageKeys * kDim * 2, kRingBytes = kStages * kStageBytes;
  /// Splits of a warp that are known: the one that is attended for, those that are asked for, the next.
  static constexpr int kPlaces = (kStages - 1) / (2 * kTileStages) + 2;
  static constexpr int kGroups = kRows * kDim / kFoldColumns, kSlotBytes = kMergers > 0 ? kGroups * kGroupBytes : 0;
  static constexpr int kSharedBytes = kWarps * (kRingBytes + kSlotBytes);
};

/// What a warp attends for: a split of one kv head of a sequence.
struct SplitPlace {
  int seq, row_begin;
  int first_pos;            ///< of the sequence's first row: keys before it are those of earlier steps
  int key_begin, key_end;   ///< keys that some row sees
  int split, pair_job;      ///< pair_job: number of the first split of this sequence and kv head
  int16_t kv_head, rows;    ///< rows: (token, query head of the group)

  __device__ __forceinline__ int first_split() const { return key_begin / kSplit; }
  __device__ __forceinline__ int splits() const { return (key_end + kSplit - 1) / kSplit - first_split(); }
  __device__ __forceinline__ int tile_begin() const { return max(split * kSplit, key_begin / kKeyTile * kKeyTile) / kKeyTile; }
  __device__ __forceinline__ int tile_end() const { return (min((split + 1) * kSplit, key_end) + kKeyTile - 1) / kKeyTile; }
};

/// The jobs of a cluster. Those from `folded` on are of pairs (sequence and kv head) that begin here.
struct SplitRange { int begin, folded, end; };

/// The splits that have keys, numbered through: sequences, their kv heads, their splits. Each lane knows one of 32 sequences, so that
/// a place is found without a look at memory.
class SplitJobs {
 public:
  __device__ __forceinline__ SplitJobs(const AttendParams& p, int lane) : p_(p), lane_(lane) { look(); }

  /// Where job `job` is; false: there is none. Jobs ascend from call to call.
  __device__ __forceinline__ bool find(int job, SplitPlace& place) {
    while (job >= jobs_) {
      if (first_seq_ + 32 >= p_.seqs) return false;
      next();
    }
    const int from = __popc(__ballot_sync(0xffffffffu, end_ <= job));
    const auto of_seq = [&](int value) { return __shfl_sync(0xffffffffu, value, from); };
    const int splits = of_seq(splits_), at = job - (of_seq(end_) - splits * p_.kv_heads);
    const int kv_head = static_cast<int>(static_cast<unsigned>(at) / static_cast<unsigned>(splits));
    place.seq = first_seq_ + from;
    place.kv_head = static_cast<int16_t>(kv_head);
    place.row_begin = of_seq(row_begin_);
    place.rows = static_cast<int16_t>(of_seq(rows_));
    place.first_pos = of_seq(first_pos_);
    place.key_begin = of_seq(key_begin_);
    place.key_end = of_seq(key_end_);
    place.split = place.first_split() + at - kv_head * splits;
    place.pair_job = job - (at - kv_head * splits);
    return true;
  }

  /// One of `shares` shares of all jobs: of whole pairs (sequence and kv head), as many to each, where that leaves none much longer than
  /// others; else equal ones, but that each begins and ends where a pair does if one is near.
  __device__ __forceinline__ SplitRange share(int share, int shares) {
    while (first_seq_ + 32 < p_.seqs) next();
    const int jobs = jobs_, each = (pairs_ + shares - 1) / shares;
    const bool even = int64_t{each} * shares * most_splits_ * 100 <= int64_t{jobs} * (100 + kMostLonger);
    restart();
    SplitRange range;
    int unused;
    if (even) {
      range.begin = range.folded = first_job(share * each);
      range.end = first_job((share + 1) * each);
    } else {
      range.begin = near_pair(jobs, share, shares, range.folded);
      range.end = near_pair(jobs, share + 1, shares, unused);
    }
    restart();
    return range;
  }

 private:
  static constexpr int kMostLonger = 15;  // per cent, of a share of whole pairs beside an equal one
  static constexpr int kNear = 7;         // equal shares move their borders by this part of one
  /// Of pair `pair`; pairs ascend from call to call.
  __device__ __forceinline__ int first_job(int pair) {
    while (pair >= pairs_) {
      if (first_seq_ + 32 >= p_.seqs) return jobs_;
      next();
    }
    const int from = __popc(__ballot_sync(0xffffffffu, pair_end_ <= pair)), splits = __shfl_sync(0xffffffffu, splits_, from);
    return __shfl_sync(0xffffffffu, end_, from) - (__shfl_sync(0xffffffffu, pair_end_, from) - pair) * splits;
  }
  /// Where share `share` of equal ones begins; next_pair: the first pair that begins there or behind it.
  __device__ __forceinline__ int near_pair(int jobs, int share, int shares, int& next_pair) {
    const int job = static_cast<int>(static_cast<int64_t>(jobs) * share / shares);
    SplitPlace place;
    next_pair = job;
    if (!find(job, place)) return job;
    const int splits = place.splits(), before = job - place.pair_job, near = before * 2 <= splits ? place.pair_job : place.pair_job + splits;
    if (abs(near - job) * kNear <= jobs / shares) return next_pair = near;
    next_pair = place.pair_job + (before ? splits : 0);
    return job;
  }
  __device__ __forceinline__ void next() {
    first_seq_ += 32;
    look();
  }
  __device__ __forceinline__ void restart() {
    if (first_seq_ == 0) return;
    first_seq_ = jobs_ = pairs_ = 0;
    look();
  }
  __device__ __forceinline__ void look() {
    const int seq = first_seq_ + lane_;
    splits_ = 0;
    if (seq < p_.seqs) {
      row_begin_ = p_.row_begin[seq];
      const int tokens = p_.row_begin[seq + 1] - row_begin_;
      rows_ = tokens * (p_.heads / p_.kv_heads);
      if (tokens > 0) {
        first_pos_ = p_.pos[row_begin_];
        key_end_ = min(p_.pos[row_begin_ + tokens - 1] + 1, p_.context[seq]);
        key_begin_ = p_.window ? max(0, first_pos_ - p_.window + 1) : 0;
        splits_ = max(0, (key_end_ + kSplit - 1) / kSplit - key_begin_ / kSplit);
      }
    }
    int sum = splits_ * p_.kv_heads;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(0xffffffffu, sum, step);
      if (lane_ >= step) sum += before;
    }
    end_ = jobs_ + sum;
    jobs_ = __shfl_sync(0xffffffffu, end_, 31);
    const uint32_t with_keys = __ballot_sync(0xffffffffu, splits_ > 0);
    pair_end_ = pairs_ + __popc(with_keys & ((2u << lane_) - 1)) * p_.kv_heads;
    pairs_ += __popc(with_keys) * p_.kv_heads;
    most_splits_ = max(most_splits_, __reduce_max_sync(0xffffffffu, splits_));
  }

  const AttendParams& p_;
  int lane_, first_seq_ = 0, jobs_ = 0, pairs_ = 0, most_splits_ = 0;  // of all sequences up to the last one that some lane knows
  int row_begin_ = 0, rows_ = 0, first_pos_ = 0, key_begin_ = 0, key_end_ = 0, splits_ = 0, end_ = 0, pair_end_ = 0;
};

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
