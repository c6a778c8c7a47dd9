// Products with four-bit weights that have minima, groups of 128.
#include "backend/cuda/formats/int4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_int4_g128_asym() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Int4<128, true>>(WeightFormat::int4_g128_asym),
      product_kernels_of<Int4<128, true>, FileInt3<128, true>>(WeightFormat::int3_g128_asym),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
