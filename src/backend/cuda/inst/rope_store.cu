// Rotary embedding and the store to the cache.
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/rope_store.cuh"

namespace quintet::cuda {

cudaError_t launch_rope_store(const RopeStoreParams& p, const LaunchSite& site) {
  if (p.dim % 64 || p.dim > 512) return cudaErrorInvalidValue;  // whole warps of pairs
  return launch_kernel<RopeStoreParams>(rope_store, p,
                                        {.grid = dim3(static_cast<unsigned>(p.heads + 2 * p.kv_heads), static_cast<unsigned>(p.rows)),
                                         .block = dim3(static_cast<unsigned>(p.dim / 2))}, site);
}

}  // namespace quintet::cuda
