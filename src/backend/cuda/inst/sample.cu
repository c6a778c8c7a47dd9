// Sampling.
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/sample.cuh"

namespace quintet::cuda {

cudaError_t launch_sample(const DeviceSampleParams& p, const LaunchSite& site) {
  return launch_kernel<DeviceSampleParams>(sample_rows, p, {.grid = dim3(static_cast<unsigned>(p.rows)), .block = dim3(1024)}, site);
}

}  // namespace quintet::cuda
