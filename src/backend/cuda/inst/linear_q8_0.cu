// Products with q8_0 weights.
#include "backend/cuda/formats/q8.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

const ProductKernels& product_kernels_q8_0() {
  static constexpr ProductKernels kKernels = product_kernels_of<Q8_0>(WeightFormat::q8_0);
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
