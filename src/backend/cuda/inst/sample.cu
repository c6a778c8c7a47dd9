// Sampling.
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/sample.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

cudaError_t launch_sample_rows(const SampleRowsParams& p, const LaunchSite& site) {
  return launch_kernel<SampleRowsParams>(sample_rows, p, {.grid = dim3(static_cast<unsigned>(p.step.rows)), .block = dim3(kSampleThreads)}, site);
}

cudaError_t launch_row_tokens(const RowTokensParams& p, const LaunchSite& site) {
  return launch_kernel<RowTokensParams>(row_tokens, p, {.grid = dim3(static_cast<unsigned>((p.rows + kSampleThreads - 1) / kSampleThreads)), .block = dim3(kSampleThreads)}, site);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
