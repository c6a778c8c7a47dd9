// Products with iq4_nl weights.
#include "backend/cuda/formats/unfolded.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

const ProductKernels& product_kernels_iq4_nl() {
  static constexpr ProductKernels kKernels = product_kernels_of<Iq4Nl>(WeightFormat::iq4_nl);
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
