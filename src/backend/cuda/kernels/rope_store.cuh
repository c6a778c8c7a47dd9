// From the partial sums of the qkv product to what attention reads: slices added in order, bias, per-head norm of q and
// k, rotary embedding, q in FP16, and K and V stored to the step's slots.
#pragma once

#include "backend/cuda/kernels/inverse_rms.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// Pairs of a head that a lane holds at most.
__host__ __device__ constexpr int head_pairs(int dim) { return (dim + 63) / 64; }

/// Cosine and sine of a lane's pairs at one position: the same for every head.
template <int kPairs>
struct Turns {
  float2 turn[kPairs];

  __device__ __forceinline__ void make(const RopeStoreParams& p, int pos, int lane) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      turn[i] = make_float2(1, 0);
      if (i * 32 + lane >= p.rope_dims / 2) continue;
      // The angle in FP32, as the field's reference forms it; sincosf is accurate to 2 ulp for all arguments.
      sincosf(static_cast<float>(pos) * p.inv_freq[i * 32 + lane], &turn[i].y, &turn[i].x);
      turn[i].x *= p.rope_scale, turn[i].y *= p.rope_scale;
    }
  }
};

/// One head's values of one row, held by a warp: lane l has the pairs l, l + 32, ... of dimensions that turn together,
/// (i, i + rope_dims / 2) or (2 i, 2 i + 1); dimensions past rope_dims do not turn and are held in pairs of neighbours.
template <int kDim>
struct HeadValues {
  static constexpr int kPairs = head_pairs(kDim);
  float2 v[kPairs];

  /// Whether a lane's pair i exists.
  __device__ static __forceinline__ bool exists(int i, int lane) { return kDim % 64 == 0 || i * 32 + lane < kDim / 2; }
  __device__ static int2 dims(const RopeStoreParams& p, int pair) {
    if (pair >= p.rope_dims / 2 || p.pairs_style) return make_int2(pair * 2, pair * 2 + 1);
    return make_int2(pair, pair + p.rope_dims / 2);
  }

  /// Heads are numbered through q, k and v.
  __device__ __forceinline__ void load(const RopeStoreParams& p, int row, int head, int lane) {
    const size_t column = static_cast<size_t>(head) * kDim, own = static_cast<size_t>(row) * p.stride + column;
    const auto each = [&](auto&& body) {
#pragma unroll
      for (int i = 0; i < kPairs; ++i)
        if (exists(i, lane)) body(i, dims(p, i * 32 + lane));
    };
#pragma unroll
    for (int i = 0; i < kPairs; ++i) v[i] = make_float2(0, 0);
    if (p.qkv) {
      each([&](int i, int2 d) { v[i] = make_float2(__half2float(p.qkv[own + d.x]), __half2float(p.qkv[own + d.y])); });
    } else {
      with_slices(p.slices, [&]<int kCount>() {
        Slices<float, kCount> parts[kPairs][2];
        const int64_t stride = static_cast<int64_t>(p.rows) * p.stride;
        each([&](int i, int2 d) { parts[i][0].load(p.partial + own + d.x, stride), parts[i][1].load(p.partial + own + d.y, stride); });
        each([&](int i, int2) { v[i] = make_float2(parts[i][0].sum(), parts[i][1].sum()); });
      });
    }
    if (p.bias) each([&](int i, int2 d) { v[i].x += p.bias[column + d.x], v[i].y += p.bias[column + d.y]; });
  }

  /// The head's norm, if `norm` is given, and the rotation, if `turns` is given.
  __device__ __forceinline__ void finish(const RopeStoreParams& p, const float* norm, const Turns<kPairs>* turns, int lane) {
    if (norm) {
      // A warp tree over each 32 pairs, then those in order; pairs, not columns, are the leaves: fixed by dim and style alone.
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        float squares = fmaf(v[i].y, v[i].y, v[i].x * v[i].x);
#pragma unroll
        for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
        sum += squares;
      }
      const float scale = inverse_rms(sum, kDim, p.eps);
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        if (!exists(i, lane)) continue;
        const int2 d = dims(p, i * 32 + lane);
        v[i].x = v[i].x * scale * norm[d.x];
        v[i].y = v[i].y * scale * norm[d.y];
      }
    }
    if (!turns) return;
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (i * 32 + lane >= p.rope_dims / 2) continue;
      const float cosine = turns->turn[i].x, sine = turns->turn[i].y;
      const float2 from = v[i];
      v[i].x = from.x * cosine - from.y * sine;
      v[i].y = from.y * cosine + from.x * sine;
    }
  }

  /// `place(column)`: where a column's number goes.
  template <class Place>
  __device__ __forceinline__ void store_at(const RopeStoreParams& p, int lane, Place place) const {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      if (!exists(i, lane)) continue;
      const int2 d = dims(p, i * 32 + lane);
      *place(d.x) = __float2half_rn(v[i].x);
      *place(d.y) = __float2half_rn(v[i].y);
    }
  }
  __device__ __forceinline__ void store(const RopeStoreParams& p, __half* to, int lane) const {
    store_at(p, lane, [&](int column) { return to + column; });
  }
};

/// Where K (which = 0) or V (1) of a slot lies.
__device__ __forceinline__ __half* cache_row(const RopeStoreParams& p, int64_t slot, int which, int kv_head) {
  __half* page = reinterpret_cast<__half*>(p.pages + slot / p.page_tokens * p.page_bytes);
  return page + (((static_cast<size_t>(p.layer) * 2 + which) * p.kv_heads + kv_head) * p.page_tokens + slot % p.page_tokens) * p.dim;
}

inline constexpr int kRopeWarps = 8;

/// grid: x = blocks of kRopeWarps warps that share a row's heads + 2 kv_heads, y = rows.
template <int kDim>
__global__ void __launch_bounds__(kRopeWarps * 32) rope_store(const __grid_constant__ RopeStoreParams p) {
  launch_dependents();
  const int row = blockIdx.y, lane = threadIdx.x % 32, heads = p.heads + 2 * p.kv_heads;
  Turns<head_pairs(kDim)> turns;  // of all heads
  turns.make(p, p.pos[row], lane);
  const int64_t slot = p.kv_slot[row];
  wait_for_previous();
  for (int head = blockIdx.x * kRopeWarps + threadIdx.x / 32; head < heads; head += gridDim.x * kRopeWarps) {
    const bool is_q = head < p.heads, is_v = head >= p.heads + p.kv_heads;
    HeadValues<kDim> values;
    values.load(p, row, head, lane);
    values.finish(p, is_q ? p.q_norm : is_v ? nullptr : p.k_norm, is_v ? nullptr : &turns, lane);
    if (p.qkv && !is_v) values.store(p, p.qkv + static_cast<size_t>(row) * p.stride + head * p.dim, lane);
    if (is_q && !p.qkv) values.store(p, p.q + (static_cast<size_t>(row) * p.heads + head) * p.dim, lane);
    if (!is_q && slot >= 0) values.store(p, cache_row(p, slot, is_v, is_v ? head - p.heads - p.kv_heads : head - p.heads), lane);
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
