// Products with q5_1 weights.
#include "backend/cuda/formats/unfolded.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

const ProductKernels& product_kernels_q5_1() {
  static constexpr ProductKernels kKernels = product_kernels_of<Q5_1>(WeightFormat::q5_1);
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
