// Partial sums of a product, added in slice order. The loads of all slices are issued before the first addition: one
// latency instead of four. They go to L2: the same kernel may have written the numbers, on another multiprocessor.
#pragma once

#include "backend/cuda/kernels/params.h"

namespace quintet::cuda {

/// From L2, in program order with waits and barriers: the intrinsic __ldcg may move before them.
__device__ __forceinline__ float load_l2(const float* from) {
  float v;
  asm volatile("ld.global.cg.f32 %0,[%1];" : "=f"(v) : "l"(from));
  return v;
}
__device__ __forceinline__ float2 load_l2(const float2* from) {
  float2 v;
  asm volatile("ld.global.cg.v2.f32 {%0,%1},[%2];" : "=f"(v.x), "=f"(v.y) : "l"(from));
  return v;
}
__device__ __forceinline__ float4 load_l2(const float4* from) {
  float4 v;
  asm volatile("ld.global.cg.v4.f32 {%0,%1,%2,%3},[%4];" : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(from));
  return v;
}
__device__ __forceinline__ uint4 load_l2(const uint4* from) {
  uint4 v;
  asm volatile("ld.global.cg.v4.u32 {%0,%1,%2,%3},[%4];" : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w) : "l"(from));
  return v;
}

__device__ __forceinline__ float plus(float a, float b) { return a + b; }
__device__ __forceinline__ float2 plus(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ __forceinline__ float4 plus(float4 a, float4 b) { return make_float4(a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w); }

/// from[0] + from[stride] + ... of `slices` slices (1, kSlices, or kSlices + 1: what outliers add comes last); T is float, float2 or
/// float4, `stride` in floats.
template <class T>
__device__ __forceinline__ T add_slices(const float* from, int64_t stride, int slices) {
  T part[kSlices];
  part[0] = load_l2(reinterpret_cast<const T*>(from));
  if (slices == 1) return part[0];
#pragma unroll
  for (int s = 1; s < kSlices; ++s) part[s] = load_l2(reinterpret_cast<const T*>(from + s * stride));
  T last = {};
  if (slices > kSlices) last = load_l2(reinterpret_cast<const T*>(from + kSlices * stride));
#pragma unroll
  for (int s = 1; s < kSlices; ++s) part[0] = plus(part[0], part[s]);
  return slices > kSlices ? plus(part[0], last) : part[0];
}

/// Eight floats that lie together.
__device__ __forceinline__ void load_8(const float* from, float (&to)[8]) {
  const float4 a = load_l2(reinterpret_cast<const float4*>(from)), b = load_l2(reinterpret_cast<const float4*>(from) + 1);
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

}  // namespace quintet::cuda
