// Partial sums of a product, added in slice order. The loads of all slices are issued before the first addition: one
// latency instead of four.
#pragma once

#include "backend/cuda/kernels/params.h"

namespace quintet::cuda {

__device__ __forceinline__ float plus(float a, float b) { return a + b; }
__device__ __forceinline__ float2 plus(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ __forceinline__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

/// from[0] + from[stride] + ... of `slices` slices (1 or kSlices); T is float, float2 or float4, `stride` in floats.
template <class T>
__device__ __forceinline__ T add_slices(const float* from, int64_t stride, int slices) {
  T part[kSlices];
  part[0] = *reinterpret_cast<const T*>(from);
  if (slices == 1) return part[0];
#pragma unroll
  for (int s = 1; s < kSlices; ++s) part[s] = *reinterpret_cast<const T*>(from + s * stride);
#pragma unroll
  for (int s = 1; s < kSlices; ++s) part[0] = plus(part[0], part[s]);
  return part[0];
}

/// Eight floats that lie together.
__device__ __forceinline__ void load_8(const float* from, float (&to)[8]) {
  const float4 a = reinterpret_cast<const float4*>(from)[0], b = reinterpret_cast<const float4*>(from)[1];
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

}  // namespace quintet::cuda
