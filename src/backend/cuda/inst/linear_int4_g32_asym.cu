// Products with four-bit weights that have minima, groups of 32.
#include "backend/cuda/formats/int4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_int4_g32_asym() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Int4<32, true>>(WeightFormat::q4_1),
      product_kernels_of<Int4<32, true>, FileInt3<32, true>>(WeightFormat::int3_g32_asym),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
