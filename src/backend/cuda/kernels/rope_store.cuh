// From the partial sums of the qkv product to what attention reads: slices added in order, bias, per-head norm of q and
// k, rotary embedding, q in FP16, and K and V stored to the step's slots.
#pragma once

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda {

/// grid: x = heads + 2 kv_heads, y = rows; one thread a pair of dimensions (dim / 2 threads, a multiple of 32).
/// A thread holds the two dimensions that turn together: (i, i + rope_dims / 2) or (2 i, 2 i + 1).
__global__ void rope_store(const __grid_constant__ RopeStoreParams p) {
  __shared__ float warp_sums[8];
  launch_dependents();
  const int head = blockIdx.x, row = blockIdx.y, pair = threadIdx.x, half_dims = p.rope_dims / 2;
  // Dimensions past rope_dims do not turn; they are held in pairs of neighbours.
  int d0, d1;
  if (pair >= half_dims) d0 = pair * 2, d1 = d0 + 1;
  else if (p.pairs_style) d0 = 2 * pair, d1 = d0 + 1;
  else d0 = pair, d1 = pair + half_dims;
  const bool is_q = head < p.heads, is_v = head >= p.heads + p.kv_heads, is_k = !is_q && head < p.heads + p.kv_heads;
  wait_for_previous();
  float v0 = 0, v1 = 0;
  const size_t column = static_cast<size_t>(head) * p.dim;
  __half* own = p.qkv ? p.qkv + static_cast<size_t>(row) * p.stride + column : nullptr;
  if (own) {
    v0 = __half2float(own[d0]), v1 = __half2float(own[d1]);
  } else {
    const float* from = p.partial + static_cast<size_t>(row) * p.stride + column;
    const int64_t stride = static_cast<int64_t>(p.rows) * p.stride;
    v0 = add_slices<float>(from + d0, stride, p.slices), v1 = add_slices<float>(from + d1, stride, p.slices);
  }
  if (p.bias) v0 += p.bias[column + d0], v1 += p.bias[column + d1];
  const float* norm = is_q ? p.q_norm : is_k ? p.k_norm : nullptr;
  if (norm) {
    // One warp tree, then the warps in order; pairs, not columns, are the leaves: fixed by dim and style alone.
    float squares = fmaf(v1, v1, v0 * v0);
#pragma unroll
    for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
    if (threadIdx.x % 32 == 0) warp_sums[threadIdx.x / 32] = squares;
    __syncthreads();
    float sum = 0;
    for (int w = 0; w < static_cast<int>(blockDim.x) / 32; ++w) sum += warp_sums[w];
    const float scale = rsqrtf(sum / p.dim + p.eps);
    v0 = v0 * scale * norm[d0];
    v1 = v1 * scale * norm[d1];
  }
  if ((is_q || is_k) && pair < half_dims) {
    // The angle in FP32, as the field's reference forms it; sincosf is accurate to 2 ulp for all arguments.
    float sine, cosine;
    sincosf(static_cast<float>(p.pos[row]) * p.inv_freq[pair], &sine, &cosine);
    sine *= p.rope_scale, cosine *= p.rope_scale;
    const float turned = v0 * cosine - v1 * sine;
    v1 = v1 * cosine + v0 * sine;
    v0 = turned;
  }
  if (own && !is_v) own[d0] = __float2half_rn(v0), own[d1] = __float2half_rn(v1);
  if (is_q) {
    if (own) return;
    __half* to = p.q + (static_cast<size_t>(row) * p.heads + head) * p.dim;
    to[d0] = __float2half_rn(v0);
    to[d1] = __float2half_rn(v1);
    return;
  }
  const int64_t slot = p.kv_slot[row];
  if (slot < 0) return;
  const int kv_head = is_k ? head - p.heads : head - p.heads - p.kv_heads;
  __half* page = reinterpret_cast<__half*>(p.pages + slot / p.page_tokens * p.page_bytes);
  __half* to = page + (((static_cast<size_t>(p.layer) * 2 + (is_k ? 0 : 1)) * p.kv_heads + kv_head) * p.page_tokens + slot % p.page_tokens) * p.dim;
  to[d0] = __float2half_rn(v0);
  to[d1] = __float2half_rn(v1);
}

}  // namespace quintet::cuda
