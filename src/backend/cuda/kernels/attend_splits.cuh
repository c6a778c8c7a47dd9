// Attention of few rows over long contexts: a warp takes whole splits, so that nobody waits for anybody, and keeps a ring of keys and
// values of its own full across them. Partial results are merged by other warps of the block (attend_fold_sm90.cuh) or by attend_merge.
//
// The numbers are those of attend.cuh: a split is one online softmax over tiles of 64 absolute positions in ascending order.
#pragma once

#include <climits>
#include <type_traits>

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/split_jobs.cuh"
#if QUINTET_CUDA_HOPPER
#include "backend/cuda/kernels/attend_fold_sm90.cuh"
#endif

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kRunKeys = 16;  ///< keys that lie side by side in every page whose tokens are a multiple of this

/// 16 bytes of keys or values: read once, so that they do not push partial results out of L2.
__device__ __forceinline__ void copy_async_16_once(uint32_t to, const void* from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0],[%1],16,%2;" ::"r"(to), "l"(from), "l"(policy) : "memory");
}

/// Asks for keys and values of one warp's splits, a stage at a time: a tile's keys, its values, the next tile's keys.
template <class Shape>
class SplitCopier {
 public:
  static constexpr int kDim = Shape::kDim, kPlaces = Shape::kPlaces, kStageKeys = Shape::kStageKeys, kTileStages = Shape::kTileStages;
  __device__ __forceinline__ SplitCopier(const AttendParams& p, const SplitJobs& jobs, uint8_t* ring, SplitPlace (&places)[kPlaces], int job, int step, int end, int lane)
      : p_(p), jobs_(jobs), places_(places), to_(shared_address(ring)), job_(job), step_(step), end_(end), lane_(lane) {
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0,1.0;" : "=l"(once_));
    prepare();
    open();
  }
  /// Whether what is asked for next was there before this step.
  __device__ __forceinline__ bool next_is_old() const { return !more_ || (tile_ + 1) * kKeyTile <= places_[opened_ % kPlaces].first_pos; }
  /// The next stage, which is part `part` of a tile; a group, empty or not.
  __device__ __forceinline__ void ask(int part) {
    if (more_) {
      const int first = tile_ * kKeyTile + part % kTileStages * kStageKeys;
      const uint8_t* head = p_.pages + ((static_cast<int64_t>(p_.layer) * 2 + part / kTileStages) * p_.kv_heads + kv_head_) * p_.page_tokens * (kDim * 2) + chunk() * 16;
      const uint32_t to = to_ + stage_ * Shape::kStageBytes;
      if (p_.page_tokens % kRunKeys == 0 && first >= key_begin_ && first + kStageKeys <= key_end_) ask_runs(head, to, first);
      else ask_keys(head, to, first);
      if (++stage_ == Shape::kStages) stage_ = 0;
      if (part == 2 * kTileStages - 1 && ++tile_ == tile_end_) open();
    }
    copy_async_commit();
  }

 private:
  static constexpr int kChunks = kDim / 8, kKeyStep = 32 / kChunks;  // chunk c of key k lies at c ^ (k % 8)
  __device__ __forceinline__ int chunk() const { return lane_ % kChunks; }
  __device__ __forceinline__ int first_key() const { return lane_ / kChunks; }

  /// Keys that all are there, in runs: one address a run and constants behind it.
  __device__ __forceinline__ void ask_runs(const uint8_t* head, uint32_t to, int first) {
    to += first_key() * (kDim * 2);
#pragma unroll
    for (int run = 0; run < kStageKeys / kRunKeys; ++run) {
      const uint8_t* from = head + __shfl_sync(0xffffffffu, run_at_, first % kSplit / kRunKeys + run) + first_key() * (kDim * 2);
#pragma unroll
      for (int key = 0; key < kRunKeys; key += kKeyStep)
        copy_async_16_once(to + ((chunk() ^ first_key() ^ key % 8) * 16) + (run * kRunKeys + key) * (kDim * 2), from + key * (kDim * 2), once_);
    }
  }
  /// Keys of which some may be none's, or of pages of any size: each is looked up.
  __device__ __forceinline__ void ask_keys(const uint8_t* head, uint32_t to, int first) {
    const BlockRef* refs = p_.block_refs + static_cast<size_t>(places_[opened_ % kPlaces].seq) * p_.max_blocks;
    const PageOf page_of(p_.page_tokens);
#pragma unroll 4
    for (int key = first_key(); key < kStageKeys; key += kKeyStep) {
      const int position = first + key, seen = min(max(position, key_begin_), key_end_ - 1);
      const uint8_t* from = head + refs[page_of(seen)].page * p_.page_bytes + page_of.within(seen) * (kDim * 2);
      copy_async_16_or_zero(to + (key * kChunks + (chunk() ^ (key % 8))) * 16, from, position == seen);
    }
  }
  __device__ __forceinline__ void open() {
    ++opened_;
    more_ = next_is_, run_at_ = next_run_at_;
    if (!more_) return;
    const SplitPlace& place = places_[opened_ % kPlaces];
    kv_head_ = place.kv_head, key_begin_ = place.key_begin, key_end_ = place.key_end, tile_ = place.tile_begin(), tile_end_ = place.tile_end();
    prepare();
  }
  /// Finds the split behind the one at hand and where its runs lie, long before they are asked for.
  __device__ __forceinline__ void prepare() {
    SplitPlace next;
    next_is_ = job_ < end_ && jobs_.find(job_, next);
    job_ += step_;
    if (lane_ == 0) places_[(opened_ + 1) % kPlaces] = next_is_ ? next : SplitPlace{};
    __syncwarp();
    if (!next_is_ || p_.page_tokens % kRunKeys != 0) return;
    const int position = min(max(next.split * kSplit + lane_ % (kSplit / kRunKeys) * kRunKeys, next.key_begin), next.key_end - 1) / kRunKeys * kRunKeys;
    const PageOf page_of(p_.page_tokens);
    const uint32_t page = p_.block_refs[static_cast<size_t>(next.seq) * p_.max_blocks + page_of(position)].page;
    next_run_at_ = page * p_.page_bytes + page_of.within(position) * (kDim * 2);
  }

  const AttendParams& p_;
  SplitJobs jobs_;
  SplitPlace (&places_)[kPlaces];
  uint32_t to_;
  int job_, step_, end_, lane_, stage_ = 0, opened_ = -1;
  int kv_head_ = 0, key_begin_ = 0, key_end_ = 0, tile_ = 0, tile_end_ = 0;
  bool more_ = false, next_is_ = false;
  uint64_t once_;
  int64_t run_at_ = 0, next_run_at_ = 0;  // lane l: bytes from a head's first page to run l of the split
};

/// Softmax of a warp's rows over a split, by tiles of 64 keys. Products are turned over: keys, then columns of values, are the rows of
/// operand A, so that eight rows fill operand B. Lane (g, q) has keys or columns g and g + 8 of each 16, rows 2 q and 2 q + 1 of each 8.
template <class Shape>
struct SplitState {
  static constexpr int kDim = Shape::kDim, kHalves = Shape::kRows / 8;
  float maximum[kHalves][2], sum[kHalves], acc[kHalves][kDim / 16][4];  // sum: of row 2 q + g % 2

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      maximum[r][0] = maximum[r][1] = -INFINITY;
      sum[r] = 0;
#pragma unroll
      for (int i = 0; i < kDim / 16; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) acc[r][i][j] = 0;
    }
  }
  /// Of row r * 8 + 2 q + g % 2, which a lane is left with: columns i * 8 + g / 2 * 2 and the next.
  __device__ __forceinline__ float2 columns(int r, int i, int lane) const {
    const float even = acc[r][i / 2][i % 2 * 2], odd = acc[r][i / 2][i % 2 * 2 + 1];
    const bool is_odd = lane & 4;
    const float other = __shfl_xor_sync(0xffffffffu, is_odd ? even : odd, 4);
    return is_odd ? make_float2(other, odd) : make_float2(even, other);
  }
  __device__ __forceinline__ float2 state(int r, int lane) const { return make_float2(lane & 4 ? maximum[r][1] : maximum[r][0], sum[r]); }
  __device__ static __forceinline__ int row(int r, int lane) { return r * 8 + lane % 4 * 2 + lane / 4 % 2; }
  __device__ static __forceinline__ int column(int i, int lane) { return i * 8 + lane / 8 * 2; }
};

/// Where all results are left to attend_merge: the grid counts as one cluster.
template <class Shape>
struct NoFold {
  static constexpr bool kFolds = false;
  struct Barriers {};
  __device__ __forceinline__ NoFold(Barriers&, uint32_t, const AttendParams&) {}
  __device__ __forceinline__ int rank() const { return static_cast<int>(blockIdx.x); }
  __device__ __forceinline__ int blocks() const { return static_cast<int>(gridDim.x); }
  __device__ __forceinline__ void begin() {}
};
#if QUINTET_CUDA_HOPPER
template <class Shape>
using FoldOf = std::conditional_t<(Shape::kMergers > 0), SplitFold<Shape>, NoFold<Shape>>;
#else
template <class Shape>
using FoldOf = NoFold<Shape>;
#endif

/// Scores of a stage's keys.
template <class Shape>
__device__ __forceinline__ void score_keys(float (&score)[Shape::kRows / 8][Shape::kStageKeys / 16][4], const uint32_t (&query)[Shape::kRows / 8][Shape::kDim / 16][2],
                                           uint32_t keys, int kept, int lane) {
  constexpr int kChunks = Shape::kDim / 8, kBlocks = Shape::kStageKeys / 16;
  uint32_t a[2][kBlocks * 2][4];  // of a step and of the next one, which is on its way
  const auto load = [&](uint32_t (&to)[kBlocks * 2][4], int s) {
#pragma unroll
    for (int n = 0; n < kBlocks * 2; ++n) {
      const int key = n * 8 + lane % 8, at = s * 4 + lane / 8;
      load_matrix_x4(keys + (key * kChunks + (at ^ (key % 8))) * 16, to[n][0], to[n][1], to[n][2], to[n][3]);
    }
  };
  load(a[0], 0);
  // Chains of products alternate: a warp that is alone on its scheduler would wait for each of one chain.
#pragma unroll
  for (int s = 0; s < Shape::kDim / 32; ++s) {
    if (s + 1 < Shape::kDim / 32) load(a[(s + 1) % 2], s + 1);
    const auto& own = a[s % 2];
#pragma unroll
    for (int step = 0; step < 2; ++step)
#pragma unroll
      for (int r = 0; r < Shape::kRows / 8; ++r) {
        if (r >= kept) continue;
#pragma unroll
        for (int m = 0; m < kBlocks; ++m) {
          const auto& low = own[m * 2];
          const auto& high = own[m * 2 + 1];
          mma_f16(score[r][m], {low[step * 2], high[step * 2], low[step * 2 + 1], high[step * 2 + 1]}, query[r][s * 2 + step][0], query[r][s * 2 + step][1]);
        }
      }
  }
}

/// Adds a stage's values, each times its probability; those are operand B of eight rows, `first` the stage's first eight keys.
template <class Shape>
__device__ __forceinline__ void add_values(SplitState<Shape>& part, const uint32_t (&probability)[Shape::kRows / 8][kKeyTile / 8], int first, uint32_t values, int kept,
                                           int lane) {
  constexpr int kChunks = Shape::kDim / 8, kBlocks = Shape::kDim / 64, kSteps = Shape::kStageKeys / 16 * kBlocks;
  uint32_t a[2][4][4];
  const auto load = [&](uint32_t (&to)[4][4], int step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = step / kBlocks * 16 + lane % 16, at = step % kBlocks * 8 + i * 2 + lane / 16;
      load_matrix_x4_transposed(values + (key * kChunks + (at ^ (key % 8))) * 16, to[i][0], to[i][2], to[i][1], to[i][3]);
    }
  };
  load(a[0], 0);
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    if (step + 1 < kSteps) load(a[(step + 1) % 2], step + 1);
#pragma unroll
    for (int r = 0; r < Shape::kRows / 8; ++r) {
      if (r >= kept) continue;
      const uint32_t(&p)[kKeyTile / 8] = probability[r];
#pragma unroll
      for (int i = 0; i < 4; ++i) mma_f16(part.acc[r][step % kBlocks * 4 + i], a[step % 2][i], p[first + step / kBlocks * 2], p[first + step / kBlocks * 2 + 1]);
    }
  }
}

/// grid: as many blocks as are resident, or as there are splits for; with mergers, whole clusters. Rows of a sequence: at most kRows. Every
/// split's result that is not merged here is left to attend_merge.
template <class Shape>
__global__ void __launch_bounds__(Shape::kThreads, 1) attend_splits(const __grid_constant__ AttendParams p) {
  extern __shared__ __align__(128) uint8_t memory[];
  constexpr int kDim = Shape::kDim, kRows = Shape::kRows, kWarps = Shape::kWarps, kStages = Shape::kStages, kStageKeys = Shape::kStageKeys, kTileStages = Shape::kTileStages;
  __shared__ SplitPlace places[kWarps][Shape::kPlaces];
  launch_dependents();
  constexpr int kHalves = kRows / 8, kTileParts = 2 * kTileStages;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, group = p.heads / p.kv_heads;
  SplitJobs jobs(p, lane);
  using Fold = FoldOf<Shape>;
  __shared__ typename Fold::Barriers barriers;
  Fold fold(barriers, shared_address(memory) + kWarps * Shape::kRingBytes, p);
  const int rank = fold.rank(), blocks = fold.blocks();
  fold.begin();
  SplitRange range = {.begin = 0, .folded = INT_MAX, .end = INT_MAX};
  if constexpr (Fold::kFolds) {
    range = jobs.share(static_cast<int>(blockIdx.x) / blocks, static_cast<int>(gridDim.x) / blocks);
    if (warp >= kWarps) {
      fold.run(p, jobs, range, warp - kWarps, lane);
      return;
    }
    fold.attend();
  }
  int stage = 0;
  uint8_t* ring = memory + warp * Shape::kRingBytes;
  // Neighbours in time go to different multiprocessors, so that few splits are spread over all.
  SplitCopier<Shape> copier(p, jobs, ring, places[warp], range.begin + warp * blocks + rank, kWarps * blocks, range.end, lane);
  // The ring fills with keys of earlier steps while the kernel before still makes those of this one.
  bool waited = false;
#pragma unroll 1
  for (int asked = 0; asked < kStages - 1; ++asked) {
    if (!waited && !copier.next_is_old()) wait_for_previous(), waited = true;
    copier.ask(asked % kTileParts);
  }
  if (!waited) wait_for_previous();
  // Stage `part` of a tile is there for all lanes, and all have read the one before it, which is asked for again.
  const auto next_stage = [&](int part) {
    copy_async_wait<kStages - 2>();
    __syncwarp();
    copier.ask((part + kStages - 1) % kTileParts);
    const uint32_t at = shared_address(ring) + stage * Shape::kStageBytes;
    if (++stage == kStages) stage = 0;
    return at;
  };
  for (int job = 0;; ++job) {
    const SplitPlace place = places[warp][job % Shape::kPlaces];
    if (place.rows == 0) break;
    const int kept = kRows > 8 && place.rows > 8 ? 2 : 1;  // eights of rows that exist
    int own_pos[kHalves][2];
    uint32_t query[kHalves][kDim / 16][2];
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const int row = r * 8 + q * 2 + j;
        own_pos[r][j] = row < place.rows ? p.pos[place.row_begin + row / group] : -1;
      }
      const int row = r * 8 + g;
      const bool exists = row < place.rows;
      const int token = row / group, head = place.kv_head * group + row % group;
      const __half* own = p.q + static_cast<size_t>(place.row_begin + token) * p.q_stride + static_cast<size_t>(head) * kDim;
#pragma unroll
      for (int s = 0; s < kDim / 16; ++s)
#pragma unroll
        for (int half = 0; half < 2; ++half) query[r][s][half] = exists ? *reinterpret_cast<const uint32_t*>(own + s * 16 + half * 8 + q * 2) : 0u;
    }
    const int whole_end = place.first_pos + 1;  // keys that every row sees end here, where there is no window
    SplitState<Shape> part;
    part.clear();
    for (int tile = place.tile_begin(), tile_end = place.tile_end(); tile < tile_end; ++tile) {
      float score[kTileStages][kHalves][kStageKeys / 16][4] = {};
#pragma unroll
      for (int t = 0; t < kTileStages; ++t) score_keys<Shape>(score[t], query, next_stage(t), kept, lane);
      const bool whole = !p.window && (tile + 1) * kKeyTile <= whole_end;
      uint32_t probability[kHalves][kKeyTile / 8];
#pragma unroll
      for (int r = 0; r < kHalves; ++r) {
        if (r >= kept) continue;
        const auto own = [&](int n, int j) -> float& { return score[n / (kStageKeys / 8)][r][n % (kStageKeys / 8) / 2][n % 2 * 2 + j]; };  // row j over key g of each 8
        float factor[2], exponentials[kKeyTile / 8][2];
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          float tile_max = -INFINITY;
#pragma unroll
          for (int n = 0; n < kKeyTile / 8; ++n) {
            float& score_of = own(n, j);
            score_of = __fmul_rn(score_of, p.scale_log2);
            if (!whole) {
              const int position = tile * kKeyTile + n * 8 + g;
              if (position > own_pos[r][j] || (p.window && position <= own_pos[r][j] - p.window)) score_of = -INFINITY;
            }
            tile_max = fmaxf(tile_max, score_of);
          }
#pragma unroll
          for (int step = 4; step < 32; step *= 2) tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, step));
          const float m = fmaxf(part.maximum[r][j], tile_max), f = exponential(part.maximum[r][j] - m);
          factor[j] = m == -INFINITY ? 1.f : f;
          part.maximum[r][j] = m;
#pragma unroll
          for (int n = 0; n < kKeyTile / 8; ++n) exponentials[n][j] = exponential(own(n, j), m);
        }
#pragma unroll
        for (int i = 0; i < kDim / 16; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) part.acc[r][i][j] *= factor[j % 2];
        // A lane of even g sums up row 2 q, its neighbour the other: keys 2 g' and 2 g' + 1 first, those of each 8 keys in order, then over g'.
        const bool is_odd = g % 2;
        float row_sum = 0;
#pragma unroll
        for (int n = 0; n < kKeyTile / 8; ++n) {
          const float e0 = exponentials[n][0], e1 = exponentials[n][1];
          row_sum += (is_odd ? e1 : e0) + __shfl_xor_sync(0xffffffffu, is_odd ? e0 : e1, 4);
          const half2 h = __floats2half2_rn(e0, e1);
          probability[r][n] = transposed_8x8(*reinterpret_cast<const uint32_t*>(&h));
        }
        row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 8);
        row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 16);
        part.sum[r] = fmaf(part.sum[r], is_odd ? factor[1] : factor[0], row_sum);
      }
#pragma unroll
      for (int t = 0; t < kTileStages; ++t) add_values<Shape>(part, probability, t * (kStageKeys / 8), next_stage(kTileStages + t), kept, lane);
    }
    if constexpr (Fold::kFolds)
      if (place.pair_job >= range.begin) {
        fold.hand_over(part, warp, lane);
        continue;
      }
#pragma unroll
    for (int r = 0; r < kHalves; ++r) {
      const int own_row = part.row(r, lane), token = own_row / group, head = place.kv_head * group + own_row % group;
      float* to = partial_result(p, kDim, place.row_begin + token, head, place.split);
      const float2 state = part.state(r, lane);
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) {
        const float2 columns = part.columns(r, i, lane);
        if (own_row < place.rows) *reinterpret_cast<float2*>(to + part.column(i, lane)) = columns;
      }
      // The last 32 bytes whole, too: L2 keeps and writes sectors of that size.
      if (own_row < place.rows) *reinterpret_cast<float2*>(to + kDim + part.column(0, lane)) = lane < 8 ? state : make_float2(0, 0);
    }
  }
  if constexpr (Fold::kFolds) fold.end(warp);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
