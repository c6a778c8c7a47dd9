// The launchers of one set of kernels, for the translation units of that set (one an op or format under inst/); host code
// reaches them through the table in launch.h.
#pragma once

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/path.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

// A layout each, with the file formats that are laid out so.
std::span<const ProductKernels> product_kernels_int4_g32();
std::span<const ProductKernels> product_kernels_int4_g32_asym();
std::span<const ProductKernels> product_kernels_int4_g64();
std::span<const ProductKernels> product_kernels_int4_g64_asym();
std::span<const ProductKernels> product_kernels_int4_g128();
std::span<const ProductKernels> product_kernels_int4_g128_asym();
std::span<const ProductKernels> product_kernels_int8();
std::span<const ProductKernels> product_kernels_int8_asym();
std::span<const ProductKernels> product_kernels_int8_rows();
std::span<const ProductKernels> product_kernels_fp8();
std::span<const ProductKernels> product_kernels_nf4();
std::span<const ProductKernels> product_kernels_f16();
std::span<const ProductKernels> product_kernels_bf16();
std::span<const ProductKernels> product_kernels_q2_k();
std::span<const ProductKernels> product_kernels_q3_k();
std::span<const ProductKernels> product_kernels_q4_k();
std::span<const ProductKernels> product_kernels_q5_k();
std::span<const ProductKernels> product_kernels_q6_k();
std::span<const ProductKernels> product_kernels_unfolded();
std::span<const ProductKernels> product_kernels_unfolded_min();
std::span<const ProductKernels> product_kernels_unfolded_g16();

cudaError_t launch_read(const void* from, size_t bytes, uint32_t* out, int blocks, const LaunchSite&);
cudaError_t launch_norm(const NormParams&, const LaunchSite&);
cudaError_t launch_pack_rows(const PackRowsParams&, const LaunchSite&);
cudaError_t launch_reduce(const ReduceParams&, const LaunchSite&);
cudaError_t launch_norm_plain(const NormPlainParams&, const LaunchSite&);
cudaError_t launch_elements(ElementOp, const ElementParams&, const LaunchSite&);
cudaError_t launch_gate(const GateParams&, const LaunchSite&);
cudaError_t launch_rope_store(const RopeStoreParams&, const LaunchSite&);
cudaError_t launch_attend(const AttendParams&, int dim, int most_rows, int seqs, int rows, const LaunchSite&);
bool attends_alone(int dim, int heads, int kv_heads, int splits, const LaunchSite&);
cudaError_t launch_outliers(const OutlierParams&, const LaunchSite&);
cudaError_t launch_outliers_embed(const OutlierEmbedParams&, const LaunchSite&);
cudaError_t launch_permute(const PermuteParams&, const LaunchSite&);
cudaError_t launch_row_tokens(const RowTokensParams&, const LaunchSite&);
cudaError_t launch_sample_rows(const SampleRowsParams&, const LaunchSite&);

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
