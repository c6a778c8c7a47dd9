// Products with NF4 weights.
#include "backend/cuda/formats/nf4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

using Layout = Nf4<QUINTET_CUDA_HOPPER ? 32 : 8>;  // blocks of sm_86 have less room

std::span<const ProductKernels> product_kernels_nf4() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Layout, FileNf4<Layout, false>>(WeightFormat::nf4),
      product_kernels_of<Layout, FileNf4<Layout, true>>(WeightFormat::nf4_dq),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
