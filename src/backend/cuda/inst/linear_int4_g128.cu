// Products with four-bit weights, symmetric, groups of 128.
#include "backend/cuda/formats/int4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_int4_g128() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Int4<128, false>>(WeightFormat::int4_g128),
      product_kernels_of<Int4<128, false>, FileInt3<128, false>>(WeightFormat::int3_g128),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
