// Reads memory as fast as it goes.
#include <algorithm>

#include "backend/cuda/kernels/launch_kernel.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {
namespace {

constexpr int kThreads = 512, kUnroll = 8;

/// Each thread keeps eight 16-byte loads in flight. The sum reaches memory only for one value in 2^32, so that the loads
/// cannot be left out.
__global__ void __launch_bounds__(kThreads) read_all(const uint4* from, size_t count, uint32_t* out) {
  // All blocks move through memory side by side: a share of its own for each block reaches 9 % less.
  const size_t stride = static_cast<size_t>(gridDim.x) * kThreads;
  uint32_t sum = 0;
  size_t i = blockIdx.x * static_cast<size_t>(kThreads) + threadIdx.x;
  for (; i + (kUnroll - 1) * stride < count; i += kUnroll * stride) {
    uint4 v[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) v[u] = __ldcs(from + i + u * stride);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) sum ^= v[u].x ^ v[u].y ^ v[u].z ^ v[u].w;
  }
  for (; i < count; i += stride) sum ^= from[i].x;
  if (sum == 0x12345678u) *out = sum;
}

}  // namespace

cudaError_t launch_read(const void* from, size_t bytes, uint32_t* out, int blocks, const LaunchSite& site) {
  read_all<<<blocks, kThreads, 0, site.stream>>>(static_cast<const uint4*>(from), bytes / 16, out);
  return cudaGetLastError();
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
