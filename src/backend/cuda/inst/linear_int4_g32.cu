// Products with four-bit weights, symmetric, groups of 32.
#include "backend/cuda/formats/int4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_int4_g32() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Int4<32, false>>(WeightFormat::q4_0),
      product_kernels_of<Int4<32, false>, FileInt3<32, false>>(WeightFormat::int3_g32),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
