// The table of this set's kernels.
#include <vector>

#include "backend/cuda/kernels/launchers.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// The Hopper kernel keeps at least half of its memory for the ring; that of the sm80 set, two stages of each of a group's warps.
static int row_inputs(int shared_bytes, bool gated) {
  constexpr int kMostStageBytes = 2560;
  return QUINTET_CUDA_HOPPER ? kRowInputs : (shared_bytes - kRowStaticBytes - 2 * (gated ? 2 : 1) * kSlices * kMostStageBytes) / static_cast<int>(sizeof(__half));
}

static std::vector<const ProductKernels*> all_products() {
  std::vector<const ProductKernels*> all;
  for (const auto products : {
        product_kernels_int4_g32, product_kernels_int4_g32_asym, product_kernels_int4_g64,
        product_kernels_int4_g64_asym, product_kernels_int4_g128, product_kernels_int4_g128_asym, product_kernels_int8,
        product_kernels_int8_asym, product_kernels_int8_rows, product_kernels_fp8, product_kernels_nf4,
        product_kernels_f16, product_kernels_bf16, product_kernels_q2_k, product_kernels_q3_k, product_kernels_q4_k,
        product_kernels_q5_k, product_kernels_q6_k, product_kernels_unfolded, product_kernels_unfolded_min,
        product_kernels_unfolded_g16})
    for (const ProductKernels& one : products()) all.push_back(&one);
  return all;
}

const Kernels& kernels() {
  static const std::vector<const ProductKernels*> kProducts = all_products();
  static const Kernels kKernels = {
      .gates_prompts = QUINTET_CUDA_HOPPER, .norm_columns = kRowNormColumns, .row_inputs = row_inputs, .products = kProducts, .read = launch_read,
      .norm = launch_norm, .pack_rows = launch_pack_rows, .reduce = launch_reduce, .norm_plain = launch_norm_plain, .elements = launch_elements,
      .gate = launch_gate, .rope_store = launch_rope_store, .attend = launch_attend, .attends_alone = attends_alone, .outliers = launch_outliers,
      .outliers_embed = launch_outliers_embed, .permute = launch_permute, .row_tokens = launch_row_tokens, .sample_rows = launch_sample_rows};
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
