// Attention of one row over one split, as a phase of a chain or a launch of its own: while it runs, everything else waits, so what counts is
// the time from q, K and V to the result.
//
// The numbers are those of attend.cuh, formed by the same operations in the same order. But all tiles are taken at once: keys lie in
// registers and values in shared memory before q is there; then all scores, all maxima, all exponentials, and last the sums over the values, tile
// after tile. One barrier between each. Keys and columns are the rows of the products (operand A), query heads their columns, so that eight
// heads leave no part of mma.m16n8k16 idle; a product's sums are the same whichever operand is which.
#pragma once

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/grid_progress.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kSplitTiles = kSplit / kKeyTile, kTileWarps = kKeyTile / 16, kRowAttendWarps = kSplitTiles * kTileWarps;  ///< a warp scores 16 keys

/// What the attentions of a step have in common, of positions up to kSplit: read once, since each of these reads waits for the one before.
struct RowContext {
  static constexpr int kMostDim = 128;
  int64_t slot, key_at[kSplit];  ///< key_at: bytes from the first layer's first head in the first page to a position's key
  float2 turn[kMostDim / 2];     ///< of a head's pairs, as p.turn has it
  int position;                  ///< -1: no row

  /// By kThreads threads, before a barrier.
  template <int kThreads>
  __device__ __forceinline__ void make(const AttendParams& p, int dim) {
    const int own = p.pos[0], keys = min(own + 1, kSplit);
    const PageOf page_of(p.page_tokens);
    for (int key = threadIdx.x; key < keys; key += kThreads) key_at[key] = p.block_refs[page_of(key)].page * p.page_bytes + page_of.within(key) * (dim * 2);
    if (threadIdx.x < 32) {
      Turns<kMostDim / 64> turns;
      turns.make(p.turn, own, threadIdx.x);
#pragma unroll
      for (int i = 0; i < kMostDim / 64; ++i) turn[i * 32 + threadIdx.x] = turns.turn[i];
    }
    if (threadIdx.x == 0) position = own, slot = p.turn.kv_slot[0];
  }
};

/// Shared memory of one attention.
template <int kDim>
struct RowAttention {
  static constexpr int kChunks = kDim / 8;  ///< 16 bytes each
  uint4 value[kSplit * kChunks];            ///< chunk c of key r lies at c ^ (r % 8): free of conflicts
  // Of each head and key, or head and dimension; rows apart by what keeps the loads free of conflicts.
  float weight[kRowHeads][kSplit + 8];          ///< exponentials
  __half probability[kRowHeads][kSplit + 8];    ///< the same rounded
  __half q[kRowHeads][kDim + 8], key[kDim + 8]; ///< key: the row's own
  float maximum[kSplitTiles][kRowHeads][kTileWarps];  ///< of a warp's scores
  float sum[kSplitTiles][kRowHeads];

  __device__ __forceinline__ __half* value_of(int key, int column) {
    return reinterpret_cast<__half*>(&value[key * kChunks + (column / 8 ^ key % 8)]) + column % 8;
  }
};

/// One kv head's attention of row 0, of kRowHeads query heads at most, by kRowAttendWarps warps whose threads are numbered from 0: `turn` says how its q, K and V
/// are finished, which are there once wait(), called by some threads, returns. Barrier 1 is the warps'; `s` is free when the first of them comes.
/// p.out is written before the last barrier.
template <int kDim, class Wait>
__device__ __forceinline__ void attend_row(const AttendParams& p, const RopeStoreParams& turn, const RowContext& context, int kv_head, int window, Wait wait,
                                           RowAttention<kDim>& s) {
  constexpr int kThreads = kRowAttendWarps * 32, kSumWarps = kDim / 16;  // kSumWarps: that sum up, 16 columns each; behind them one a tile adds its weights up
  constexpr int kChunks = RowAttention<kDim>::kChunks;
  static_assert(kDim % 64 == 0 && kDim <= RowContext::kMostDim && kSumWarps + kSplitTiles <= kRowAttendWarps);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, heads = p.heads / p.kv_heads;
  const int position = context.position, key_begin = window ? max(0, position - window + 1) : 0;
  const int tile_begin = key_begin / kKeyTile, tile_end = (position + kKeyTile) / kKeyTile;  // none where there is no row
  const int64_t head_bytes = static_cast<int64_t>(p.page_tokens) * kDim * 2;
  const int64_t keys_at = (static_cast<int64_t>(turn.layer) * 2 * p.kv_heads + kv_head) * head_bytes, values_at = keys_at + p.kv_heads * head_bytes;
  // In the cache: the row's own key is not.
  const auto is_cached = [&](int key) { return key >= key_begin && key < position; };
  const auto is_seen = [&](int tile) { return tile >= tile_begin && tile < tile_end; };

  // A warp scores 16 keys: a lane has those of rows g and g + 8.
  const int own_tile = warp / kTileWarps, own_key = warp * 16 + g;
  uint32_t key[kDim / 16][4] = {};
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (!is_cached(own_key + r * 8)) continue;
    const uint8_t* from = p.pages + keys_at + context.key_at[own_key + r * 8] + q * 4;
#pragma unroll
    for (int step = 0; step < kDim / 16; ++step)
#pragma unroll
      for (int half = 0; half < 2; ++half) key[step][half * 2 + r] = load_l2(reinterpret_cast<const uint32_t*>(from + step * 32 + half * 16));
  }
  named_barrier<1, kThreads>();
#pragma unroll 1
  for (int i = tile_begin * kKeyTile * kChunks + threadIdx.x; i < tile_end * kKeyTile * kChunks; i += kThreads) {
    const int at = i / kChunks, chunk = i % kChunks;
    if (at != position)  // the own one is stored below
      copy_async_16_or_zero(shared_address(s.value_of(at, chunk * 8)), p.pages + values_at + (is_cached(at) ? context.key_at[at] : 0) + chunk * 16, is_cached(at));
  }
  copy_async_commit();
  Turns<head_pairs(kDim)> turns;
  if (turn.inv_freq == p.turn.inv_freq && turn.rope_scale == p.turn.rope_scale && turn.rope_dims == p.turn.rope_dims) {
#pragma unroll
    for (int i = 0; i < head_pairs(kDim); ++i) turns.turn[i] = context.turn[i * 32 + lane];
  } else {
    turns.make(turn, position, lane);
  }

  // A warp finishes one head of q, or K, or V, and waits for it alone.
  static_assert(kRowHeads + 2 <= kRowAttendWarps);
  if (warp < heads + 2) {
    const bool is_q = warp < heads, is_v = warp == heads + 1;
    if (lane == 0) wait();
    __syncwarp();
    HeadValues<kDim> own;
    own.load(turn, 0, is_q ? kv_head * heads + warp : p.heads + (is_v ? p.kv_heads : 0) + kv_head, lane);
    own.finish(turn, is_q ? turn.q_norm : is_v ? nullptr : turn.k_norm, is_v ? nullptr : &turns, lane);
    if (!is_v) own.store(turn, is_q ? s.q[warp] : s.key, lane);
    else if (position >= 0) own.store_at(turn, lane, [&](int column) { return s.value_of(position, column); });
    if (!is_q && context.slot >= 0) own.store(turn, reinterpret_cast<__half*>(turn.pages + (is_v ? values_at : keys_at) + context.key_at[position]), lane);
  }
  copy_async_wait<0>();
  named_barrier<1, kThreads>();

  // Keys g and g + 8 of heads 2 q and 2 q + 1.
  float score[4] = {};
  if (is_seen(own_tile)) {
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (own_key + r * 8 == position)
#pragma unroll
        for (int step = 0; step < kDim / 16; ++step)
#pragma unroll
          for (int half = 0; half < 2; ++half) key[step][half * 2 + r] = *reinterpret_cast<const uint32_t*>(&s.key[step * 16 + half * 8 + q * 2]);
#pragma unroll
    for (int step = 0; step < kDim / 16; step += 2) {
      uint32_t b0, b1, b2, b3;  // heads that there are none of: sums that nobody reads
      load_matrix_x4(shared_address(&s.q[lane % 8][step * 16 + lane / 8 * 8]), b0, b1, b2, b3);
      mma_f16(score, key[step], b0, b1);
      mma_f16(score, key[step + 1], b2, b3);
    }
    float most[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = own_key + i / 2 * 8;
      score[i] = at >= key_begin && at <= position ? __fmul_rn(score[i], p.scale_log2) : -INFINITY;
      most[i % 2] = fmaxf(most[i % 2], score[i]);
    }
#pragma unroll
    for (int step = 4; step < 32; step *= 2)
#pragma unroll
      for (int i = 0; i < 2; ++i) most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], step));
    if (g < 2) s.maximum[own_tile][q * 2 + g][warp % kTileWarps] = g ? most[1] : most[0];
  }
  named_barrier<1, kThreads>();

  const auto tile_maximum = [&](int tile, int head) {
    const float4 m = *reinterpret_cast<const float4*>(s.maximum[tile][head]);
    return fmaxf(fmaxf(m.x, m.y), fmaxf(m.z, m.w));
  };
  if (is_seen(own_tile)) {
    float m[2] = {-INFINITY, -INFINITY};
#pragma unroll 1
    for (int tile = tile_begin; tile <= own_tile; ++tile)
#pragma unroll
      for (int i = 0; i < 2; ++i) m[i] = fmaxf(m[i], tile_maximum(tile, q * 2 + i));
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = own_key + i / 2 * 8, head = q * 2 + i % 2;
      const float e = exponential(score[i], m[i % 2]);
      s.weight[head][at] = e;
      s.probability[head][at] = __float2half_rn(e);
    }
  }
  named_barrier<1, kThreads>();

  // Columns g and g + 8 of heads 2 q and 2 q + 1.
  float acc[4] = {}, factor[kSplitTiles][2];
  const int column = warp * 16;
  if (warp < kSumWarps) {
    float so_far[2] = {-INFINITY, -INFINITY};
#pragma unroll
    for (int tile = 0; tile < kSplitTiles; ++tile) {
      if (!is_seen(tile)) continue;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const float m = fmaxf(so_far[i], tile_maximum(tile, q * 2 + i)), f = exponential(so_far[i] - m);
        factor[tile][i] = m == -INFINITY ? 1.f : f;  // nothing seen so far: whatever it is, it meets zeros
        so_far[i] = m;
        acc[i] *= factor[tile][i], acc[i + 2] *= factor[tile][i];
      }
#pragma unroll
      for (int step = 0; step < kKeyTile / 16; step += 2) {
        const int first = tile * kKeyTile + step * 16;
        uint32_t b[4], a[2][4];
        load_matrix_x4(shared_address(&s.probability[lane % 8][first + lane / 8 * 8]), b[0], b[1], b[2], b[3]);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          load_matrix_x4_transposed(shared_address(s.value_of(first + i * 16 + lane / 16 * 8 + lane % 8, column + lane / 8 % 2 * 8)), a[i][0], a[i][1], a[i][2], a[i][3]);
          mma_f16(acc, a[i], b[i * 2], b[i * 2 + 1]);
        }
      }
    }
  } else if (const int tile = warp - kSumWarps; tile < kSplitTiles && is_seen(tile)) {
    float sum = 0;
#pragma unroll
    for (int n = 0; n < kKeyTile / 8; ++n) {
      const float2 pair = *reinterpret_cast<const float2*>(&s.weight[g][tile * kKeyTile + n * 8 + q * 2]);
      sum += pair.x + pair.y;
    }
    sum += __shfl_xor_sync(0xffffffffu, sum, 1);
    sum += __shfl_xor_sync(0xffffffffu, sum, 2);
    if (q == 0) s.sum[tile][g] = sum;
  }
  named_barrier<1, kThreads>();
  if (warp < kSumWarps && position >= 0) {
    if (warp == 0 && kv_head == p.kv_heads - 1) clear_padding(p, 0, p.heads * kDim, lane, 32);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (q * 2 + i >= heads) continue;
      float sum = 0;
#pragma unroll
      for (int tile = 0; tile < kSplitTiles; ++tile)
        if (is_seen(tile)) sum = fmaf(sum, factor[tile][i], s.sum[tile][q * 2 + i]);
      const float inverse = 1.f / sum;
      const int at = (kv_head * heads + q * 2 + i) * kDim + column + g;
#pragma unroll
      for (int r = 0; r < 2; ++r)  // + 0: what meeting an empty result does (attend.cuh)
        p.out[p.layout.index(0, at + r * 8)] = __float2half_rn((acc[r * 2 + i] + 0.f) * inverse);
    }
  }
  named_barrier<1, kThreads>();
}

/// The same as a launch of its own, a block a kv head. Dynamic memory: RowAttention<kDim>.
template <int kDim>
__global__ void __launch_bounds__(kRowAttendWarps * 32, 1) attend_one_row(const __grid_constant__ AttendParams p) {
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ RowContext context;
  context.make<kRowAttendWarps * 32>(p, kDim);
  __syncthreads();
  attend_row<kDim>(p, p.turn, context, static_cast<int>(blockIdx.x), p.window, [] {}, *reinterpret_cast<RowAttention<kDim>*>(memory));
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
