// Products with q5_0 weights.
#include "backend/cuda/formats/unfolded.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

const ProductKernels& product_kernels_q5_0() {
  static constexpr ProductKernels kKernels = product_kernels_of<Q5_0>(WeightFormat::q5_0);
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
