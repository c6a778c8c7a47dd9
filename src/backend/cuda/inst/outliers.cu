// Outliers, and inputs in another order.
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/outliers.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {
namespace {

template <int kRows>
cudaError_t launch_rows(const OutlierParams& p, const LaunchSite& site) {
  const auto tiles = static_cast<unsigned>((p.rows + kRows - 1) / kRows);
  const cudaError_t code = launch_kernel<OutlierParams>(
      input_columns<kRows>, p, {.grid = dim3(static_cast<unsigned>(p.layout.k_padded / kColumnInputs), tiles), .block = dim3(kOutlierThreads)}, site);
  if (code != cudaSuccess) return code;
  return launch_kernel<OutlierParams>(outliers_rows<kRows>, p, {.grid = dim3(static_cast<unsigned>(p.n / kOutlierOutputs), tiles), .block = dim3(OutlierTile<kRows>::kThreads)}, site);
}

}  // namespace

cudaError_t launch_outliers(const OutlierParams& p, const LaunchSite& site) {
  switch (p.layout.tiles) {
    case 0: return launch_kernel<OutlierParams>(outliers_row, p, {.grid = dim3(static_cast<unsigned>(p.n / kOutlierOutputs)), .block = dim3(kOutlierThreads)}, site);
    case 8: return launch_rows<8>(p, site);
    case 16: return launch_rows<16>(p, site);
    case 32: return launch_rows<32>(p, site);
    case 64: return launch_rows<64>(p, site);
    case kPromptRows: return launch_rows<kPromptRows>(p, site);
  }
  return cudaErrorInvalidValue;
}

cudaError_t launch_outliers_embed(const OutlierEmbedParams& p, const LaunchSite& site) {
  return launch_kernel<OutlierEmbedParams>(outliers_embed, p, {.grid = dim3(static_cast<unsigned>(p.rows)), .block = dim3(kOutlierThreads)}, site);
}

cudaError_t launch_permute(const PermuteParams& p, const LaunchSite& site) {
  constexpr int kInputs = 2 * kOutlierThreads;
  return launch_kernel<PermuteParams>(permute_inputs, p,
                                      {.grid = dim3(static_cast<unsigned>((p.layout.k_padded + kInputs - 1) / kInputs), static_cast<unsigned>(p.rows)),
                                       .block = dim3(kOutlierThreads)}, site);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
