// Gate and up from partial sums.
#include "backend/cuda/kernels/gate.cuh"
#include "backend/cuda/kernels/launch_kernel.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

cudaError_t launch_gate(const GateParams& p, const LaunchSite& site) {
  return launch_kernel<GateParams>(gate_rows, p,
                                   {.grid = dim3(static_cast<unsigned>((p.layout.k_padded + 255) / 256), static_cast<unsigned>(p.rows)), .block = dim3(128)}, site);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
