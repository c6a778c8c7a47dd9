// Attention of few rows over long contexts: a warp takes whole splits, so that nobody waits for anybody, and keeps a ring of keys and
// values of its own full across them. Partial results, merged by attend_merge.
//
// The numbers are those of attend.cuh: a split is one online softmax over tiles of 64 absolute positions in ascending order.
#pragma once

#include "backend/cuda/kernels/attend.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// Warps of a block, one a scheduler of the multiprocessor where shared memory allows; stages of a warp's ring, each the keys or the
/// values of a tile.
inline constexpr int kSplitWarps = QUINTET_CUDA_HOPPER ? 4 : 2, kSplitStages = 3;
template <int kDim>
__host__ __device__ constexpr int split_stage_bytes() { return kKeyTile * kDim * 2; }
template <int kDim>
constexpr int splits_shared_bytes() { return kSplitWarps * kSplitStages * split_stage_bytes<kDim>(); }

/// What a warp attends for next: splits in turn, `step` apart.
struct SplitPlace {
  int seq, kv_head, split;
  int row_begin, rows;      ///< rows: (token, query head of the group)
  int key_begin, key_end;   ///< keys that some row sees
  int tile_begin, tile_end;

  /// The first split at or behind `item` that has keys; false: none is left.
  __device__ __forceinline__ bool find(const AttendParams& p, int& item, int step, int items) {
    for (; item < items; item += step) {
      split = item % p.splits, kv_head = item / p.splits % p.kv_heads, seq = item / p.splits / p.kv_heads;
      row_begin = p.row_begin[seq];
      const int tokens = p.row_begin[seq + 1] - row_begin;
      if (tokens == 0) continue;
      rows = tokens * (p.heads / p.kv_heads);
      key_end = min(p.pos[row_begin + tokens - 1] + 1, p.context[seq]);
      key_begin = p.window ? max(0, p.pos[row_begin] - p.window + 1) : 0;
      tile_begin = max(split * kSplit, key_begin / kKeyTile * kKeyTile) / kKeyTile;
      tile_end = (min((split + 1) * kSplit, key_end) + kKeyTile - 1) / kKeyTile;
      if (tile_begin < tile_end) return true;
    }
    return false;
  }
};

/// Asks for keys and values of one warp's splits, half a tile at a time.
template <int kDim>
class SplitCopier {
 public:
  __device__ SplitCopier(const AttendParams& p, uint8_t* ring, int item, int step, int items, int lane)
      : p_(p), page_of_(p.page_tokens), to_(shared_address(ring)), item_(item), step_(step), items_(items), lane_(lane) {
    open();
  }
  /// The next half; a group, empty or not.
  __device__ __forceinline__ void ask() {
    if (more_) {
      constexpr int kChunks = kDim / 8, kKeyStep = 32 / kChunks;
      const int64_t head_bytes = static_cast<int64_t>(p_.page_tokens) * kDim * 2;
      const int chunk = lane_ % kChunks, first_key = lane_ / kChunks;
      const uint8_t* pages = p_.pages + ((static_cast<int64_t>(p_.layer) * 2 + values_) * p_.kv_heads + place_.kv_head) * head_bytes + chunk * 16;
      const uint32_t to = to_ + stage_ * split_stage_bytes<kDim>();
#pragma unroll 8
      for (int i = 0; i < kKeyTile / kKeyStep; ++i) {
        const int key = first_key + i * kKeyStep, position = tile_ * kKeyTile + key;
        const uint32_t page = __shfl_sync(0xffffffffu, key < 32 ? page_[0] : page_[1], key % 32);
        const bool valid = position >= place_.key_begin && position < place_.key_end;
        const uint8_t* from = pages + page * p_.page_bytes + page_of_.within(position) * (kDim * 2);
        copy_async_16_or_zero(to + (key * kChunks + (chunk ^ (key % 8))) * 16, valid ? from : p_.pages, valid);
      }
      if (++stage_ == kSplitStages) stage_ = 0;
      if (values_) {
        if (++tile_ < place_.tile_end) look_up();
        else item_ += step_, open();
      }
      values_ ^= 1;
    }
    copy_async_commit();
  }

 private:
  __device__ __forceinline__ void open() {
    more_ = place_.find(p_, item_, step_, items_);
    if (!more_) return;
    tile_ = place_.tile_begin;
    look_up();
  }
  /// Lane l has the pages of keys l and l + 32 of the tile.
  __device__ __forceinline__ void look_up() {
    const BlockRef* refs = p_.block_refs + static_cast<size_t>(place_.seq) * p_.max_blocks;
#pragma unroll
    for (int i = 0; i < 2; ++i) page_[i] = refs[page_of_(min(max(tile_ * kKeyTile + i * 32 + lane_, place_.key_begin), place_.key_end - 1))].page;
  }

  const AttendParams& p_;
  PageOf page_of_;
  uint32_t to_, page_[2];
  int item_, step_, items_, lane_, stage_ = 0, tile_ = 0, values_ = 0;
  bool more_ = false;
  SplitPlace place_;
};

/// grid: as many blocks as are resident, or as there are splits for; rows of a sequence: at most 16.
template <int kDim>
__global__ void __launch_bounds__(kSplitWarps * 32, 1) attend_splits(const __grid_constant__ AttendParams p) {
  extern __shared__ __align__(128) uint8_t memory[];
  launch_dependents();
  constexpr int kChunks = kDim / 8;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, group = p.heads / p.kv_heads;
  // Neighbours in time go to different multiprocessors, so that few splits are spread over all.
  const int step = gridDim.x * kSplitWarps, items = p.seqs * p.kv_heads * p.splits;
  int item = warp * gridDim.x + blockIdx.x, stage = 0;
  uint8_t* ring = memory + warp * kSplitStages * split_stage_bytes<kDim>();
  wait_for_previous();
  SplitCopier<kDim> copier(p, ring, item, step, items, lane);
  for (int i = 0; i < kSplitStages - 1; ++i) copier.ask();
  // The next half tile is there for all lanes, and all have read the one before it, which is asked for again.
  const auto next_half = [&] {
    copy_async_wait<kSplitStages - 2>();
    __syncwarp();
    copier.ask();
    const uint32_t at = shared_address(ring) + stage * split_stage_bytes<kDim>();
    if (++stage == kSplitStages) stage = 0;
    return at;
  };
  SplitPlace place;
  for (; place.find(p, item, step, items); item += step) {
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
    const int whole_end = p.pos[place.row_begin] + 1;  // keys that every row sees end here, where there is no window
    SoftmaxState<kDim> part;
    part.clear();
    for (int tile = place.tile_begin; tile < place.tile_end; ++tile) {
      const uint32_t keys = next_half();
      float score[kKeyTile / 8][4] = {};
#pragma unroll
      for (int n = 0; n < kKeyTile / 8; ++n)
#pragma unroll
        for (int s = 0; s < kDim / 16; s += 2) {
          const int key = n * 8 + lane % 8, at = s * 2 + lane / 8;
          uint32_t b0, b1, b2, b3;
          load_matrix_x4(keys + (key * kChunks + (at ^ (key % 8))) * 16, b0, b1, b2, b3);
          mma_f16(score[n], query[s], b0, b1);
          mma_f16(score[n], query[s + 1], b2, b3);
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
      const uint32_t values = next_half();
#pragma unroll
      for (int s = 0; s < kKeyTile / 16; ++s) {
        const uint32_t a[4] = {probability[2 * s][0], probability[2 * s][1], probability[2 * s + 1][0], probability[2 * s + 1][1]};
#pragma unroll
        for (int n = 0; n < kDim / 8; n += 2) {
          const int key = s * 16 + lane % 16, at = n + lane / 16;
          uint32_t b0, b1, b2, b3;
          load_matrix_x4_transposed(values + (key * kChunks + (at ^ (key % 8))) * 16, b0, b1, b2, b3);
          mma_f16(part.acc[n], a, b0, b1);
          mma_f16(part.acc[n + 1], a, b2, b3);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (own_pos[r] < 0) continue;
      const int token = own_row[r] / group, head = place.kv_head * group + own_row[r] % group, row = place.row_begin + token;
      float* to = p.partial + ((static_cast<size_t>(row) * p.heads + head) * p.splits + place.split) * (kDim + 2);
#pragma unroll
      for (int i = 0; i < kDim / 8; ++i) *reinterpret_cast<float2*>(to + i * 8 + q * 2) = make_float2(part.acc[i][r * 2], part.acc[i][r * 2 + 1]);
      if (q == 0) *reinterpret_cast<float2*>(to + kDim) = make_float2(part.maximum[r], part.sum[r]);
    }
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
