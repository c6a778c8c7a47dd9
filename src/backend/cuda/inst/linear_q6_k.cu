// Products with q6_k weights.
#include "backend/cuda/formats/kquant.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_q6_k() {
  static constexpr ProductKernels kKernels[] = {product_kernels_of<Q6_K>(WeightFormat::q6_k)};
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
