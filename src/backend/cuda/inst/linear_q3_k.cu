// Products with q3_k weights.
#include "backend/cuda/formats/kquant.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_q3_k() {
  static constexpr ProductKernels kKernels[] = {product_kernels_of<Q3_K>(WeightFormat::q3_k)};
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
