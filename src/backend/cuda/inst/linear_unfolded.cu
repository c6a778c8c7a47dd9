// Products with weights that are unfolded to bytes, groups of 32.
#include "backend/cuda/formats/unfolded.cuh"
#include "backend/cuda/kernels/linear_launch.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

std::span<const ProductKernels> product_kernels_unfolded() {
  static constexpr ProductKernels kKernels[] = {
      product_kernels_of<Unfolded<2, false>, UnfoldedFile<FileQ5_0>>(WeightFormat::q5_0),
      product_kernels_of<Unfolded<2, false>, UnfoldedFile<FileIq4Nl>>(WeightFormat::iq4_nl),
      product_kernels_of<Unfolded<2, false>, UnfoldedFile<FileIq4Xs>>(WeightFormat::iq4_xs),
      product_kernels_of<Unfolded<2, false>, UnfoldedFile<FileIq2Xxs>>(WeightFormat::iq2_xxs),
      product_kernels_of<Unfolded<2, false>, UnfoldedFile<FileIq3Xxs>>(WeightFormat::iq3_xxs),
      product_kernels_of<Unfolded<2, false>, UnfoldedFile<FileIq3S>>(WeightFormat::iq3_s),
  };
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
