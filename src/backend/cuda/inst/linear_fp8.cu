// Products with E4M3 floats under scales of rows.
#include "backend/cuda/formats/q8.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_fp8() {
  static constexpr ProductKernels kKernels[] = {product_kernels_of<RowScaled<true>>(WeightFormat::fp8)};
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
