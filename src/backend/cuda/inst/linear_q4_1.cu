// Products with q4_1 weights.
#include "backend/cuda/formats/int4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

const ProductKernels& product_kernels_q4_1() {
  static constexpr ProductKernels kKernels = product_kernels_of<Q4_1>(WeightFormat::q4_1);
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
