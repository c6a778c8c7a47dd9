// The table of this set's kernels.
#include "backend/cuda/kernels/launchers.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// The Hopper kernel keeps at least half of its memory for the ring; that of the sm80 set, two stages of each of a group's warps.
static int row_inputs(int shared_bytes, bool gated) {
  constexpr int kMostStageBytes = 2560;
  return QUINTET_CUDA_HOPPER ? kRowInputs : (shared_bytes - kRowStaticBytes - 2 * (gated ? 2 : 1) * kSlices * kMostStageBytes) / static_cast<int>(sizeof(__half));
}

const Kernels& kernels() {
  static const ProductKernels* const kProducts[] = {
      &product_kernels_int4_g128(), &product_kernels_q4_0(), &product_kernels_q4_1(), &product_kernels_q5_0(), &product_kernels_q5_1(),
      &product_kernels_q8_0(), &product_kernels_q2_k(), &product_kernels_q3_k(), &product_kernels_q4_k(), &product_kernels_q5_k(),
      &product_kernels_q6_k(), &product_kernels_iq4_nl(), &product_kernels_iq4_xs(), &product_kernels_f16()};
  static const Kernels kKernels = {.gates_prompts = QUINTET_CUDA_HOPPER, .norm_columns = QUINTET_CUDA_HOPPER ? kRowNormColumns : kRowNormColumns80, .row_inputs = row_inputs, .products = kProducts, .read = launch_read, .norm = launch_norm, .pack_rows = launch_pack_rows,
                                   .reduce = launch_reduce, .norm_plain = launch_norm_plain, .elements = launch_elements, .gate = launch_gate,
                                   .rope_store = launch_rope_store, .attend = launch_attend, .sample_rows = launch_sample_rows};
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
