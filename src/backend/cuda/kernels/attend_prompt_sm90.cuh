// Attention of many rows (prompts) by wgmma: two warpgroups of 64 (token, query head) rows each share the tiles of keys and values of
// one kv head, which a third warpgroup copies; while one forms exponentials the other keeps the tensor cores busy.
//
// The numbers are those of attend.cuh: tiles of 64 absolute positions, one online softmax a split of kSplit positions, splits merged in
// ascending order; the products add in the same order (docs/design.md, "Numbers").
#pragma once

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/wgmma_pieces.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kPromptAttendRows = 128, kPromptAttendThreads = 384, kPromptAttendStages = 4;

template <int kDim>
__host__ __device__ constexpr int prompt_attend_bytes() { return kPromptAttendStages * attend_shared_bytes<kDim>(1) + 1024; }

#if QUINTET_CUDA_HOPPER
/// Which part of a step a block attends for.
struct AttendPlace {
  int kv_head, query_tile, seq, layer, window;
};

/// Copies the tiles [begin, end) of keys and values: a stage has K, then V, each in blocks of 64 dimensions: [kDim / 64][64 keys][128
/// bytes], swizzled. Keys outside [key_begin, key_end) are zeros. By the threads of a warpgroup.
template <int kDim>
__device__ __forceinline__ void copy_prompt_tiles(const AttendParams& p, const AttendPlace& place, int begin, int end, int key_begin, int key_end, uint8_t* stages, const uint64_t* full,
                                                  const uint64_t* empty, int thread) {
  constexpr int kThreads = 128, kChunks = kDim / 8, kKeyStep = kThreads / kChunks, kKeysEach = kKeyTile / kKeyStep, kLag = 2;
  const int page_tokens = p.page_tokens, chunk = thread % kChunks, first_key = thread / kChunks, lane = thread % 32;
  const PageOf page_of(page_tokens);
  const int64_t head_halves = static_cast<int64_t>(page_tokens) * kDim, value_at = p.kv_heads * head_halves * 2;
  const uint8_t* pages = p.pages + ((static_cast<int64_t>(place.layer) * 2 * p.kv_heads + place.kv_head) * head_halves + chunk * 8) * 2;
  const BlockRef* refs = p.block_refs + static_cast<size_t>(place.seq) * p.max_blocks;
  const uint32_t to0 = shared_address(stages) + chunk / 8 * (kKeyTile * 128);
  uint32_t page[kKeysEach];
  const auto look_up = [&](int tile) {
#pragma unroll
    for (int i = 0; i < kKeysEach; ++i) page[i] = refs[page_of(min(max(tile * kKeyTile + first_key + i * kKeyStep, key_begin), key_end - 1))].page;
  };
  const auto tell = [&](int stage) {  // wgmma reads by another way than these copies wrote
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    ring_release(shared_address(&full[stage]), lane, p.arriving_lanes);
  };
  int stage = 0, told = 0;
  uint32_t parity = 1;
  look_up(begin);
  for (int tile = begin; tile < end; ++tile) {
    barrier_wait(shared_address(&empty[stage]), parity);
    const uint32_t to = to0 + stage * attend_shared_bytes<kDim>(1);
#pragma unroll
    for (int i = 0; i < kKeysEach; ++i) {
      const int key = first_key + i * kKeyStep, position = tile * kKeyTile + key;
      const bool valid = position >= key_begin && position < key_end;
      const uint8_t* from = pages + page[i] * p.page_bytes + page_of.within(position) * (kDim * 2);
      const uint32_t at = to + key * 128 + ((chunk % 8) ^ (key % 8)) * 16;
      copy_async_16_or_zero(at, valid ? from : p.pages, valid);
      copy_async_16_or_zero(at + kKeyTile * kDim * 2, valid ? from + value_at : p.pages, valid);
    }
    copy_async_commit();
    if (tile + 1 < end) look_up(tile + 1);
    if (tile - begin >= kLag) {
      copy_async_wait<kLag>();
      tell(told);
      told = (told + 1) % kPromptAttendStages;
    }
    if (++stage == kPromptAttendStages) stage = 0, parity ^= 1;
  }
  copy_async_wait<0>();
  for (int left = min(kLag, end - begin); left > 0; --left) {
    tell(told);
    told = (told + 1) % kPromptAttendStages;
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
    ring_init(full, empty, kPromptAttendStages, 4 * p.arriving_lanes, 8 * p.arriving_lanes);
    barrier_init_fence();
  }
  __syncthreads();
  launch_dependents();
  const int group = p.heads / p.kv_heads, seq = blockIdx.y, warpgroup = threadIdx.x / 128;
  const AttendPlace place = {.kv_head = static_cast<int>(blockIdx.x) % p.kv_heads, .query_tile = static_cast<int>((gridDim.x - 1 - blockIdx.x) / p.kv_heads), .seq = seq, .layer = p.layer, .window = p.window};
  const int row_begin = p.row_begin[seq], tokens = p.row_begin[seq + 1] - row_begin, tile_rows = tokens * group, first_row = place.query_tile * kPromptAttendRows;
  if (first_row >= tile_rows) return;
  const int first_token = first_row / group, last_token = min((first_row + kPromptAttendRows - 1) / group, tokens - 1);
  const int lowest_pos = p.pos[row_begin + first_token], highest_pos = p.pos[row_begin + last_token];
  const int key_end = min(highest_pos + 1, p.context[seq]), key_begin = place.window ? max(0, lowest_pos - place.window + 1) : 0;
  const int tile_begin = key_begin / kKeyTile, tile_end = (key_end + kKeyTile - 1) / kKeyTile;

  if (warpgroup == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 56;");
    wait_for_previous();
    copy_prompt_tiles<kDim>(p, place, tile_begin, tile_end, key_begin, key_end, stages, full, empty, threadIdx.x);
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 224;");
  wait_for_previous();
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, warp_row = first_row + (warpgroup - 1) * 64 + warp * 16;
  const int own_row[2] = {warp_row + g, warp_row + g + 8};
  int own_pos[2];
  uint32_t query[kDim / 16][4];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const bool exists = own_row[r] < tile_rows;
    const int token = exists ? own_row[r] / group : 0, head = place.kv_head * group + (exists ? own_row[r] % group : 0);
    own_pos[r] = exists ? p.pos[row_begin + token] : -1;
    const __half* own = p.q + static_cast<size_t>(row_begin + token) * p.q_stride + static_cast<size_t>(head) * kDim;
#pragma unroll
    for (int s = 0; s < kDim / 16; ++s)
#pragma unroll
      for (int half = 0; half < 2; ++half) query[s][r + half * 2] = own_pos[r] < 0 ? 0u : *reinterpret_cast<const uint32_t*>(own + s * 16 + half * 8 + q * 2);
  }
  // Tiles that some row of the warpgroup does not see whole. Warps of a warpgroup go together: what decides is the same for all.
  const int group_first = min((first_row + (warpgroup - 1) * 64) / group, tokens - 1), group_last = min((first_row + warpgroup * 64 - 1) / group, tokens - 1);
  const int whole_end = p.pos[row_begin + group_first] + 1, whole_begin = place.window ? p.pos[row_begin + group_last] - place.window + 1 : 0;

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
          part[at] = 0;
        }
      part_max[r] = -INFINITY, part_sum[r] = 0;
    }
  };
  int stage = 0;
  uint32_t parity = 0;
  for (int tile = tile_begin; tile < tile_end; ++tile) {
    barrier_wait(shared_address(&full[stage]), parity);
    const uint32_t keys = shared_address(stages) + stage * attend_shared_bytes<kDim>(1);
    const WgmmaOperand of_keys = {.first = wgmma_descriptor(keys), .rows = kKeyTile};
    const uint64_t values = wgmma_descriptor_turned(keys + kKeyTile * kDim * 2, kKeyTile * 128);
    float score[32];
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kDim / 16; ++s) wgmma_f16(score, query[s], of_keys.step(s), s > 0);
    wgmma_commit();
    wgmma_wait<0>();
    hold(score);
    float tile_max[2] = {-INFINITY, -INFINITY};
    const bool whole = (tile + 1) * kKeyTile <= whole_end && tile * kKeyTile >= whole_begin;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const int r = i >> 1 & 1;
      score[i] = __fmul_rn(score[i], p.scale_log2);
      if (!whole) {
        const int position = tile * kKeyTile + i / 4 * 8 + q * 2 + (i & 1);
        if (position > own_pos[r] || (place.window && position <= own_pos[r] - place.window)) score[i] = -INFINITY;
      }
      tile_max[r] = fmaxf(tile_max[r], score[i]);
    }
    uint32_t probability[4][4];  // of 16 keys each, as operand A
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      tile_max[r] = fmaxf(tile_max[r], __shfl_xor_sync(0xffffffffu, tile_max[r], 1));
      tile_max[r] = fmaxf(tile_max[r], __shfl_xor_sync(0xffffffffu, tile_max[r], 2));
      const float m = fmaxf(part_max[r], tile_max[r]), f = exponential(part_max[r] - m), factor = m == -INFINITY ? 1.f : f;
      part_max[r] = m;
#pragma unroll
      for (int i = 0; i < kSums; i += 4) part[i + r * 2] *= factor, part[i + r * 2 + 1] *= factor;
      float row_sum = 0;
#pragma unroll
      for (int n = 0; n < kKeyTile / 8; ++n) {
        const float s0 = score[n * 4 + r * 2], s1 = score[n * 4 + r * 2 + 1];
        const float e0 = exponential(s0, m), e1 = exponential(s1, m);
        row_sum += e0 + e1;
        const half2 h = __floats2half2_rn(e0, e1);
        probability[n / 2][n % 2 * 2 + r] = *reinterpret_cast<const uint32_t*>(&h);
      }
      row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 1);
      row_sum += __shfl_xor_sync(0xffffffffu, row_sum, 2);
      part_sum[r] = fmaf(part_sum[r], factor, row_sum);
    }
    hold(part);
    wgmma_fence();
#pragma unroll
    for (int s = 0; s < kKeyTile / 16; ++s) wgmma_f16<true>(part, probability[s], values + static_cast<uint64_t>(s * (16 * 128 >> 4)), 1);
    wgmma_commit();
    wgmma_wait<0>();
    hold(part);
    ring_release(shared_address(&empty[stage]), lane, p.arriving_lanes);
    if (++stage == kPromptAttendStages) stage = 0, parity ^= 1;
    if ((tile + 1) * kKeyTile % kSplit == 0) close_split();
  }
  close_split();
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    if (own_pos[r] < 0) continue;
    const int token = own_row[r] / group, head = place.kv_head * group + own_row[r] % group, row = row_begin + token;
    const float inverse = 1.f / total_sum[r];
    if (head == p.heads - 1) clear_padding(p, row, p.heads * kDim, q, 4);
#pragma unroll
    for (int i = 0; i < kSums; i += 4)
      *reinterpret_cast<half2*>(p.out + p.layout.index(row, head * kDim + i * 2 + q * 2)) = __floats2half2_rn(total[i + r * 2] * inverse, total[i + r * 2 + 1] * inverse);
  }
#endif
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
