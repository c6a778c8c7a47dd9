// How the inputs of one row lie in shared memory: plain, or as operand B of mma.m16n8k16 (activation.h).
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace quintet::cuda {

/// Of input k, in halves. Operand B is [k / 32][4 lanes][4 words], a lane's words each a pair of inputs of 8.
template <bool kPlain>
__device__ __forceinline__ int input_place(int k) {
  return kPlain ? k : (k / 32 * 4 + k % 8 / 2) * 8 + k % 32 / 8 * 2 + k % 2;
}

/// Inputs k to k + 7 into `row`; k is a multiple of 8.
template <bool kPlain>
__device__ __forceinline__ void store_inputs(uint8_t* row, int k, const uint4& v) {
  if constexpr (kPlain) {
    *reinterpret_cast<uint4*>(row + k * 2) = v;
  } else {
    uint32_t* to = reinterpret_cast<uint32_t*>(row) + input_place<false>(k) / 2;
    to[0] = v.x, to[4] = v.y, to[8] = v.z, to[12] = v.w;  // a pair a lane
  }
}

/// What generic stores have left of a row is there for wgmma, once a barrier follows.
__device__ __forceinline__ void fence_row() {
#if QUINTET_CUDA_HOPPER
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

}  // namespace quintet::cuda
