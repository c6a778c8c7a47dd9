// Residual add and norm.
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/norm.cuh"
#include "backend/cuda/kernels/norm_many.cuh"

#include <algorithm>

namespace quintet::cuda::QUINTET_CUDA_PATH {

cudaError_t launch_norm(const NormParams& p, const LaunchSite& site) {
  const int chunks = (p.hidden + kNormChunk - 1) / kNormChunk;
  if (chunks > kNormMaxChunks) return cudaErrorInvalidValue;
  // Members of a row: few rows spread over the device, many need no more than their loads in flight.
  constexpr int kEach = kNormMaxChunks / kNormCluster, kManyRows = 256;
  const bool many = QUINTET_CUDA_HOPPER && p.rows >= kManyRows;
#if QUINTET_CUDA_HOPPER
  if (many && norms_many(p)) {
    const int blocks = std::min(p.rows, site.multiprocessors * (kNormManyChunks / chunks));
    return launch_kernel<NormParams>(norm_many, p, {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(static_cast<unsigned>(chunks * kNormThreads))}, site);
  }
#endif
  const int cluster = many ? (chunks + kEach - 1) / kEach : std::min(chunks, kNormCluster);
  LaunchShape shape = {.grid = dim3(static_cast<unsigned>(cluster), static_cast<unsigned>(p.rows)), .block = dim3(kNormThreads), .cluster_x = cluster};
  if (!QUINTET_CUDA_HOPPER) shape = {.grid = dim3(1, static_cast<unsigned>(p.rows)), .block = dim3(static_cast<unsigned>(cluster * kNormThreads))};
  if (chunks <= cluster) return launch_kernel<NormParams>(norm_rows<1>, p, shape, site);
  return launch_kernel<NormParams>(norm_rows<kEach>, p, shape, site);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
