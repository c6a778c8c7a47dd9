// Rotary embedding and the store to the cache.
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/rope_store.cuh"
#include "backend/cuda/kernels/rope_store_many.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

cudaError_t launch_rope_store(const RopeStoreParams& p, const LaunchSite& site) {
  // Few rows: a warp a head. Many: a block a row, whose warps form sines and cosines once.
  constexpr int kManyRows = 128;
#if QUINTET_CUDA_HOPPER
  if (p.rows >= kManyRows && ropes_many(p)) {
    const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(p.rows)), .block = dim3(kRopeWarps * 32)};
    switch (p.dim) {
      case 64: return launch_kernel<RopeStoreParams>(rope_store_many<64>, p, shape, site);
      case 128: return launch_kernel<RopeStoreParams>(rope_store_many<128>, p, shape, site);
      case 256: return launch_kernel<RopeStoreParams>(rope_store_many<256>, p, shape, site);
    }
  }
#endif
  const int blocks = p.rows >= kManyRows ? 1 : (p.heads + 2 * p.kv_heads + kRopeWarps - 1) / kRopeWarps;
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(p.rows)), .block = dim3(kRopeWarps * 32)};
  switch (p.dim) {
    case 64: return launch_kernel<RopeStoreParams>(rope_store<64>, p, shape, site);
    case 96: return launch_kernel<RopeStoreParams>(rope_store<96>, p, shape, site);
    case 128: return launch_kernel<RopeStoreParams>(rope_store<128>, p, shape, site);
    case 256: return launch_kernel<RopeStoreParams>(rope_store<256>, p, shape, site);
  }
  return cudaErrorInvalidValue;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
