// Products with weights that are unfolded to bytes, groups of 16.
#include "backend/cuda/formats/unfolded.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_unfolded_g16() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Unfolded<1, false>, UnfoldedFile<FileIq2Xs>>(WeightFormat::iq2_xs),
      product_kernels_of<Unfolded<1, false>, UnfoldedFile<FileIq2S>>(WeightFormat::iq2_s),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
