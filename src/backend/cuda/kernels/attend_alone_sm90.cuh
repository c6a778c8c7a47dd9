// Attention of a step's only row over more than one split: a block takes one split of a kv head and its warps share it, so that two blocks a
// multiprocessor have most of their keys and values at hand before q is there. It can form q, K and V itself. A warp a part of a head merges.
//
// The numbers are those of attend.cuh, formed by the same operations in the same order. A warp has 32 keys, in registers before q is there, so
// that half of their room serves values. Scores, maxima, exponentials and sums over the values follow each other with a barrier between.
//
// What a layer takes is what its blocks wait for each other: their last result, the merge, the next q. So the warps that merge are resident beside
// those who attend, and the next launch's blocks, which come in as these end, read while the merge runs; but little at a time, since what is
// merged queues behind it.
#pragma once

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kAloneWarps = 8, kAloneThreads = kAloneWarps * 32, kAloneHeads = 8;  ///< kAloneHeads: query heads of a group at most
inline constexpr int kAloneKeys = kSplit / kAloneWarps, kAloneTiles = kSplit / kKeyTile;   ///< kAloneKeys: of a warp
/// Registers of a thread: each quarter of a multiprocessor has 16384, for four warps that attend and one that merges. Without that room the warps that
/// merge waited for a block to end, and then kept one of the next layer out.
inline constexpr int kAloneRegisters = 104, kMergeAloneRegisters = 96;

/// Shared memory of a block that attends. Chunk c of a key or value lies at c ^ (key % 8): free of conflicts; rows of halves apart by what keeps them so.
template <int kDim>
struct AloneShared {
  static constexpr int kChunks = kDim / 8;                        ///< 16 bytes each
  static constexpr int kApart = kDim > 64 ? kSplit / 2 : kSplit;  ///< values with room of their own; a warp's others take that of its keys
  uint4 key[kAloneWarps][kAloneKeys][kChunks], value[kApart][kChunks];
  __half q[kAloneHeads][kDim + 8], own[2][kDim + 8];  ///< own: K and V of the row's own position
  __half probability[kAloneHeads][kSplit + 8];
  float2 maximum[kAloneTiles][kAloneHeads];           ///< of either half of a tile's scores
  float half_sum[kAloneTiles][kAloneHeads][4], sum[kAloneTiles][kAloneHeads];

  __device__ __forceinline__ uint4& value_chunk(int at, int chunk) {
    constexpr int kWarpRows = (kSplit - kApart) / kAloneWarps;
    if constexpr (kWarpRows > 0)
      if (at >= kApart) return key[(at - kApart) / kWarpRows][(at - kApart) % kWarpRows][chunk ^ at % 8];
    return value[at][chunk ^ at % 8];
  }
};

/// 16 bytes of keys or values, or zeros where !valid: read once (evict first), so that they do not push partial results out of L2.
__device__ __forceinline__ void copy_async_16_once(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0],[%1],16,%2;" ::"r"(to), "l"(from), "l"(0x12F0000000000000ull) : "memory");
}
__device__ __forceinline__ void copy_async_16_once_or_zero(uint32_t to, const void* from, bool valid) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0],[%1],16,%2,%3;" ::"r"(to), "l"(from), "r"(valid ? 16 : 0), "l"(0x12F0000000000000ull) : "memory");
}

/// In program order: a branch around it stays one.
__device__ __forceinline__ uint32_t load_here(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.global.u32 %0,[%1];" : "=r"(value) : "l"(from));
  return value;
}

/// Merges the row's splits in ascending order. grid: x = heads, y = parts of 64 columns, a warp each, a lane two. All of 32 splits are on their way
/// together.
template <int kDim>
__global__ void __maxnreg__(kMergeAloneRegisters) merge_alone(const __grid_constant__ AttendParams p) {
  launch_dependents();
  constexpr int kBatch = 32;
  const int lane = threadIdx.x, head = blockIdx.x, column = static_cast<int>(blockIdx.y) * 64 + lane * 2;
  const int row = p.row_begin[0], rows = p.row_begin[1] - row, context = p.context[0];
  wait_for_previous();
  if (rows == 0 || context == 0) return;
  const int first = p.window ? max(0, context - p.window) / kSplit : 0, splits = (context - 1) / kSplit + 1 - first;
  const int64_t step = static_cast<int64_t>(p.heads) * partial_width(kDim);  // from split to split
  const float* from = partial_result(p, kDim, row, head, first);
  float2 total = make_float2(0, 0);
  float maximum = -INFINITY, sum = 0;
#pragma unroll 1
  for (int done = 0; done < splits; done += kBatch) {
    const int count = min(kBatch, splits - done);
    float2 values[kBatch];
#pragma unroll
    for (int i = 0; i < kBatch; ++i)
      if (i < count) values[i] = load_l2(reinterpret_cast<const float2*>(from + (done + i) * step + column));
    // How each split meets what is before it: a lane finds its split's factors. The maxima before the splits are found by a scan, since a maximum
    // does not hang on its order.
    float2 state = load_l2(reinterpret_cast<const float2*>(from + (done + min(lane, count - 1)) * step + kDim));
    if (lane >= count) state = make_float2(-INFINITY, 0);
    float most = state.x;
#pragma unroll
    for (int distance = 1; distance < 32; distance *= 2) {
      const float other = __shfl_up_sync(0xffffffffu, most, distance);
      if (lane >= distance) most = fmaxf(most, other);
    }
    const float before = __shfl_up_sync(0xffffffffu, most, 1);
    float ft, fp, met;
    merge_factors(lane == 0 ? maximum : fmaxf(before, maximum), state.x, ft, fp, met);
    maximum = __shfl_sync(0xffffffffu, met, 31);
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (i >= count) continue;
      const float t = __shfl_sync(0xffffffffu, ft, i), f = __shfl_sync(0xffffffffu, fp, i), denominator = __shfl_sync(0xffffffffu, state.y, i);
      sum = fmaf(denominator, f, sum * t);
      total = make_float2(fmaf(values[i].x, f, total.x * t), fmaf(values[i].y, f, total.y * t));
    }
  }
  if (head == p.heads - 1 && blockIdx.y == 0) clear_padding(p, row, p.heads * kDim, lane, 32);
  const float inverse = 1.f / sum;
  *reinterpret_cast<half2*>(p.out + p.layout.index(row, head * kDim + column)) = __floats2half2_rn(total.x * inverse, total.y * inverse);
}

/// grid: x = kv_heads, y = splits that a row sees at most. One sequence of one row, or of none. p.fresh: q, K and V still are partial sums.
template <int kDim>
__global__ void __maxnreg__(kAloneRegisters) attend_alone(const __grid_constant__ AttendParams p) {
  extern __shared__ __align__(128) uint8_t memory[];
  using Shared = AloneShared<kDim>;
  Shared& s = *reinterpret_cast<Shared*>(memory);
  launch_dependents();
  constexpr int kChunks = Shared::kChunks, kKeyStep = 32 / kChunks, kSteps = kDim / 16;
  const int warp = warp_index(), lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, group = p.heads / p.kv_heads;
  const int kv_head = blockIdx.x, number = blockIdx.y;
  // A step's inputs are there before its first kernel starts. What does not hang on another is asked for together.
  const int row = p.row_begin[0], rows = p.row_begin[1] - row, context = p.context[0];
  // A lane's key, and its value: of the first half of the split, or of the second.
  const int own_key = warp * kAloneKeys + lane, own_value = lane / 16 * (kSplit / 2) + warp * 16 + lane % 16;
  int key_begin = 0, split = number, pages[2], within[2];
  const auto look_up = [&] {
    const PageOf page_of(p.page_tokens);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int key = split * kSplit + (i ? own_value : own_key);
      pages[i] = load_here(&p.block_refs[min(page_of(key), p.max_blocks - 1)].page);
      within[i] = page_of.within(key);
    }
  };
  if (p.window) {
    key_begin = max(0, context - p.window);
    split += key_begin / kSplit;
    look_up();
  } else {
    look_up();
  }
  const int position = context - 1;  // the row's own
  const int first_split = key_begin / kSplit, splits = position / kSplit + 1 - first_split;
  if (rows == 0 || context == 0 || number >= splits) {
    wait_for_previous();
    return;
  }
  const bool is_last = number == splits - 1;  // has the row's own position, whose K and V only come with q
  const int own_at = is_last ? position % kSplit : -1;

  const int64_t head_bytes = static_cast<int64_t>(p.page_tokens) * (kDim * 2);
  const int chunk = lane % kChunks;
  const uint8_t* keys = p.pages + (static_cast<int64_t>(p.layer) * 2 * p.kv_heads + kv_head) * head_bytes + chunk * 16;
  const uint8_t* values = keys + p.kv_heads * head_bytes;
  const int64_t key_at = static_cast<uint32_t>(pages[0]) * p.page_bytes + within[0] * (kDim * 2);
  const int64_t value_at = static_cast<uint32_t>(pages[1]) * p.page_bytes + within[1] * (kDim * 2);
  // Of the keys, or the values, that the lanes have looked up: those from `first` on, kKeyStep of them. Chunks change places by what the compiler
  // cannot find out: the number of a key within eight is that of `first` and of the lane, which have no bits in common.
  const bool whole = split * kSplit >= key_begin && !is_last;
  const int own_first = lane / kChunks, place = warp * kAloneKeys * (kDim * 2) + own_first * (kDim * 2);
  const uint32_t key_to = shared_address(s.key) + place, value_to = shared_address(s.value) + warp * 16 * (kDim * 2) + own_first * (kDim * 2);
  const auto copy = [&](bool is_value, int first) {
    const uint8_t* from = (is_value ? values : keys) + __shfl_sync(0xffffffffu, is_value ? value_at : key_at, first + own_first);
    const bool is_late = is_value && first >= 16;  // of the second half of the split
    const int row_at = (is_late ? (Shared::kApart < kSplit ? first - 16 : first - 16 + kSplit / 2) : first) * (kDim * 2);
    const uint32_t to = (is_late && Shared::kApart < kSplit ? key_to : is_value ? value_to : key_to) + row_at + (chunk ^ own_first ^ first % 8) * 16;
    if (whole) {
      copy_async_16_once(to, from);
    } else {
      const int at = (is_value ? first / 16 * (kSplit / 2) + warp * 16 + first % 16 : warp * kAloneKeys + first) + own_first, seen = split * kSplit + at;
      if (at != own_at) copy_async_16_once_or_zero(to, from, seen >= key_begin && seen < position);
    }
  };
  constexpr int kKeyCopies = kAloneKeys / kKeyStep, kValueCopies = kKeyCopies / 2, kGroup = 2, kAhead = 2;  // groups that a warp has on their way
#pragma unroll
  for (int i = 0; i < kKeyCopies + kValueCopies; ++i) {
    if (i % kGroup == 0 && i / kGroup >= kAhead) copy_async_wait<kAhead - 1>();
    copy(i >= kKeyCopies, i % kKeyCopies * kKeyStep);
    if (i % kGroup == kGroup - 1) copy_async_commit();
  }
  Turns<head_pairs(kDim)> turns;
  if (p.fresh) turns.make(p.turn, position, lane);
  copy_async_wait<kValueCopies / kGroup>();
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
  __syncwarp();

  wait_for_previous();
  if (p.fresh) {
    constexpr int kJobs = (kAloneHeads + 2 + kAloneWarps - 1) / kAloneWarps;
    const int jobs = group + (is_last ? 2 : 0);
    HeadValues<kDim> made[kJobs];
#pragma unroll
    for (int i = 0; i < kJobs; ++i) {  // all loads before the first use
      const int job = warp + i * kAloneWarps;
      if (job < jobs) made[i].load(p.turn, row, job < group ? kv_head * group + job : job == group ? p.heads + kv_head : p.heads + p.kv_heads + kv_head, lane);
    }
#pragma unroll
    for (int i = 0; i < kJobs; ++i) {
      const int job = warp + i * kAloneWarps;
      if (job >= jobs) continue;
      const bool is_q = job < group, is_v = job == group + 1;
      made[i].finish(p.turn, is_q ? p.turn.q_norm : is_v ? nullptr : p.turn.k_norm, is_v ? nullptr : &turns, lane);
      made[i].store(p.turn, is_q ? s.q[job] : s.own[is_v], lane);
      if (const int64_t slot = p.turn.kv_slot[row]; !is_q && slot >= 0) made[i].store(p.turn, cache_row(p.turn, slot, is_v, kv_head), lane);
    }
  } else {
    const __half* from = p.q + row * p.q_stride + static_cast<int64_t>(kv_head) * group * kDim;
    const int i = threadIdx.x;
    if (i < group * kChunks) *reinterpret_cast<uint4*>(&s.q[i / kChunks][i % kChunks * 8]) = load_l2(reinterpret_cast<const uint4*>(from) + i);
    if (is_last && warp == own_at / kAloneKeys) {
      const int64_t offset = __shfl_sync(0xffffffffu, key_at, own_at % kAloneKeys);
      if (lane < 2 * kChunks) {
        const int which = lane / kChunks;
        *reinterpret_cast<uint4*>(&s.own[which][chunk * 8]) = load_l2(reinterpret_cast<const uint4*>((which ? values : keys) + offset));
      }
    }
  }
  // The other values only now: q would queue behind them.
#pragma unroll
  for (int i = kValueCopies; i < 2 * kValueCopies; ++i) copy(true, i * kKeyStep);
  copy_async_commit();
  __syncthreads();

  const int tile = warp / 2, half = warp % 2, tile_begin = max(0, key_begin - split * kSplit) / kKeyTile;
  const int tile_end = (min(kSplit, context - split * kSplit) + kKeyTile - 1) / kKeyTile;
  const auto is_seen = [&](int at) { return at >= tile_begin && at < tile_end; };
  // Keys g and g + 8 of each 16 of heads 2 q and 2 q + 1.
  float score[2][4] = {};
  if (is_seen(tile)) {
#pragma unroll
    for (int m = 0; m < 2; ++m)
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (warp * kAloneKeys + m * 16 + r * 8 + g == own_at)
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
        const int at = split * kSplit + warp * kAloneKeys + m * 16 + i / 2 * 8 + g;
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
  float factor[kAloneTiles][2], so_far[2] = {-INFINITY, -INFINITY}, own_maximum[2] = {-INFINITY, -INFINITY};
#pragma unroll
  for (int t = 0; t < kAloneTiles; ++t) {
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
        s.probability[q * 2 + i][warp * kAloneKeys + n * 8 + g] = __float2half_rn(e[i]);
      }
      const bool is_odd = g % 2;
      row_sum[n] = (is_odd ? e[1] : e[0]) + __shfl_xor_sync(0xffffffffu, is_odd ? e[0] : e[1], 4);
    }
    // The tile's first 32 keys come before the others, which the next warp has.
    if (half == 0) s.half_sum[tile][q * 2 + g % 2][g / 2] = row_sum[0] + row_sum[1] + row_sum[2] + row_sum[3];
  }
  if (is_last && warp == kAloneWarps - 1 && lane < kChunks) s.value_chunk(own_at, lane) = *reinterpret_cast<const uint4*>(&s.own[1][lane * 8]);
  copy_async_wait<1>();
  __syncthreads();

  // Columns g and g + 8 of each 16 of heads 2 q and 2 q + 1.
  float acc[4] = {};
  const auto add_tile = [&](int t) {
    if (warp >= kDim / 16 || !is_seen(t)) return;
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
        load_matrix_x4_transposed(shared_address(&s.value_chunk(first + i * 16 + lane / 16 * 8 + lane % 8, warp * 2 + lane / 8 % 2)), a[0], a[1], a[2], a[3]);
        mma_f16(acc, a, b[i * 2], b[i * 2 + 1]);
      }
    }
  };
  add_tile(0);
  add_tile(1);
  if (is_seen(tile) && half == 1) {
    float sum = s.half_sum[tile][q * 2 + g % 2][g / 2] + row_sum[0] + row_sum[1] + row_sum[2] + row_sum[3];
    sum += __shfl_xor_sync(0xffffffffu, sum, 8);
    sum += __shfl_xor_sync(0xffffffffu, sum, 16);
    if (g < 2) s.sum[tile][q * 2 + g] = sum;
  }
  copy_async_wait<0>();
  __syncthreads();
  add_tile(2);
  add_tile(3);
  if (warp < kDim / 16)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (q * 2 + i % 2 < group) partial_result(p, kDim, row, kv_head * group + q * 2 + i % 2, split)[warp * 16 + i / 2 * 8 + g] = acc[i];
  if (warp == 0 && g == 0) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float sum = 0;
#pragma unroll
      for (int t = 0; t < kAloneTiles; ++t)
        if (is_seen(t)) sum = fmaf(sum, factor[t][i], s.sum[t][q * 2 + i]);
      if (q * 2 + i < group) *reinterpret_cast<float2*>(partial_result(p, kDim, row, kv_head * group + q * 2 + i, split) + kDim) = make_float2(so_far[i], sum);
    }
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
