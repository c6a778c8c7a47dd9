// Attention of few sequences, one new token each, over long contexts: a block takes one split of a kv head and its warps share it, so that two
// blocks a multiprocessor have all of their keys and values on their way at once, before q is there. Rotary embedding and merging are part of it.
//
// The numbers are those of attend.cuh, formed by the same operations in the same order. A warp has 32 keys, in registers before q is there, so
// that part of their room serves their values. Scores, maxima, exponentials and sums over the values follow each other with a barrier between.
// Splits are merged in runs: the block that leaves the last result of a run, or of the run before, merges it, and goes on with the next one if
// that was waiting. Nobody waits for another block.
#pragma once

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/grid_progress.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kFewWarps = 8, kFewThreads = kFewWarps * 32, kFewHeads = 8;  ///< kFewHeads: query heads of a group at most
inline constexpr int kFewKeys = kSplit / kFewWarps;                               ///< of a warp
inline constexpr int kFewTiles = kSplit / kKeyTile;

/// Shared memory of a block. Chunk c of a key or value lies at c ^ (key % 8): free of conflicts; rows of halves apart by what keeps them so.
template <int kDim>
struct FewShared {
  static constexpr int kChunks = kDim / 8;                         ///< 16 bytes each
  static constexpr int kApart = kDim > 64 ? kFewKeys / 2 : kFewKeys;  ///< values of a warp with room of their own; the others take that of its keys
  uint4 key[kFewWarps][kFewKeys][kChunks], value[kFewWarps][kApart][kChunks];
  __half q[kFewHeads][kDim + 8], own[2][kDim + 8];                 ///< own: K and V of the row's own position
  __half probability[kFewHeads][kSplit + 8];
  float2 maximum[kFewTiles][kFewHeads];                            ///< of either half of a tile's scores
  float half_sum[kFewTiles][kFewHeads][4], sum[kFewTiles][kFewHeads];
  uint32_t arrived;

  __device__ __forceinline__ uint4& value_chunk(int warp, int key, int chunk) {
    return key < kApart ? value[warp][key][chunk ^ key % 8] : this->key[warp][key - kApart][chunk ^ key % 8];
  }
};

/// 16 bytes of keys or values, or zeros where !valid: read once, so that they do not push partial results out of L2.
__device__ __forceinline__ void copy_async_16_once_or_zero(uint32_t to, const void* from, bool valid, uint64_t policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0],[%1],16,%2,%3;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0), "l"(policy) : "memory");
}

/// What the blocks of a pair of sequence and kv head share.
struct FewPair {
  int row, kv_head, first_split, splits;
  uint32_t* arrived;  ///< [runs], see AttendParams

  __device__ __forceinline__ int run_splits(int run) const { return min(kMergeRunSplits, splits - run * kMergeRunSplits); }
  __device__ __forceinline__ bool is_last(int run) const { return (run + 1) * kMergeRunSplits >= splits; }
};

/// Merges run `run` behind those before it. A thread four columns of a head, sixteen lanes of a warp its splits' factors.
template <int kDim>
__device__ __forceinline__ void merge_run(const AttendParams& p, const FewPair& pair, int run, int group) {
  static_assert(kMergeRunSplits == 16 && kDim % 64 == 0);
  constexpr int kHeadThreads = kDim / 4;
  const int own_head = static_cast<int>(threadIdx.x) / kHeadThreads, column = static_cast<int>(threadIdx.x) % kHeadThreads * 4, lane = threadIdx.x % 32;
  const bool exists = own_head < group;
  const int head = pair.kv_head * group + (exists ? own_head : 0), count = pair.run_splits(run), begin = pair.first_split + run * kMergeRunSplits;
  const float* from = partial_result(p, kDim, pair.row, head, begin);
  const int64_t step = static_cast<int64_t>(p.heads) * partial_width(kDim);  // from split to split
  float4 values[kMergeRunSplits], total = make_float4(0, 0, 0, 0);
#pragma unroll
  for (int i = 0; i < kMergeRunSplits; ++i) values[i] = load_l2(reinterpret_cast<const float4*>(from + min(i, count - 1) * step + column));
  const int own = lane % kMergeRunSplits;
  float2 state = load_l2(reinterpret_cast<const float2*>(from + min(own, count - 1) * step + kDim));
  if (own >= count) state = make_float2(-INFINITY, 0);
  float before = -INFINITY, sum = 0;
  if (run > 0) {
    total = load_l2(reinterpret_cast<const float4*>(from - step + column));
    const float2 so_far = load_l2(reinterpret_cast<const float2*>(from - step + kDim));
    before = so_far.x, sum = so_far.y;
  }
  float most = state.x;
#pragma unroll
  for (int distance = 1; distance < kMergeRunSplits; distance *= 2) {
    const float other = __shfl_up_sync(0xffffffffu, most, distance, kMergeRunSplits);
    if (own >= distance) most = fmaxf(most, other);
  }
  const float previous = __shfl_up_sync(0xffffffffu, most, 1, kMergeRunSplits);
  float ft, fp, m;
  merge_factors(own == 0 ? before : fmaxf(previous, before), state.x, ft, fp, m);
  const float maximum = __shfl_sync(0xffffffffu, m, count - 1, kMergeRunSplits);
#pragma unroll
  for (int i = 0; i < kMergeRunSplits; ++i) {
    const float t = __shfl_sync(0xffffffffu, ft, i, kMergeRunSplits), f = __shfl_sync(0xffffffffu, fp, i, kMergeRunSplits);
    const float denominator = __shfl_sync(0xffffffffu, state.y, i, kMergeRunSplits);
    if (i >= count) break;
    sum = fmaf(denominator, f, sum * t);
    total = make_float4(fmaf(values[i].x, f, total.x * t), fmaf(values[i].y, f, total.y * t), fmaf(values[i].z, f, total.z * t), fmaf(values[i].w, f, total.w * t));
  }
  if (!exists) return;
  if (pair.is_last(run)) {
    const float inverse = 1.f / sum;
    if (head == p.heads - 1) clear_padding(p, pair.row, p.heads * kDim, column / 4, kHeadThreads);
    half2* to = reinterpret_cast<half2*>(p.out + p.layout.index(pair.row, head * kDim + column));
    half2* next = reinterpret_cast<half2*>(p.out + p.layout.index(pair.row, head * kDim + column + 2));
    *to = __floats2half2_rn(total.x * inverse, total.y * inverse);
    *next = __floats2half2_rn(total.z * inverse, total.w * inverse);
  } else {
    // Where the run's last result was, which nobody else reads.
    float* to = partial_result(p, kDim, pair.row, head, begin + count - 1);
    *reinterpret_cast<float4*>(to + column) = total;
    if (column == 0) *reinterpret_cast<float2*>(to + kDim) = make_float2(maximum, sum);
  }
}

/// By all threads, once the block has written its result: merges what is complete with it.
template <int kDim>
__device__ __forceinline__ void merge_complete(const AttendParams& p, const FewPair& pair, int run, int group, uint32_t& arrived) {
  for (;; ++run) {
    const uint32_t wanted = pair.run_splits(run) + (run > 0 ? 1 : 0);
    if (threadIdx.x == 0) {
      arrived = count_in(pair.arrived + run);
      if (arrived == wanted) pair.arrived[run] = 0;  // for the next launch
    }
    __syncthreads();
    if (arrived != wanted) return;
    merge_run<kDim>(p, pair, run, group);
    if (pair.is_last(run)) return;
    __syncthreads();
  }
}

/// grid: x = kv_heads * splits, those of a split side by side, y = seqs. One row a sequence, or none. p.fresh: q, K and V still are partial sums.
template <int kDim>
__global__ void __launch_bounds__(kFewThreads, 2) attend_few(const __grid_constant__ AttendParams p) {
  extern __shared__ __align__(128) uint8_t memory[];
  using Shared = FewShared<kDim>;
  Shared& s = *reinterpret_cast<Shared*>(memory);
  launch_dependents();
  constexpr int kChunks = Shared::kChunks, kKeyStep = 32 / kChunks, kSteps = kDim / 16;
  const int warp = warp_index(), lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, group = p.heads / p.kv_heads;
  const int seq = blockIdx.y, kv_head = static_cast<int>(blockIdx.x) % p.kv_heads, number = static_cast<int>(blockIdx.x) / p.kv_heads;
  // A step's inputs are there before its first kernel starts. What does not hang on another is asked for together.
  const int row = p.row_begin[seq], rows = p.row_begin[seq + 1] - row, context = p.context[seq];
  const int key_begin = p.window ? max(0, context - p.window) : 0, first_split = key_begin / kSplit, split = first_split + number;
  const int own_key = split * kSplit + warp * kFewKeys + lane;
  const PageOf page_of(p.page_tokens);
  const uint32_t own_page = p.block_refs[static_cast<size_t>(seq) * p.max_blocks + min(page_of(own_key), p.max_blocks - 1)].page;
  const int64_t key_at = own_page * p.page_bytes + page_of.within(own_key) * (kDim * 2);
  const int position = context - 1;  // the row's own
  const FewPair pair = {.row = row, .kv_head = kv_head, .first_split = first_split, .splits = position / kSplit + 1 - first_split,
                        .arrived = p.arrived + (static_cast<size_t>(seq) * p.kv_heads + kv_head) * merge_runs(p.splits)};
  if (rows == 0 || context == 0 || number >= pair.splits) {
    wait_for_previous();
    return;
  }
  const bool is_last = number == pair.splits - 1;  // has the row's own position, whose K and V only come with q
  const int own_at = is_last ? position % kSplit : -1;

  uint64_t once;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0,1.0;" : "=l"(once));
  const int64_t head_bytes = static_cast<int64_t>(p.page_tokens) * (kDim * 2);
  const int chunk = lane % kChunks;
  const uint8_t* keys = p.pages + (static_cast<int64_t>(p.layer) * 2 * p.kv_heads + kv_head) * head_bytes + chunk * 16;
  const uint8_t* values = keys + p.kv_heads * head_bytes;
  const auto copy = [&](const uint8_t* from, int first, int count, auto&& place) {
#pragma unroll
    for (int i = 0; i < count; i += kKeyStep) {
      const int key = first + i + lane / kChunks, at = split * kSplit + warp * kFewKeys + key;
      const int64_t offset = __shfl_sync(0xffffffffu, key_at, key);
      if (at != position) copy_async_16_once_or_zero(shared_address(&place(key)), from + offset, at >= key_begin && at < position, once);
    }
  };
  copy(keys, 0, kFewKeys, [&](int key) -> uint4& { return s.key[warp][key][chunk ^ key % 8]; });
  copy_async_commit();
  copy(values, 0, Shared::kApart, [&](int key) -> uint4& { return s.value[warp][key][chunk ^ key % 8]; });
  copy_async_commit();
  Turns<head_pairs(kDim)> turns;
  if (p.fresh) turns.make(p.turn, position, lane);
  copy_async_wait<1>();
  __syncwarp();
  // Keys are the rows of operand A: of each 16 a lane has those of rows g and g + 8.
  uint32_t key[2][kSteps][4];
#pragma unroll
  for (int m = 0; m < 2; ++m)
#pragma unroll
    for (int step = 0; step < kSteps; step += 2)
#pragma unroll
      for (int high = 0; high < 2; ++high) {
        const int own = m * 16 + high * 8 + lane % 8, at = step * 2 + lane / 8;
        load_matrix_x4(shared_address(&s.key[warp][own][at ^ own % 8]), key[m][step][high], key[m][step][high + 2], key[m][step + 1][high], key[m][step + 1][high + 2]);
      }
  if constexpr (Shared::kApart < kFewKeys) {
    __syncwarp();
    copy(values, Shared::kApart, kFewKeys - Shared::kApart, [&](int key) -> uint4& { return s.key[warp][key - Shared::kApart][chunk ^ key % 8]; });
    copy_async_commit();
  }

  wait_for_previous();
  if (p.fresh) {
    constexpr int kJobs = (kFewHeads + 2 + kFewWarps - 1) / kFewWarps;
    const int jobs = group + (is_last ? 2 : 0);
    HeadValues<kDim> made[kJobs];
#pragma unroll
    for (int i = 0; i < kJobs; ++i) {  // all loads before the first use
      const int job = warp + i * kFewWarps;
      if (job < jobs) made[i].load(p.turn, row, job < group ? kv_head * group + job : job == group ? p.heads + kv_head : p.heads + p.kv_heads + kv_head, lane);
    }
#pragma unroll
    for (int i = 0; i < kJobs; ++i) {
      const int job = warp + i * kFewWarps;
      if (job >= jobs) continue;
      const bool is_q = job < group, is_v = job == group + 1;
      made[i].finish(p.turn, is_q ? p.turn.q_norm : is_v ? nullptr : p.turn.k_norm, is_v ? nullptr : &turns, lane);
      made[i].store(p.turn, is_q ? s.q[job] : s.own[is_v], lane);
      if (const int64_t slot = p.turn.kv_slot[row]; !is_q && slot >= 0) made[i].store(p.turn, cache_row(p.turn, slot, is_v, kv_head), lane);
    }
  } else {
    for (int i = threadIdx.x; i < group * kChunks; i += kFewThreads)
      *reinterpret_cast<uint4*>(&s.q[i / kChunks][i % kChunks * 8]) = load_l2(reinterpret_cast<const uint4*>(p.q + row * p.q_stride + static_cast<int64_t>(kv_head) * group * kDim) + i);
    if (is_last && warp == own_at / kFewKeys) {
      const int64_t offset = __shfl_sync(0xffffffffu, key_at, own_at % kFewKeys);
      if (lane < 2 * kChunks) {
        const int which = lane / kChunks;
        *reinterpret_cast<uint4*>(&s.own[which][chunk * 8]) = load_l2(reinterpret_cast<const uint4*>((which ? values : keys) + offset));
      }
    }
  }
  __syncthreads();

  const int tile = warp / 2, half = warp % 2, tile_begin = max(0, key_begin - split * kSplit) / kKeyTile, tile_end = (min(kSplit, context - split * kSplit) + kKeyTile - 1) / kKeyTile;
  const auto is_seen = [&](int at) { return at >= tile_begin && at < tile_end; };
  // Keys g and g + 8 of each 16 of heads 2 q and 2 q + 1.
  float score[2][4] = {};
  if (is_seen(tile)) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (warp * kFewKeys + m * 16 + r * 8 + g == own_at)
#pragma unroll
          for (int step = 0; step < kSteps; ++step)
#pragma unroll
            for (int high = 0; high < 2; ++high) key[m][step][high * 2 + r] = *reinterpret_cast<const uint32_t*>(&s.own[0][step * 16 + high * 8 + q * 2]);
#pragma unroll
    for (int step = 0; step < kSteps; step += 2) {
      uint32_t b[4];  // heads that there are none of: sums that nobody reads
      load_matrix_x4(shared_address(&s.q[lane % 8][step * 16 + lane / 8 * 8]), b[0], b[1], b[2], b[3]);
#pragma unroll
      for (int i = 0; i < 2; ++i)
#pragma unroll
        for (int m = 0; m < 2; ++m) mma_f16(score[m], key[m][step + i], b[i * 2], b[i * 2 + 1]);
    }
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int at = split * kSplit + warp * kFewKeys + m * 16 + i / 2 * 8 + g;
        score[m][i] = at >= key_begin && at <= position ? __fmul_rn(score[m][i], p.scale_log2) : -INFINITY;
        most[i % 2] = fmaxf(most[i % 2], score[m][i]);
      }
#pragma unroll
    for (int step = 4; step < 32; step *= 2)
#pragma unroll
      for (int i = 0; i < 2; ++i) most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], step));
    if (g < 2) (&s.maximum[tile][q * 2 + g].x)[half] = g ? most[1] : most[0];
  }
  __syncthreads();

  const auto tile_maximum = [&](int at, int head) {
    const float2 m = s.maximum[at][head];
    return fmaxf(m.x, m.y);
  };
  // Of heads 2 q and 2 q + 1, up to each tile.
  float factor[kFewTiles][2], so_far[2] = {-INFINITY, -INFINITY}, own_maximum[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int t = 0; t < kFewTiles; ++t) {
    if (!is_seen(t)) continue;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float m = fmaxf(so_far[i], tile_maximum(t, q * 2 + i)), f = exponential(so_far[i] - m);
      factor[t][i] = m == -INFINITY ? 1.f : f;  // nothing seen so far: whatever it is, it meets zeros
      so_far[i] = m;
      if (t == tile) own_maximum[i] = m;
    }
  }
  float row_sum[4] = {};  // of the pairs of each 8 keys, of head 2 q + g % 2
  if (is_seen(tile)) {
#pragma unroll
    for (int n = 0; n < 4; ++n) {
      float e[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        e[i] = exponential(score[n / 2][n % 2 * 2 + i], own_maximum[i]);
        s.probability[q * 2 + i][warp * kFewKeys + n * 8 + g] = __float2half_rn(e[i]);
      }
      const bool is_odd = g % 2;
      row_sum[n] = (is_odd ? e[1] : e[0]) + __shfl_xor_sync(0xffffffffu, is_odd ? e[0] : e[1], 4);
    }
    // The tile's first 32 keys come before the others, which the next warp has.
    if (half == 0) s.half_sum[tile][q * 2 + g % 2][g / 2] = row_sum[0] + row_sum[1] + row_sum[2] + row_sum[3];
  }
  if (is_last && warp == own_at / kFewKeys && lane < kChunks) s.value_chunk(warp, own_at % kFewKeys, lane) = *reinterpret_cast<const uint4*>(&s.own[1][lane * 8]);
  copy_async_wait<0>();
  __syncthreads();

  if (is_seen(tile) && half == 1) {
    float sum = s.half_sum[tile][q * 2 + g % 2][g / 2] + row_sum[0] + row_sum[1] + row_sum[2] + row_sum[3];
    sum += __shfl_xor_sync(0xffffffffu, sum, 8);
    sum += __shfl_xor_sync(0xffffffffu, sum, 16);
    if (g < 2) s.sum[tile][q * 2 + g] = sum;
  }
  // Columns g and g + 8 of each 16 of heads 2 q and 2 q + 1.
  if (warp < kDim / 16) {
    float acc[4] = {};
#pragma unroll
    for (int t = 0; t < kFewTiles; ++t) {
      if (!is_seen(t)) continue;
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[i] *= factor[t][i % 2];
#pragma unroll
      for (int step = 0; step < kKeyTile / 16; step += 2) {
        const int first = t * kKeyTile + step * 16;
        uint32_t b[4];
        load_matrix_x4(shared_address(&s.probability[lane % 8][first + lane / 8 * 8]), b[0], b[1], b[2], b[3]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          uint32_t a[4];
          load_matrix_x4_transposed(shared_address(&s.value_chunk(first / kFewKeys, i * 16 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2)), a[0], a[1], a[2], a[3]);
          mma_f16(acc, a, b[i * 2], b[i * 2 + 1]);
        }
      }
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (q * 2 + i % 2 < group) partial_result(p, kDim, row, kv_head * group + q * 2 + i % 2, split)[warp * 16 + i / 2 * 8 + g] = acc[i];
  }
  __syncthreads();
  if (warp == 0) {
    if (g == 0) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        float sum = 0;
#pragma unroll
        for (int t = 0; t < kFewTiles; ++t)
          if (is_seen(t)) sum = fmaf(sum, factor[t][i], s.sum[t][q * 2 + i]);
        if (q * 2 + i < group) *reinterpret_cast<float2*>(partial_result(p, kDim, row, kv_head * group + q * 2 + i, split) + kDim) = make_float2(so_far[i], sum);
      }
    }
    __syncwarp();
  }
  merge_complete<kDim>(p, pair, number / kMergeRunSplits, group, s.arrived);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
