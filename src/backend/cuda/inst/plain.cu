// The fine operations.
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/plain.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {
namespace {

dim3 columns_by_rows(int columns, int rows) { return dim3(static_cast<unsigned>((columns + 255) / 256), static_cast<unsigned>(rows)); }

}  // namespace

cudaError_t launch_pack_rows(const PackRowsParams& p, const LaunchSite& site) {
  return launch_kernel<PackRowsParams>(pack_rows, p, {.grid = columns_by_rows(p.layout.k_padded, p.rows), .block = dim3(256)}, site);
}
cudaError_t launch_reduce(const ReduceParams& p, const LaunchSite& site) {
  return launch_kernel<ReduceParams>(reduce_rows, p, {.grid = columns_by_rows(p.columns, p.rows), .block = dim3(256)}, site);
}
cudaError_t launch_norm_plain(const NormPlainParams& p, const LaunchSite& site) {
  return launch_kernel<NormPlainParams>(norm_plain, p, {.grid = dim3(static_cast<unsigned>(p.rows)), .block = dim3(kNormThreads)}, site);
}
cudaError_t launch_elements(ElementOp op, const ElementParams& p, const LaunchSite& site) {
  const auto kernel = op == ElementOp::gate ? gate_plain : op == ElementOp::add ? add_plain : gather_plain;
  return launch_kernel<ElementParams>(kernel, p, {.grid = columns_by_rows(p.columns, p.rows), .block = dim3(256)}, site);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
