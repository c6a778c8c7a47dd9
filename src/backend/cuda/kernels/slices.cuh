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
__device__ __forceinline__ uint32_t load_l2(const uint32_t* from) {
  uint32_t v;
  asm volatile("ld.global.cg.u32 %0,[%1];" : "=r"(v) : "l"(from));
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
__device__ __forceinline__ uint2 load_l2(const uint2* from) {
  uint2 v;
  asm volatile("ld.global.cg.v2.u32 {%0,%1},[%2];" : "=r"(v.x), "=r"(v.y) : "l"(from));
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

/// kCount slices of T (float, float2 or float4): 1, kSlices, or kSlices + 1, what outliers add being last. What is wanted together is loaded
/// before the first of it is added up.
template <class T, int kCount>
struct Slices {
  T part[kCount];

  /// `stride`: floats from one to the next.
  __device__ __forceinline__ void load(const float* from, int64_t stride) {
#pragma unroll
    for (int s = 0; s < kCount; ++s) part[s] = load_l2(reinterpret_cast<const T*>(from + s * stride));
  }
  /// part[0] + part[1] + ...
  __device__ __forceinline__ T sum() const {
    T total = part[0];
#pragma unroll
    for (int s = 1; s < kCount; ++s) total = plus(total, part[s]);
    return total;
  }
};

/// body.operator()<count>() for a number of slices that is known at run time.
template <class Body>
__device__ __forceinline__ void with_slices(int slices, Body body) {
  if (slices == 1) body.template operator()<1>();
  else if (slices == kSlices) body.template operator()<kSlices>();
  else body.template operator()<kSlices + 1>();
}
template <class T>
__device__ __forceinline__ T add_slices(const float* from, int64_t stride, int slices) {
  T total;
  with_slices(slices, [&]<int kCount>() {
    Slices<T, kCount> parts;
    parts.load(from, stride);
    total = parts.sum();
  });
  return total;
}

/// Eight floats that lie together.
__device__ __forceinline__ void load_8(const float* from, float (&to)[8]) {
  const float4 a = load_l2(reinterpret_cast<const float4*>(from)), b = load_l2(reinterpret_cast<const float4*>(from) + 1);
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}

}  // namespace quintet::cuda
