// Products with q4_0 weights.
#include "backend/cuda/formats/int4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

const ProductKernels& product_kernels_q4_0() {
  static constexpr ProductKernels kKernels = product_kernels_of<Q4_0>(WeightFormat::q4_0);
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
