// Products with iq4_xs weights.
#include "backend/cuda/formats/unfolded.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

const ProductKernels& product_kernels_iq4_xs() {
  static constexpr ProductKernels kKernels = product_kernels_of<Iq4Xs>(WeightFormat::iq4_xs);
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
