// Products with four-bit weights that have minima, groups of 64.
#include "backend/cuda/formats/int4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_int4_g64_asym() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Int4<64, true>>(WeightFormat::int4_g64_asym),
      product_kernels_of<Int4<64, true>, FileInt3<64, true>>(WeightFormat::int3_g64_asym),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
