// rope_store (rope_store.cuh) of many rows with one partial sum each, where no head has a norm and halves of whole heads turn. The numbers are
// those of rope_store, bit for bit.
#pragma once

#include "backend/cuda/kernels/rope_store.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// Whether rope_store_many takes them.
constexpr bool ropes_many(const RopeStoreParams& p) {
  return p.partial && p.slices == 1 && !p.q_norm && !p.k_norm && !p.pairs_style && p.rope_dims == p.dim && p.dim % 64 == 0;
}

/// A lane has pairs that lie side by side, and a warp the loads of several heads under way.
/// grid: x = rows.
template <int kDim>
__global__ void __launch_bounds__(kRopeWarps * 32) rope_store_many(const __grid_constant__ RopeStoreParams p) {
  constexpr int kPairs = kDim / 64, kBatch = 5;
  struct alignas(kPairs * 4) Floats { float v[kPairs]; };
  struct alignas(kPairs * 2) Halves { __half v[kPairs]; };
  launch_dependents();
  const int row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32, heads = p.heads + 2 * p.kv_heads;
  float2 turn[kPairs];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    sincosf(static_cast<float>(p.pos[row]) * p.inv_freq[lane * kPairs + i], &turn[i].y, &turn[i].x);
    turn[i].x *= p.rope_scale, turn[i].y *= p.rope_scale;
  }
  const int64_t slot = p.kv_slot[row];
  __half* const cached = slot < 0 ? nullptr : cache_row(p, slot, 0, 0);
  const int64_t head_halves = static_cast<int64_t>(p.page_tokens) * kDim;
  wait_for_previous();
  for (int first = warp; first < heads; first += kRopeWarps * kBatch) {
    Floats from[kBatch][2];  // of pairs: their first and their second numbers
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int head = min(first + b * kRopeWarps, heads - 1);
      const float* at = p.partial + static_cast<size_t>(row) * p.stride + head * kDim + lane * kPairs;
      from[b][0] = *reinterpret_cast<const Floats*>(at), from[b][1] = *reinterpret_cast<const Floats*>(at + kDim / 2);
    }
#pragma unroll
    for (int b = 0; b < kBatch; ++b) {
      const int head = first + b * kRopeWarps;
      if (head >= heads) break;
      const bool turns = head < p.heads + p.kv_heads;
      Halves to[2];
#pragma unroll
      for (int i = 0; i < kPairs; ++i) {
        float2 v = make_float2(from[b][0].v[i], from[b][1].v[i]);
        if (p.bias) {
          const float* bias = p.bias + head * kDim + lane * kPairs + i;
          v.x += bias[0], v.y += bias[kDim / 2];
        }
        if (turns) v = make_float2(v.x * turn[i].x - v.y * turn[i].y, v.y * turn[i].x + v.x * turn[i].y);
        to[0].v[i] = __float2half_rn(v.x), to[1].v[i] = __float2half_rn(v.y);
      }
      if (head >= p.heads && !cached) continue;
      __half* at = head < p.heads ? p.q + (static_cast<size_t>(row) * p.heads + head) * kDim : cached + (head - p.heads) * head_halves;
      *reinterpret_cast<Halves*>(at + lane * kPairs) = to[0];
      *reinterpret_cast<Halves*>(at + kDim / 2 + lane * kPairs) = to[1];
    }
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
