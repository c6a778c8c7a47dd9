// Attention of few rows over long contexts: a warp takes whole splits, so that nobody waits for anybody, and keeps a ring of keys and
// values of its own full across them. Partial results, merged by attend_merge.
//
// The numbers are those of attend.cuh: a split is one online softmax over tiles of 64 absolute positions in ascending order.
#pragma once

#include "backend/cuda/kernels/attend.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// Warps of a block: two a scheduler of a Hopper multiprocessor, so that one computes while the other waits for a product or for shared
/// memory. A stage of a warp's ring has the keys or the values of half a tile; all rings together fill the multiprocessor.
inline constexpr int kSplitWarps = QUINTET_CUDA_HOPPER ? 8 : 4, kStageKeys = kKeyTile / 2;
template <int kDim>
__host__ __device__ constexpr int split_stages() { return 384 / kDim; }
inline constexpr int kSplitPlaces = 4;  ///< splits of a warp that are known: the one that is attended for, up to two that are asked for, the next
inline constexpr int kRunKeys = 16;  ///< keys that lie side by side in every page whose tokens are a multiple of this
template <int kDim>
__host__ __device__ constexpr int split_stage_bytes() { return kStageKeys * kDim * 2; }
template <int kDim>
constexpr int splits_shared_bytes() { return kSplitWarps * split_stages<kDim>() * split_stage_bytes<kDim>(); }

/// What a warp attends for: a split of one kv head of a sequence.
struct SplitPlace {
  int seq, kv_head, split;
  int row_begin, rows;      ///< rows: (token, query head of the group)
  int first_pos;            ///< of the sequence's first row: keys before it are those of earlier steps
  int key_begin, key_end;   ///< keys that some row sees
  int tile_begin, tile_end;
};

/// The splits that have keys, numbered through: sequences, their kv heads, their splits. Each lane knows one of 32 sequences, so that
/// a place is found without a look at memory.
class SplitJobs {
 public:
  __device__ __forceinline__ SplitJobs(const AttendParams& p, int lane) : p_(p), lane_(lane) { look(); }

  /// Where job `job` is; false: there is none. Jobs ascend from call to call.
  __device__ __forceinline__ bool find(int job, SplitPlace& place) {
    while (job >= jobs_) {
      if (first_seq_ + 32 >= p_.seqs) return false;
      first_seq_ += 32;
      look();
    }
    const int from = __popc(__ballot_sync(0xffffffffu, end_ <= job));
    const auto of_seq = [&](int value) { return __shfl_sync(0xffffffffu, value, from); };
    const int splits = of_seq(splits_), at = job - (of_seq(end_) - splits * p_.kv_heads);
    place.seq = first_seq_ + from;
    place.kv_head = static_cast<int>(static_cast<unsigned>(at) / static_cast<unsigned>(splits));
    place.row_begin = of_seq(row_begin_);
    place.rows = of_seq(rows_);
    place.first_pos = of_seq(first_pos_);
    place.key_begin = of_seq(key_begin_);
    place.key_end = of_seq(key_end_);
    place.split = place.key_begin / kSplit + at - place.kv_head * splits;
    place.tile_begin = max(place.split * kSplit, place.key_begin / kKeyTile * kKeyTile) / kKeyTile;
    place.tile_end = (min((place.split + 1) * kSplit, place.key_end) + kKeyTile - 1) / kKeyTile;
    return true;
  }

 private:
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
  }

  const AttendParams& p_;
  int lane_, first_seq_ = 0, jobs_ = 0;  // jobs_: of all sequences up to the last one that some lane knows
  int row_begin_ = 0, rows_ = 0, first_pos_ = 0, key_begin_ = 0, key_end_ = 0, splits_ = 0, end_ = 0;
};

/// 16 bytes of keys or values: read once, so that they do not push partial results out of L2.
__device__ __forceinline__ void copy_async_16_once(uint32_t to, const void* from, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0],[%1],16,%2;" ::"r"(to), "l"(from), "l"(policy) : "memory");
}

/// Asks for keys and values of one warp's splits, half a tile at a time: keys, keys, values, values.
template <int kDim>
class SplitCopier {
 public:
  __device__ __forceinline__ SplitCopier(const AttendParams& p, uint8_t* ring, SplitPlace (&places)[kSplitPlaces], int job, int step, int lane)
      : p_(p), jobs_(p, lane), places_(places), to_(shared_address(ring)), job_(job), step_(step), lane_(lane) {
    asm volatile("createpolicy.fractional.L2::evict_first.b64 %0,1.0;" : "=l"(once_));
    prepare();
    open();
  }
  /// Whether what is asked for next was there before this step.
  __device__ __forceinline__ bool next_is_old() const { return !more_ || (tile_ + 1) * kKeyTile <= places_[opened_ % kSplitPlaces].first_pos; }
  /// The next stage, which is part `part` of a tile; a group, empty or not.
  __device__ __forceinline__ void ask(int part) {
    if (more_) {
      const int first = tile_ * kKeyTile + part % 2 * kStageKeys;
      const uint8_t* head = p_.pages + ((static_cast<int64_t>(p_.layer) * 2 + part / 2) * p_.kv_heads + kv_head_) * p_.page_tokens * (kDim * 2) + chunk() * 16;
      const uint32_t to = to_ + stage_ * split_stage_bytes<kDim>();
      if (p_.page_tokens % kRunKeys == 0 && first >= key_begin_ && first + kStageKeys <= key_end_) ask_runs(head, to, first);
      else ask_keys(head, to, first);
      if (++stage_ == split_stages<kDim>()) stage_ = 0;
      if (part == 3 && ++tile_ == tile_end_) open();
    }
    copy_async_commit();
  }

 private:
  // A place is kept from when it is found until its split is attended for: while the two before it are asked for, at most.
  static_assert(split_stages<kDim>() <= 2 * 4 && kSplitPlaces == 4);
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
    const BlockRef* refs = p_.block_refs + static_cast<size_t>(places_[opened_ % kSplitPlaces].seq) * p_.max_blocks;
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
    const SplitPlace& place = places_[opened_ % kSplitPlaces];
    kv_head_ = place.kv_head, key_begin_ = place.key_begin, key_end_ = place.key_end, tile_ = place.tile_begin, tile_end_ = place.tile_end;
    prepare();
  }
  /// Finds the split behind the one at hand and where its runs lie, long before they are asked for.
  __device__ __forceinline__ void prepare() {
    SplitPlace next;
    next_is_ = jobs_.find(job_, next);
    job_ += step_;
    if (lane_ == 0) places_[(opened_ + 1) % kSplitPlaces] = next_is_ ? next : SplitPlace{};
    __syncwarp();
    if (!next_is_ || p_.page_tokens % kRunKeys != 0) return;
    const int position = min(max(next.split * kSplit + lane_ % (kSplit / kRunKeys) * kRunKeys, next.key_begin), next.key_end - 1) / kRunKeys * kRunKeys;
    const PageOf page_of(p_.page_tokens);
    const uint32_t page = p_.block_refs[static_cast<size_t>(next.seq) * p_.max_blocks + page_of(position)].page;
    next_run_at_ = page * p_.page_bytes + page_of.within(position) * (kDim * 2);
  }

  const AttendParams& p_;
  SplitJobs jobs_;
  SplitPlace (&places_)[kSplitPlaces];
  uint32_t to_;
  int job_, step_, lane_, stage_ = 0, opened_ = -1;
  int kv_head_ = 0, key_begin_ = 0, key_end_ = 0, tile_ = 0, tile_end_ = 0;
  bool more_ = false, next_is_ = false;
  uint64_t once_;
  int64_t run_at_ = 0, next_run_at_ = 0;  // lane l: bytes from a head's first page to run l of the split
};

/// grid: as many blocks as are resident, or as there are splits for; rows of a sequence: at most 16.
template <int kDim>
__global__ void __launch_bounds__(kSplitWarps * 32, 1) attend_splits(const __grid_constant__ AttendParams p) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ SplitPlace places[kSplitWarps][kSplitPlaces];
  launch_dependents();
  constexpr int kChunks = kDim / 8, kSplitStages = split_stages<kDim>();
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, group = p.heads / p.kv_heads;
  int stage = 0;
  uint8_t* ring = memory + warp * kSplitStages * split_stage_bytes<kDim>();
  // Neighbours in time go to different multiprocessors, so that few splits are spread over all.
  SplitCopier<kDim> copier(p, ring, places[warp], warp * gridDim.x + blockIdx.x, gridDim.x * kSplitWarps, lane);
  // The ring fills with keys of earlier steps while the kernel before still makes those of this one.
  bool waited = false;
#pragma unroll 1
  for (int asked = 0; asked < kSplitStages - 1; ++asked) {
    if (!waited && !copier.next_is_old()) wait_for_previous(), waited = true;
    copier.ask(asked % 4);
  }
  if (!waited) wait_for_previous();
  // Stage `part` of a tile is there for all lanes, and all have read the one before it, which is asked for again.
  const auto next_stage = [&](int part) {
    copy_async_wait<kSplitStages - 2>();
    __syncwarp();
    copier.ask((part + kSplitStages - 1) % 4);
    const uint32_t at = shared_address(ring) + stage * split_stage_bytes<kDim>();
    if (++stage == kSplitStages) stage = 0;
    return at;
  };
  for (int job = 0;; ++job) {
    const SplitPlace place = places[warp][job % kSplitPlaces];
    if (place.rows == 0) break;
    const int own_row[2] = {g, g + 8}, kept = place.rows > 8 ? 2 : 1;  // halves of the 16 rows that exist
    int own_pos[2];
    uint32_t query[kDim / 16][4] = {};
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      own_pos[r] = -1;
      if (own_row[r] >= place.rows) continue;
      const int token = own_row[r] / group, head = place.kv_head * group + own_row[r] % group;
      own_pos[r] = p.pos[place.row_begin + token];
      const __half* own = p.q + static_cast<size_t>(place.row_begin + token) * p.q_stride + static_cast<size_t>(head) * kDim;
#pragma unroll
      for (int s = 0; s < kDim / 16; ++s)
#pragma unroll
        for (int half = 0; half < 2; ++half) query[s][r + half * 2] = *reinterpret_cast<const uint32_t*>(own + s * 16 + half * 8 + q * 2);
    }
    const int whole_end = place.first_pos + 1;  // keys that every row sees end here, where there is no window
    SoftmaxState<kDim> part;
    part.clear();
    for (int tile = place.tile_begin; tile < place.tile_end; ++tile) {
      float score[kKeyTile / 8][4] = {};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t keys = next_stage(half);
        // Four chains of products alternate: a warp that is alone on its scheduler would wait for each of one chain.
#pragma unroll
        for (int s = 0; s < kDim / 16; s += 2) {
          uint32_t b[4][4];
#pragma unroll
          for (int n = 0; n < 4; ++n) {
            const int key = n * 8 + lane % 8, at = s * 2 + lane / 8;
            load_matrix_x4(keys + (key * kChunks + (at ^ (key % 8))) * 16, b[n][0], b[n][1], b[n][2], b[n][3]);
          }
#pragma unroll
          for (int n = 0; n < 4; ++n) mma_f16(score[half * 4 + n], query[s], b[n][0], b[n][1]);
#pragma unroll
          for (int n = 0; n < 4; ++n) mma_f16(score[half * 4 + n], query[s + 1], b[n][2], b[n][3]);
        }
      }
      const bool whole = !p.window && (tile + 1) * kKeyTile <= whole_end;
      uint32_t probability[kKeyTile / 8][2] = {};
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (r >= kept) continue;
        float tile_max = -INFINITY;
#pragma unroll
        for (int n = 0; n < kKeyTile / 8; ++n)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            float& own = score[n][r * 2 + j];
            own = __fmul_rn(own, p.scale_log2);
            if (!whole) {
              const int position = tile * kKeyTile + n * 8 + q * 2 + j;
              if (position > own_pos[r] || (p.window && position <= own_pos[r] - p.window)) own = -INFINITY;
            }
            tile_max = fmaxf(tile_max, own);
          }
        tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 1));
        tile_max = fmaxf(tile_max, __shfl_xor_sync(0xffffffffu, tile_max, 2));
        const float m = fmaxf(part.maximum[r], tile_max), f = exponential(part.maximum[r] - m), factor = m == -INFINITY ? 1.f : f;
        part.maximum[r] = m;
#pragma unroll
        for (int i = 0; i < kDim / 8; ++i) part.acc[i][r * 2] *= factor, part.acc[i][r * 2 + 1] *= factor;
        float row_sum = 0;
#pragma unroll
        for (int n = 0; n < kKeyTile / 8; ++n) {
          const float s0 = score[n][r * 2], s1 = score[n][r * 2 + 1];
          const float e0 = exponential(s0, m), e1 = exponential(s1, m);
          row_sum += e0 + e1;
          const half2 h = __floats2half2_rn(e0, e1);
          probability[n][r] = *reinterpret_cast<const uint32_t*>(&h);
        }
        row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 1);
        row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 2);
        part.sum[r] = fmaf(part.sum[r], factor, row_sum);
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const uint32_t values = next_stage(2 + half);
#pragma unroll
        for (int s = 0; s < 2; ++s) {
          const int step16 = half * 2 + s;
          const uint32_t a[4] = {probability[2 * step16][0], probability[2 * step16][1], probability[2 * step16 + 1][0], probability[2 * step16 + 1][1]};
#pragma unroll
          for (int n = 0; n < kDim / 8; n += 8) {
            uint32_t b[4][4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int key = s * 16 + lane % 16, at = n + i * 2 + lane / 16;
              load_matrix_x4_transposed(values + (key * kChunks + (at ^ (key % 8))) * 16, b[i][0], b[i][1], b[i][2], b[i][3]);
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              mma_f16(part.acc[n + i * 2], a, b[i][0], b[i][1]);
              mma_f16(part.acc[n + i * 2 + 1], a, b[i][2], b[i][3]);
            }
          }
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (own_pos[r] < 0) continue;
      const int token = own_row[r] / group, head = place.kv_head * group + own_row[r] % group, row = place.row_begin + token;
      float* to = partial_result(p, kDim, row, head, place.split);
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) *reinterpret_cast<float2*>(to + i * 8 + q * 2) = make_float2(part.acc[i][r * 2], part.acc[i][r * 2 + 1]);
      // The last 32 bytes whole, too: L2 keeps and writes sectors of that size.
      *reinterpret_cast<float2*>(to + kDim + q * 2) = q == 0 ? make_float2(part.maximum[r], part.sum[r]) : make_float2(0, 0);
    }
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
