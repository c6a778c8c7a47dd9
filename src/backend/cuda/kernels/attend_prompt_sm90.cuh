// Attention of many rows (prompts) by wgmma: two warpgroups of 64 (token, query head) rows each share the tiles of keys and values of
// one kv head, which a third warpgroup copies. The two take turns at the tensor cores: sums over the values of one tile and scores of the next
// behind each other, then exponentials while the other one has them.
//
// The numbers are those of attend.cuh: tiles of 64 absolute positions, one online softmax a split of kSplit positions, splits merged in
// ascending order; the products add in the same order (docs/design.md, "Numbers").
#pragma once

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/wgmma_pieces.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kPromptAttendRows = 128, kPromptAttendThreads = 384, kPromptAttendStages = 6;

template <int kDim>
__host__ __device__ constexpr int prompt_attend_bytes() { return kPromptAttendStages * attend_shared_bytes<kDim>(1) + 1024; }

#if QUINTET_CUDA_HOPPER
/// Arrives at a barrier once this thread's copies so far have ended; the barrier counts it like any other arrival.
__device__ __forceinline__ void copy_async_arrive(uint32_t barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
}

/// The 4 x 4 words that four neighbouring lanes hold, turned over: word i of lane q and word q of lane i change places. Memory wants 16 bytes
/// of a row together; the fragments of four lanes have 4 each.
__device__ __forceinline__ void turn_quad(uint32_t (&words)[4], int q) {
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t taken = __shfl_xor_sync(0xffffffffu, q & 1 ? words[i] : words[i + 1], 1);
    (q & 1 ? words[i] : words[i + 1]) = taken;
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t taken = __shfl_xor_sync(0xffffffffu, q & 2 ? words[i] : words[i + 2], 2);
    (q & 2 ? words[i] : words[i + 2]) = taken;
  }
}

/// Which part of a step a block attends for.
struct AttendPlace {
  int kv_head, query_tile, seq, layer, window;
};

/// Copies the tiles [begin, end) of keys and values: a stage has K, then V, each in blocks of 64 dimensions: [kDim / 64][64 keys][128
/// bytes], swizzled. Keys outside [key_begin, key_end) are zeros. By the threads of a warpgroup: issue slots are what the others want, too.
template <int kDim>
__device__ __forceinline__ void copy_prompt_tiles(const AttendParams& p, const AttendPlace& place, int begin, int end, int key_begin, int key_end, uint8_t* stages, const uint64_t* full,
                                                  const uint64_t* empty, int thread) {
  // A thread has one chunk of every kKeyStep-th key. A warp's keys of a tile are 16: a lane looks one of them up for all.
  constexpr int kThreads = 128, kChunks = kDim / 8, kKeyStep = kThreads / kChunks, kKeysEach = kKeyTile / kKeyStep, kWarpKeys = kKeyStep / 4;
  static_assert(kKeyStep % 8 == 0 && kKeysEach * kWarpKeys == 16);
  const int page_tokens = p.page_tokens, chunk = thread % kChunks, first_key = thread / kChunks, lane = thread % 32;
  const PageOf page_of(page_tokens);
  const int64_t head_halves = static_cast<int64_t>(page_tokens) * kDim;
  const uint8_t* keys = p.pages + ((static_cast<int64_t>(place.layer) * 2 * p.kv_heads + place.kv_head) * head_halves + chunk * 8) * 2;
  const uint8_t* values = keys + p.kv_heads * head_halves * 2;
  const BlockRef* refs = p.block_refs + static_cast<size_t>(place.seq) * p.max_blocks;
  const uint32_t page_bytes = static_cast<uint32_t>(p.page_bytes), to0 = shared_address(stages) + chunk / 8 * (kKeyTile * 128) + first_key * 128 + ((chunk % 8) ^ (first_key % 8)) * 16;
  const int lookup_key = lane % 16 / kWarpKeys * kKeyStep + thread / 32 * kWarpKeys + lane % kWarpKeys, lookup_lane = lane / kChunks;
  uint64_t next;  // where in the pages the key that this lane looks up lies
  const auto look_up = [&](int tile) {
    const int position = min(max(tile * kKeyTile + lookup_key, key_begin), key_end - 1), page = page_of(position);
    next = static_cast<uint64_t>(refs[page].page) * page_bytes + static_cast<uint32_t>((position - page * page_tokens) * (kDim * 2));
  };
  if (begin >= end) return;
  int stage = 0;
  uint32_t parity = 1;
  look_up(begin);
  wait_for_previous();
  for (int tile = begin; tile < end; ++tile) {
    barrier_wait(shared_address(&empty[stage]), parity);
    const uint32_t to = to0 + stage * attend_shared_bytes<kDim>(1);
    const auto each = [&](auto&& copy) {
#pragma unroll
      for (int i = 0; i < kKeysEach; ++i) {
        const uint64_t from = __shfl_sync(0xffffffffu, next, i * kWarpKeys + lookup_lane);
        copy(to + i * kKeyStep * 128, keys + from, i);
        copy(to + i * kKeyStep * 128 + kKeyTile * kDim * 2, values + from, i);
      }
    };
    if (tile * kKeyTile >= key_begin && (tile + 1) * kKeyTile <= key_end) {
      each([](uint32_t at, const uint8_t* from, int) { copy_async_16(at, from); });
    } else {
      each([&](uint32_t at, const uint8_t* from, int i) {
        const int position = tile * kKeyTile + first_key + i * kKeyStep;
        copy_async_16_or_zero(at, from, position >= key_begin && position < key_end);
      });
    }
    copy_async_arrive(shared_address(&full[stage]));
    if (tile + 1 < end) look_up(tile + 1);
    if (++stage == kPromptAttendStages) stage = 0, parity ^= 1;
  }
}
#endif

/// grid: x = query tiles of kPromptAttendRows rows, the last first, by kv heads; y = seqs.
template <int kDim>
__global__ void __launch_bounds__(kPromptAttendThreads, 1) attend_prompt(const __grid_constant__ AttendParams p) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ uint8_t raw[];
  __shared__ __align__(8) uint64_t full[kPromptAttendStages], empty[kPromptAttendStages];
  uint8_t* stages = raw + (1024 - shared_address(raw) % 1024) % 1024;
  if (threadIdx.x == 0) {
    ring_init(full, empty, kPromptAttendStages, 128, 8 * p.arriving_lanes);
    barrier_init_fence();
  }
  launch_dependents();
  const int group = p.heads / p.kv_heads, seq = blockIdx.y, warpgroup = threadIdx.x / 128;
  const AttendPlace place = {.kv_head = static_cast<int>(blockIdx.x) % p.kv_heads, .query_tile = static_cast<int>((gridDim.x - 1 - blockIdx.x) / p.kv_heads), .seq = seq, .layer = p.layer, .window = p.window};
  const int row_begin = p.row_begin[seq], tokens = p.row_begin[seq + 1] - row_begin, context = p.context[seq], tile_rows = tokens * group, first_row = place.query_tile * kPromptAttendRows;
  if (first_row >= tile_rows) {
    if (tokens == 0) wait_for_previous();  // of a step of padding nobody else does: the kernel after this one would run beside the one before
    return;
  }
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, group_row = first_row + max(warpgroup - 1, 0) * 64;
  // All positions at once: each trip to memory takes as long as half a tile.
  const int* pos = p.pos + row_begin;
  const int own_row[2] = {group_row + warp * 16 + g, group_row + warp * 16 + g + 8};
  int own_pos[2], own_token[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    own_token[r] = min(own_row[r], tile_rows - 1) / group;
    own_pos[r] = pos[own_token[r]];
  }
  const auto own_head = [&](int r) { return place.kv_head * group + own_row[r] - own_token[r] * group; };  // of rows that exist
  const int lowest_pos = pos[first_row / group], highest_pos = pos[min((first_row + kPromptAttendRows - 1) / group, tokens - 1)];
  // Tiles that some row of the warpgroup does not see whole. Warps of a warpgroup go together: what decides is the same for all.
  const int whole_end = pos[min(group_row / group, tokens - 1)] + 1, whole_begin = place.window ? pos[min((group_row + 63) / group, tokens - 1)] - place.window + 1 : 0;
  const int key_end = min(highest_pos + 1, context), key_begin = place.window ? max(0, lowest_pos - place.window + 1) : 0;
  const int tile_begin = key_begin / kKeyTile, tile_end = (key_end + kKeyTile - 1) / kKeyTile;
  __syncthreads();

  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    copy_prompt_tiles<kDim>(p, place, tile_begin, tile_end, key_begin, key_end, stages, full, empty, threadIdx.x);
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  wait_for_previous();
  uint32_t query[kDim / 16][4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool exists = own_row[r] < tile_rows;
    const __half* own = p.q + static_cast<size_t>(row_begin + own_token[r]) * p.q_stride + own_head(r) * kDim + q * 8;
    uint32_t words[kDim / 32][4];
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      const uint4 chunk = exists ? *reinterpret_cast<const uint4*>(own + i * 32) : make_uint4(0, 0, 0, 0);
      words[i][0] = chunk.x, words[i][1] = chunk.y, words[i][2] = chunk.z, words[i][3] = chunk.w;
    }
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      turn_quad(words[i], q);
#pragma unroll
      for (int c = 0; c < 4; ++c) query[i * 2 + c / 2][r + c % 2 * 2] = words[i][c];
    }
    if (!exists) own_pos[r] = -1;
  }

  constexpr int kSums = kDim / 2;
  float total[kSums], part[kSums], total_max[2] = {-INFINITY, -INFINITY}, total_sum[2] = {}, part_max[2] = {-INFINITY, -INFINITY}, part_sum[2] = {};
#pragma unroll
  for (int i = 0; i < kSums; ++i) total[i] = part[i] = 0;
  const auto close_split = [&] {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float ft, fp, m;
      merge_factors(total_max[r], part_max[r], ft, fp, m);
      total_max[r] = m;
      total_sum[r] = fmaf(part_sum[r], fp, total_sum[r] * ft);
#pragma unroll
      for (int i = 0; i < kSums; i += 4)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const int at = i + r * 2 + j;
          total[at] = fmaf(part[at], fp, total[at] * ft);
        }
      part_max[r] = -INFINITY, part_sum[r] = 0;
    }
  };
  // The tensor cores are one warpgroup's at a time: while it has its products formed the other one forms exponentials.
  const int turn = warpgroup - 1;
  const auto take_turn = [&] { asm volatile("bar.sync %0,256;" ::"r"(1 + turn) : "memory"); };
  const auto give_turn = [&] { asm volatile("bar.arrive %0,256;" ::"r"(2 - turn) : "memory"); };
  float score[32];
  uint32_t probability[kKeyTile / 16][4];  // of 16 keys each, as operand A
  int stage = 0;
  uint32_t parity = 0;
  // Descriptors are formed before a turn is waited for.
  const auto keys_at = [&](int of) { return UniformOperand(shared_address(stages) + of * attend_shared_bytes<kDim>(1), kKeyTile); };
  const auto begin_scores = [&](const UniformOperand& keys) {
#pragma unroll
    for (int s = 0; s < kDim / 16; ++s) wgmma_f16(score, query[s], keys.step(s), s > 0);
    wgmma_commit();
  };
  const auto values_at = [&](int of) {
    return __shfl_sync(0xffffffffu, static_cast<uint32_t>(wgmma_descriptor_turned(shared_address(stages) + of * attend_shared_bytes<kDim>(1) + kKeyTile * kDim * 2, kKeyTile * 128)), 0);
  };
  const auto begin_sums = [&](uint32_t values, int accumulate) {
    constexpr uint64_t kUpperHalf = wgmma_descriptor(0) >> 32 << 32;
#pragma unroll
    for (int s = 0; s < kKeyTile / 16; ++s) wgmma_f16<true>(part, probability[s], kUpperHalf | (values + static_cast<uint32_t>(s * (16 * 128 >> 4))), s > 0 ? 1 : accumulate);
    wgmma_commit();
  };
  // Scores become probabilities; the sums before are brought to the new maximum.
  const auto soften = [&](int tile) {
    const bool whole = (tile + 1) * kKeyTile <= whole_end && tile * kKeyTile >= whole_begin;
#pragma unroll
    for (int i = 0; i < 32; ++i) score[i] = __fmul_rn(score[i], p.scale_log2);
    if (!whole) {
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        const int position = tile * kKeyTile + i / 4 * 8 + q * 2 + (i & 1), own = own_pos[i >> 1 & 1];
        if (position > own || (place.window && position <= own - place.window)) score[i] = -INFINITY;
      }
    }
    float factor[2], tile_max[4];  // of a row's even and odd columns
#pragma unroll
    for (int i = 0; i < 4; ++i) tile_max[i] = score[i];
#pragma unroll
    for (int i = 4; i < 32; ++i) tile_max[i % 4] = fmaxf(tile_max[i % 4], score[i]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float m = fmaxf(tile_max[r * 2], tile_max[r * 2 + 1]);
      m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 1));
      m = fmaxf(m, __shfl_xor_sync(0xffffffffu, m, 2));
      m = fmaxf(m, part_max[r]);
      // A row of which all is masked so far: 2^(-inf - 0), zero, where -inf - -inf would be no number.
      const float from = m == -INFINITY ? 0.f : m;
      factor[r] = exponential(part_max[r] - from);
      part_max[r] = m;
      float row_sum = 0;
#pragma unroll
      for (int n = 0; n < kKeyTile / 8; ++n) {
        const float e0 = exponential(score[n * 4 + r * 2] - from), e1 = exponential(score[n * 4 + r * 2 + 1] - from);
        row_sum += e0 + e1;
        const half2 h = __floats2half2_rn(e0, e1);
        probability[n / 2][n % 2 * 2 + r] = *reinterpret_cast<const uint32_t*>(&h);
      }
      row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 1);
      row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 2);
      part_sum[r] = fmaf(part_sum[r], factor[r], row_sum);
    }
#pragma unroll
    for (int i = 0; i < kSums; ++i) part[i] *= factor[i >> 1 & 1];
    hold(part);
#pragma unroll
    for (int i = 0; i < kKeyTile / 4; ++i) keep(probability[i / 4][i % 4]);
  };
  const auto wait_for_stage = [&] {
    barrier_wait(shared_address(&full[stage]), parity);
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // wgmma reads by another way than the copies wrote
  };
  const auto next_stage = [&] { if (++stage == kPromptAttendStages) stage = 0, parity ^= 1; };

  if (tile_begin < tile_end) {
    if (turn) give_turn();
    const UniformOperand first_keys = keys_at(0);
    wait_for_stage();
    take_turn();
    wgmma_fence();
    begin_scores(first_keys);
    give_turn();
    wgmma_wait<0>();
    hold(score);
    bool first_of_split = true;
    soften(tile_begin);
    // A round begins with the turn: the compiler moves no exponentials beyond that, as it would if they came before it in the round.
    for (int tile = tile_begin; tile + 1 < tile_end; ++tile) {
      const int values_stage = stage;
      next_stage();
      const uint32_t values = values_at(values_stage);
      const UniformOperand keys = keys_at(stage);
      wait_for_stage();
      take_turn();
      wgmma_fence();
      begin_sums(values, !first_of_split);
      begin_scores(keys);
      give_turn();
      wgmma_wait<1>();
      hold(part);
      ring_release(shared_address(&empty[values_stage]), lane, p.arriving_lanes);
      first_of_split = (tile + 1) * kKeyTile % kSplit == 0;
      if (first_of_split) close_split();
      wgmma_wait<0>();
      hold(score);
      soften(tile + 1);
    }
    const uint32_t values = values_at(stage);
    take_turn();
    wgmma_fence();
    begin_sums(values, !first_of_split);
    if (!turn) give_turn();
    wgmma_wait<0>();
    hold(part);
  }
  close_split();
  // 64 columns of a row are chunks of 8, at their places in the row's eight (activation.h).
  const bool swizzled = p.layout.tiles >= 8;
  const int block_step = swizzled ? p.layout.tiles * 64 : 64;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = row_begin + own_token[r], first_chunk = swizzled ? row % 8 : 0;
    const float inverse = 1.f / total_sum[r];
    if (own_pos[r] >= 0 && own_head(r) == p.heads - 1) clear_padding(p, row, p.heads * kDim, q, 4);
    __half* to = p.out + p.layout.index(row, own_head(r) * kDim) - first_chunk * 8;
#pragma unroll
    for (int i = 0; i < kDim / 32; ++i) {
      uint32_t words[4];
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = (i * 4 + c) * 4 + r * 2;
        const half2 two = __floats2half2_rn(total[at] * inverse, total[at + 1] * inverse);
        words[c] = *reinterpret_cast<const uint32_t*>(&two);
      }
      turn_quad(words, q);
      if (own_pos[r] >= 0)
        *reinterpret_cast<uint4*>(to + i / 2 * block_step + ((i % 2 * 4 + q) ^ first_chunk) * 8) = make_uint4(words[0], words[1], words[2], words[3]);
    }
  }
#endif
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
