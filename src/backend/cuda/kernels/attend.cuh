// Attention over the paged cache with tensor cores (mma.sync m16n8k16, FP16 in, FP32 sums): decode, verification and
// prompts are one kernel.
//
// Numeric rule, whatever the schedule: keys are taken in tiles of 64 absolute positions; within a split of kSplit
// absolute positions tiles go into one online softmax in ascending order; splits are merged in ascending order. A masked
// key contributes nothing: not to the maximum, not to the sums. So a row's bits depend on its own keys only.
//
// A block serves one kv head of one sequence: up to 64 rows of (token, query head of the group), a warp 16 of them; the
// block's warps share the tiles. Where there are no more than 16 rows (decode), the four warps work on the same rows: each
// scores 16 keys of a tile and forms their exponentials, they exchange maxima and exponentials, and each sums a quarter of the
// columns: every number is formed by the same operations in the same order as by one warp, in a quarter of the time.
// blockIdx.z chooses one split (partial results) or all (prompts).
#pragma once

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/rope_store.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// m, l and the sums of one warp's 16 rows: lane (g, q) has rows g and g + 8, columns 2 q and 2 q + 1 of each 8.
template <int kColumns>
struct SoftmaxState {
  float maximum[2], sum[2], acc[kColumns / 8][4];
  __device__ void clear() {
    maximum[0] = maximum[1] = -INFINITY;
    sum[0] = sum[1] = 0;
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) acc[i][j] = 0;
  }
};

/// 2^x; zero where that is no normal number.
__device__ __forceinline__ float exponential(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0,%1;" : "=f"(y) : "f"(x));
  return y;
}
/// 2^(x - m), zero for a masked x: chosen after the exponential, since the compiler branches around an asm that may be left out.
__device__ __forceinline__ float exponential(float x, float m) {
  const float y = exponential(x - m);
  return x == -INFINITY ? 0.f : y;
}

/// Factors by which two partial results are brought to a common maximum. A side without keys has factor 0 or is taken
/// as it is, so that it changes no bit.
__device__ __forceinline__ void merge_factors(float a, float b, float& fa, float& fb, float& m) {
  m = fmaxf(a, b);
  fa = exponential(a, m);
  fb = exponential(b, m);
}

__device__ __forceinline__ void load_matrix_x4_transposed(uint32_t address, uint32_t& a, uint32_t& b, uint32_t& c, uint32_t& d) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3},[%4];" : "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "r"(address));
}
/// The partial result of one head of a row over a split. Those of a split lie side by side: what is written together leaves L2 together.
__device__ __forceinline__ float* partial_result(const AttendParams& p, int dim, int row, int head, int split) {
  return p.partial + ((static_cast<size_t>(row) * p.splits + split) * p.heads + head) * partial_width(dim);
}
/// 16 bytes, or zeros where !valid.
__device__ __forceinline__ void copy_async_16_or_zero(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0],[%1],16,%2;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0) : "memory");
}

/// A key lies in shared memory as one of this many numbers: chunks change places within eight.
__host__ __device__ constexpr int key_width(int dim) { return (dim + 63) / 64 * 64; }
template <int kDim>
__host__ __device__ constexpr int attend_shared_bytes(int stages) { return stages * 2 * kKeyTile * key_width(kDim) * 2; }

/// Zeros behind a row's last head, where the padding of the inputs may hold another layout's numbers.
__device__ __forceinline__ void clear_padding(const AttendParams& p, int row, int columns, int first, int step) {
  if (p.layout.tiles == kPlainTiles) return;
  for (int column = columns + first * 2; column < p.layout.k_padded; column += step * 2)
    *reinterpret_cast<half2*>(p.out + p.layout.index(row, column)) = __float2half2_rn(0.f);
}

/// The q, K and V of a row that still are partial sums, finished by the attending block itself: q of a group's heads as
/// the 16 rows of operand A, K and V of the row's own position. Rows lie 16 bytes further than their width apart, so that
/// fragments are read without conflicts.
template <int kDim>
struct alignas(16) FreshRow {
  static constexpr int kStride = kDim + 8;
  __half q[16][kStride];
  __half kv[2][kStride];

  /// By all of a block's warps; `stores`: this block also puts K and V into the cache, at `slot`.
  __device__ __forceinline__ void make(const RopeStoreParams& p, const Turns<head_pairs(kDim)>& turns, int row, int64_t slot, int kv_head, bool stores, int warp, int lane) {
    constexpr int kJobs = (kFreshGroup + 2 + kAttendWarps - 1) / kAttendWarps;
    const int group = p.heads / p.kv_heads, jobs = group + (stores ? 2 : 0);
    const auto head_of = [&](int job) {
      return job < group ? kv_head * group + job : job == group ? p.heads + kv_head : p.heads + p.kv_heads + kv_head;
    };
    HeadValues<kDim> values[kJobs];
#pragma unroll
    for (int i = 0; i < kJobs; ++i)  // all loads before the first use: a job too many reads what another reads
      values[i].load(p, row, head_of(min(warp + i * kAttendWarps, jobs - 1)), lane);
#pragma unroll
    for (int i = 0; i < kJobs; ++i) {
      const int job = warp + i * kAttendWarps;
      if (job >= jobs) continue;
      const bool is_q = job < group, is_v = job == group + 1;
      values[i].finish(p, is_q ? p.q_norm : is_v ? nullptr : p.k_norm, is_v ? nullptr : &turns, lane);
      values[i].store(p, is_q ? q[job] : kv[is_v], lane);
      if (!is_q && slot >= 0) values[i].store(p, cache_row(p, slot, is_v, kv_head), lane);
    }
  }
};

/// Pages by positions. Quotients by one multiplication, up to 2^32 / tokens.
struct PageOf {
  int tokens;
  uint32_t inverse;
  __device__ __forceinline__ explicit PageOf(int page_tokens) : tokens(page_tokens), inverse(page_tokens == 1 ? 0 : 0xffffffffu / page_tokens + 1) {}
  __device__ __forceinline__ int operator()(int position) const { return tokens == 1 ? position : static_cast<int>(__umulhi(position, inverse)); }
  /// Place of a position in its page.
  __device__ __forceinline__ int within(int position) const { return position - (*this)(position) * tokens; }
};

/// What the warps of a block exchange.
template <int kDim, bool kTogether, bool kFresh>
struct AttendScratch {
  // Of a tile, where the warps share it: each warp's maximum of a row; probabilities as operand A; sums of their pairs.
  float maximum[kTogether ? 16 : 1][kTogether ? kKeyTile / 8 : 1];
  uint4 probability[kTogether ? kKeyTile / 16 : 1][32];
  float2 pair_sum[kTogether ? kKeyTile / 8 : 1][32];
  FreshRow<kFresh ? kDim : 64> fresh;
};

/// grid: x = kv_heads * (most query tiles of a sequence), y = seqs, z = runs of block_splits splits, or 1. kFresh: one row a sequence,
/// finished here as p.turn says (with kTogether). Dynamic memory: attend_shared_bytes<kDim>(kStages).
template <int kDim, int kStages, bool kPartial, bool kTogether, bool kFresh>
__global__ void __launch_bounds__(kAttendWarps * 32) attend(const __grid_constant__ AttendParams p) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ AttendScratch<kDim, kTogether, kFresh> scratch;
  launch_dependents();
  static_assert(kTogether || !kFresh);
  constexpr int kWidth = key_width(kDim), kChunks = kWidth / 8;  // 16-byte chunks of a key; chunk c of key r lies at c ^ (r % 8), free of conflicts
  // Columns past kDim, if there are any, are sums of nothing that is meant, and nobody reads them.
  constexpr int kRows = kTogether ? 16 : 16 * kAttendWarps, kColumns = kTogether ? kWidth / kAttendWarps : kDim;
  static_assert(kColumns % 16 == 0 && (!kTogether || kKeyTile / 8 % kAttendWarps == 0));
  auto& fresh = scratch.fresh;
  const int group = p.heads / p.kv_heads, kv_head = static_cast<int>(blockIdx.x) % p.kv_heads, query_tile = static_cast<int>(blockIdx.x) / p.kv_heads;
  const int seq = blockIdx.y, warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  // A step's inputs are there before its first kernel starts, and so are the keys of earlier steps: all that a fresh row
  // sees in the cache. Only its own q, K and V come from the kernel before.
  if constexpr (!kFresh) wait_for_previous();
  const int row_begin = p.row_begin[seq], tokens = p.row_begin[seq + 1] - row_begin;
  const int tile_rows = tokens * group;  // (token, head) rows of the sequence for this kv head
  const int first_row = query_tile * kRows;
  if (first_row >= tile_rows) {
    if constexpr (kFresh) wait_for_previous();
    return;
  }
  const int context = p.context[seq];
  const int first_token = first_row / group, last_token = min((first_row + kRows - 1) / group, tokens - 1);
  const int lowest_pos = p.pos[row_begin + first_token], highest_pos = p.pos[row_begin + last_token];
  const int key_end = min(highest_pos + 1, context);
  const int key_begin = p.window ? max(0, lowest_pos - p.window + 1) : 0;
  const int all_splits = (key_end + kSplit - 1) / kSplit;
  const int split = kPartial ? static_cast<int>(blockIdx.z) * p.block_splits : key_begin / kSplit;
  const int split_end = kPartial ? min(split + p.block_splits, all_splits) : all_splits;
  if (kPartial && split >= all_splits) {
    if constexpr (kFresh) wait_for_previous();
    return;
  }

  const int warp_row = first_row + (kTogether ? 0 : warp * 16), first_column = kTogether ? warp * kColumns : 0;
  const int own_row[2] = {warp_row + g, warp_row + g + 8};
  int own_pos[2];
  const __half* own_q[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const bool exists = own_row[i] < tile_rows;
    const int token = exists ? own_row[i] / group : 0, head = kv_head * group + (exists ? own_row[i] % group : 0);
    own_pos[i] = exists ? p.pos[row_begin + token] : -1;
    own_q[i] = p.q + static_cast<size_t>(row_begin + token) * p.q_stride + static_cast<size_t>(head) * kDim;
  }
  const bool active = warp_row < tile_rows;
  // A thread copies one chunk of several keys, K and V alike. It looks their pages up a tile ahead: a tile that waited for
  // them took twice as long.
  constexpr int kThreads = kAttendWarps * 32, kKeyStep = kThreads / kChunks, kKeysEach = kKeyTile / kKeyStep;
  static_assert(kThreads % kChunks == 0 && kKeyTile % kKeyStep == 0);
  const int page_tokens = p.page_tokens;
  const PageOf page_of(page_tokens);
  const int chunk = threadIdx.x % kChunks, first_key = threadIdx.x / kChunks;
  const int64_t page_bytes = p.page_bytes, head_halves = static_cast<int64_t>(page_tokens) * kDim;
  const int64_t value_at = p.kv_heads * head_halves * 2;  // bytes from K to V
  const uint8_t* pages = p.pages + ((static_cast<int64_t>(p.layer) * 2 * p.kv_heads + kv_head) * head_halves + chunk * 8) * 2;
  const BlockRef* refs = p.block_refs + static_cast<size_t>(seq) * p.max_blocks;
  uint32_t page[kKeysEach], next_page[kKeysEach];  // of the tile whose copies are issued, and of the one after
  auto look_up = [&](int tile, uint32_t (&to)[kKeysEach]) {
#pragma unroll
    for (int i = 0; i < kKeysEach; ++i) {
      const int position = tile * kKeyTile + first_key + i * kKeyStep;
      to[i] = refs[page_of(min(max(position, key_begin), key_end - 1))].page;
    }
  };
  // K (which = 0) or V of a tile's 64 keys, of those in [key_begin, key_end) that are in the cache; zeros else.
  auto load_half = [&](int tile, int which, int stage) {
    if (kDim % 64 && chunk >= kDim / 8) return;
    const uint32_t to = shared_address(memory) + stage * attend_shared_bytes<kDim>(1) + which * kKeyTile * kWidth * 2;
#pragma unroll
    for (int i = 0; i < kKeysEach; ++i) {
      const int key = first_key + i * kKeyStep, position = tile * kKeyTile + key;
      // A fresh row's own key comes from this block, not from the cache.
      const bool valid = position >= key_begin && position < key_end - (kFresh ? 1 : 0);
      const uint8_t* from = pages + page[i] * page_bytes + which * value_at + page_of.within(position) * (kDim * 2);
      copy_async_16_or_zero(to + (key * kChunks + (chunk ^ (key % 8))) * 16, from, valid);
    }
  };
  auto next_tile = [&](int tile) {  // whose pages have been looked up while the tile before was computed
#pragma unroll
    for (int i = 0; i < kKeysEach; ++i) page[i] = next_page[i];
    look_up(tile + 1, next_page);
  };

  SoftmaxState<kColumns> total, part;
  total.clear();
  part.clear();
  const int tile_begin = max(split * kSplit, key_begin / kKeyTile * kKeyTile) / kKeyTile;
  const int tile_end = (min(split_end * kSplit, key_end) + kKeyTile - 1) / kKeyTile;
  auto close_split = [&] {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float ft, fp, m;
      merge_factors(total.maximum[r], part.maximum[r], ft, fp, m);
      total.maximum[r] = m;
      total.sum[r] = fmaf(part.sum[r], fp, total.sum[r] * ft);
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i)
#pragma unroll
        for (int j = 0; j < 2; ++j) total.acc[i][r * 2 + j] = fmaf(part.acc[i][r * 2 + j], fp, total.acc[i][r * 2 + j] * ft);
    }
    part.clear();
  };

  // Where the warps work together, a tile's K is free once they have exchanged its scores, its V after the barrier that begins
  // the next tile: the copies run kStages tiles ahead. Else both are free only then, and the copies run kStages - 1 ahead.
  // With one stage there is no room ahead.
  constexpr int kAhead = kTogether && kStages > 1 ? kStages : kStages - 1;
  uint32_t first_pages[kAhead > 0 ? kAhead : 1][kKeysEach];
#pragma unroll
  for (int s = 0; s < kAhead; ++s) look_up(tile_begin + s, first_pages[s]);
  look_up(tile_begin + kAhead, next_page);
#pragma unroll
  for (int s = 0; s < kAhead; ++s) {
#pragma unroll
    for (int i = 0; i < kKeysEach; ++i) page[i] = first_pages[s][i];
    if (tile_begin + s < tile_end) load_half(tile_begin + s, 0, s);
    if (kTogether && s + 1 < kAhead) copy_async_commit();  // the groups that the wait below counts
    if (tile_begin + s < tile_end) load_half(tile_begin + s, 1, s);
    copy_async_commit();
  }
  uint32_t query[kDim / 16][4];
  if constexpr (kFresh) {
    Turns<head_pairs(kDim)> turns;
    turns.make(p.turn, highest_pos, lane);
    const int64_t slot = p.turn.kv_slot[row_begin];
    wait_for_previous();
    fresh.make(p.turn, turns, row_begin, slot, kv_head, split_end == all_splits, warp, lane);
    __syncthreads();
#pragma unroll
    for (int s = 0; s < kDim / 16; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i & 1;
        query[s][i] = own_pos[r] < 0 ? 0u : *reinterpret_cast<const uint32_t*>(&fresh.q[g + r * 8][s * 16 + (i >> 1) * 8 + q * 2]);
      }
  } else {
#pragma unroll
    for (int s = 0; s < kDim / 16; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = i & 1;
        query[s][i] = own_pos[r] < 0 ? 0u : *reinterpret_cast<const uint32_t*>(own_q[r] + s * 16 + (i >> 1) * 8 + q * 2);
      }
  }
  // A split's result, to be merged by attend_merge.
  const auto store_split = [&](int at) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (own_pos[r] < 0) continue;
      const int token = own_row[r] / group, head = kv_head * group + own_row[r] % group, row = row_begin + token;
      float* to = partial_result(p, kDim, row, head, at);
#pragma unroll
      for (int i = 0; i < kColumns / 8; ++i)
        if (kDim % 64 == 0 || first_column + i * 8 < kDim)
          *reinterpret_cast<float2*>(to + first_column + i * 8 + q * 2) = make_float2(part.acc[i][r * 2], part.acc[i][r * 2 + 1]);
      if (q == 0 && first_column == 0) *reinterpret_cast<float2*>(to + kDim) = make_float2(part.maximum[r], part.sum[r]);
    }
    part.clear();
  };
  int stage = 0;
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    if constexpr (kStages == 1) {
      __syncthreads();
      next_tile(tile);
      load_half(tile, 0, 0), load_half(tile, 1, 0);
      copy_async_commit();
    }
    copy_async_wait<kStages == 1 ? 0 : kTogether ? 2 * kStages - 3 : kStages - 2>();
    __syncthreads();
    if (kFresh && tile == (key_end - 1) / kKeyTile) {
      const int key = (key_end - 1) % kKeyTile;
      for (int i = threadIdx.x; i < kDim; i += kAttendWarps * 32) {  // 4 bytes each of K, then of V
        const int which = i / (kDim / 2), at = i % (kDim / 2);
        uint8_t* to = memory + stage * attend_shared_bytes<kDim>(1) + which * kKeyTile * kWidth * 2 + (key * kChunks + ((at / 4) ^ (key % 8))) * 16 + at % 4 * 4;
        *reinterpret_cast<uint32_t*>(to) = *reinterpret_cast<const uint32_t*>(&fresh.kv[which][at * 2]);
      }
      __syncthreads();
    }
    if constexpr (kStages > 1 && kTogether) {
      const int ahead = tile - 1 + kStages;
      if (tile > tile_begin && ahead < tile_end) load_half(ahead, 1, (stage + kStages - 1) % kStages);
    } else if constexpr (kStages > 1) {
      const int ahead = tile + kAhead, to = (stage + kAhead) % kStages;
      next_tile(ahead);
      if (ahead < tile_end) load_half(ahead, 0, to), load_half(ahead, 1, to);
    }
    copy_async_commit();
    if (active) {
      const uint32_t keys = shared_address(memory) + stage * attend_shared_bytes<kDim>(1);
      const uint32_t values = keys + kKeyTile * kWidth * 2;
      constexpr int kScored = kTogether ? kKeyTile / 8 / kAttendWarps : kKeyTile / 8;  // groups of 8 keys that this warp scores
      float score[kScored][4];
#pragma unroll
      for (int i = 0; i < kScored; ++i) {
        const int n = kTogether ? warp * kScored + i : i;
#pragma unroll
        for (int j = 0; j < 4; ++j) score[i][j] = 0;
#pragma unroll
        for (int s = 0; s < kDim / 16; s += 2) {
          const int key = n * 8 + lane % 8, at = s * 2 + lane / 8;
          uint32_t b0, b1, b2, b3;
          load_matrix_x4(keys + (key * kChunks + (at ^ (key % 8))) * 16, b0, b1, b2, b3);
          mma_f16(score[i], query[s], b0, b1);
          mma_f16(score[i], query[s + 1], b2, b3);
        }
      }
      float tile_max[2] = {-INFINITY, -INFINITY};
#pragma unroll
      for (int i = 0; i < kScored; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const int n = kTogether ? warp * kScored + i : i, r = j >> 1, position = tile * kKeyTile + n * 8 + q * 2 + (j & 1);
          const bool seen = position <= own_pos[r] && (!p.window || position > own_pos[r] - p.window);
          score[i][j] = seen ? __fmul_rn(score[i][j], p.scale_log2) : -INFINITY;
          tile_max[r] = fmaxf(tile_max[r], score[i][j]);
        }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        tile_max[r] = fmaxf(tile_max[r], __shfl_xor_sync(0xffffffffu, tile_max[r], 1));
        tile_max[r] = fmaxf(tile_max[r], __shfl_xor_sync(0xffffffffu, tile_max[r], 2));
      }
      if constexpr (kTogether) {
        if (q < 2) scratch.maximum[g + q * 8][warp] = q ? tile_max[1] : tile_max[0];
        __syncthreads();
        if constexpr (kStages > 1) {
          next_tile(tile + kStages);
          if (tile + kStages < tile_end) load_half(tile + kStages, 0, stage);
          copy_async_commit();
        }
#pragma unroll
        for (int r = 0; r < 2; ++r)
#pragma unroll
          for (int w = 0; w < kAttendWarps; w += 4) {
            const float4 m = *reinterpret_cast<const float4*>(&scratch.maximum[g + r * 8][w]);
            tile_max[r] = fmaxf(fmaxf(fmaxf(tile_max[r], m.x), fmaxf(m.y, m.z)), m.w);
          }
      }
      float factor[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const float m = fmaxf(part.maximum[r], tile_max[r]);
        // Nothing seen so far: whatever the factor, it meets zeros; 1 keeps infinities out.
        const float f = exponential(part.maximum[r] - m);
        factor[r] = m == -INFINITY ? 1.f : f;
        part.maximum[r] = m;
#pragma unroll
        for (int i = 0; i < kColumns / 8; ++i) part.acc[i][r * 2] *= factor[r], part.acc[i][r * 2 + 1] *= factor[r];
      }
      uint32_t probability[kKeyTile / 8][2];
      float row_sum[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < kScored; ++i) {
        float pair[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float e0 = exponential(score[i][r * 2], part.maximum[r]);
          const float e1 = exponential(score[i][r * 2 + 1], part.maximum[r]);
          pair[r] = e0 + e1;
          if (!kTogether) row_sum[r] += pair[r];
          const half2 h = __floats2half2_rn(e0, e1);
          probability[i][r] = *reinterpret_cast<const uint32_t*>(&h);
        }
        if constexpr (kTogether) {
          const int n = warp * kScored + i;
          reinterpret_cast<uint2*>(&scratch.probability[n / 2][lane])[n % 2] = make_uint2(probability[i][0], probability[i][1]);
          scratch.pair_sum[n][lane] = make_float2(pair[0], pair[1]);
        }
      }
      if constexpr (kTogether) {
        __syncthreads();
#pragma unroll
        for (int n = 0; n < kKeyTile / 8; n += 2) {
          const uint4 a = scratch.probability[n / 2][lane];
          probability[n][0] = a.x, probability[n][1] = a.y, probability[n + 1][0] = a.z, probability[n + 1][1] = a.w;
        }
#pragma unroll
        for (int n = 0; n < kKeyTile / 8; ++n) {
          const float2 pair = scratch.pair_sum[n][lane];
          row_sum[0] += pair.x, row_sum[1] += pair.y;
        }
      }
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        row_sum[r] += __shfl_xor_sync(0xffffffffu, row_sum[r], 1);
        row_sum[r] += __shfl_xor_sync(0xffffffffu, row_sum[r], 2);
        part.sum[r] = fmaf(part.sum[r], factor[r], row_sum[r]);
      }
#pragma unroll
      for (int s = 0; s < kKeyTile / 16; ++s) {
        const uint32_t a[4] = {probability[2 * s][0], probability[2 * s][1], probability[2 * s + 1][0], probability[2 * s + 1][1]};
#pragma unroll
        for (int n = 0; n < kColumns / 8; n += 2) {
          const int key = s * 16 + lane % 16, at = first_column / 8 + n + lane / 16;
          uint32_t b0, b1, b2, b3;
          load_matrix_x4_transposed(values + (key * kChunks + (at ^ (key % 8))) * 16, b0, b1, b2, b3);
          mma_f16(part.acc[n], a, b0, b1);
          mma_f16(part.acc[n + 1], a, b2, b3);
        }
      }
    }
    stage = (stage + 1) % kStages;
    if (active && ((tile + 1) * kKeyTile % kSplit == 0 || (kPartial && tile + 1 == tile_end))) {
      if constexpr (kPartial) store_split(tile * kKeyTile / kSplit);
      else close_split();
    }
  }
  if (!active || kPartial) return;

  close_split();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (own_pos[r] < 0) continue;
    const int token = own_row[r] / group, head = kv_head * group + own_row[r] % group, row = row_begin + token;
    const float inverse = 1.f / total.sum[r];
    if (head == p.heads - 1 && first_column == 0) clear_padding(p, row, p.heads * kDim, q, 4);
#pragma unroll
    for (int i = 0; i < kColumns / 8; ++i)
      if (kDim % 64 == 0 || first_column + i * 8 < kDim)
        *reinterpret_cast<half2*>(p.out + p.layout.index(row, head * kDim + first_column + i * 8 + q * 2)) =
            __floats2half2_rn(total.acc[i][r * 2] * inverse, total.acc[i][r * 2 + 1] * inverse);
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
