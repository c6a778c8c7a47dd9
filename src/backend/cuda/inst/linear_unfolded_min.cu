// Products with weights that are unfolded to bytes and have minima.
#include "backend/cuda/formats/unfolded.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_unfolded_min() {
  static constexpr ProductKernels kKernels[] = {product_kernels_of<Unfolded<2, true>, UnfoldedFile<FileQ5_1>>(WeightFormat::q5_1)};
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
