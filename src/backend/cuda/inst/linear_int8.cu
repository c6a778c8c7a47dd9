// Products with eight-bit integers, symmetric.
#include "backend/cuda/formats/q8.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_int8() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Int8<false>, FileInt8<32, false>>(WeightFormat::q8_0),
      product_kernels_of<Int8<false>, FileInt8<64, false>>(WeightFormat::int8_g64),
      product_kernels_of<Int8<false>, FileInt8<128, false>>(WeightFormat::int8_g128),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
