// Rotary embedding and the store to the cache.
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/rope_store.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

cudaError_t launch_rope_store(const RopeStoreParams& p, const LaunchSite& site) {
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(p.heads + 2 * p.kv_heads), static_cast<unsigned>(p.rows)), .block = dim3(32)};
  switch (p.dim) {
    case 64: return launch_kernel<RopeStoreParams>(rope_store<64>, p, shape, site);
    case 96: return launch_kernel<RopeStoreParams>(rope_store<96>, p, shape, site);
    case 128: return launch_kernel<RopeStoreParams>(rope_store<128>, p, shape, site);
    case 256: return launch_kernel<RopeStoreParams>(rope_store<256>, p, shape, site);
  }
  return cudaErrorInvalidValue;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
