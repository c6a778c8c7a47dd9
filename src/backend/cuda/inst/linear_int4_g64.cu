// Products with four-bit weights, symmetric, groups of 64.
#include "backend/cuda/formats/int4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_int4_g64() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Int4<64, false>>(WeightFormat::int4_g64),
      product_kernels_of<Int4<64, false>, FileInt3<64, false>>(WeightFormat::int3_g64),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
