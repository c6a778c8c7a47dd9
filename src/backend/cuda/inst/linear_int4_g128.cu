// Products with int4_g128 weights.
#include "backend/cuda/formats/int4.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

const ProductKernels& product_kernels_int4_g128() {
  static constexpr ProductKernels kKernels = product_kernels_of<Int4G128>(WeightFormat::int4_g128);
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
