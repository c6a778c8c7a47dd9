// Products with NF4 weights.
#include "backend/cuda/formats/nf4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_nf4() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Nf4, FileNf4<false>>(WeightFormat::nf4),
      product_kernels_of<Nf4, FileNf4<true>>(WeightFormat::nf4_dq),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
