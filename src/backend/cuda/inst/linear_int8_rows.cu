// Products with eight-bit integers under scales of rows.
#include "backend/cuda/formats/q8.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_int8_rows() {
  static constexpr ProductKernels kKernels[] = {product_kernels_of<RowScaled<false>>(WeightFormat::int8)};
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
