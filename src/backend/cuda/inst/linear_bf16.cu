// Products with BF16 weights.
#include "backend/cuda/formats/f16.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_bf16() {
  static constexpr ProductKernels kKernels[] = {product_kernels_of<Bf16>(WeightFormat::bf16)};
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
