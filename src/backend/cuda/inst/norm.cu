// Residual add and norm.
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/norm.cuh"

#include <algorithm>

namespace quintet::cuda {

cudaError_t launch_norm(const NormParams& p, const LaunchSite& site) {
  const int chunks = (p.hidden + kNormChunk - 1) / kNormChunk;
  if (chunks > kNormMaxChunks) return cudaErrorInvalidValue;
  const int cluster = std::min(chunks, kNormCluster);
  const LaunchShape shape = {.grid = dim3(static_cast<unsigned>(cluster), static_cast<unsigned>(p.rows)), .block = dim3(kNormThreads), .cluster_x = cluster};
  if (chunks <= kNormCluster) return launch_kernel<NormParams>(norm_rows<1>, p, shape, site);
  return launch_kernel<NormParams>(norm_rows<kNormMaxChunks / kNormCluster>, p, shape, site);
}

}  // namespace quintet::cuda
