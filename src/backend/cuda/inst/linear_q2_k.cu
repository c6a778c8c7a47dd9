// Products with q2_k weights.
#include "backend/cuda/formats/kquant.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_q2_k() {
  static constexpr ProductKernels kKernels[] = {product_kernels_of<Q2_K>(WeightFormat::q2_k)};
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
