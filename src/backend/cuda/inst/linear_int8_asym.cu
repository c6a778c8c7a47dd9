// Products with eight-bit integers that have minima.
#include "backend/cuda/formats/q8.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_int8_asym() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Int8<true>, FileInt8<32, true>>(WeightFormat::int8_g32_asym),
      product_kernels_of<Int8<true>, FileInt8<64, true>>(WeightFormat::int8_g64_asym),
      product_kernels_of<Int8<true>, FileInt8<128, true>>(WeightFormat::int8_g128_asym),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
