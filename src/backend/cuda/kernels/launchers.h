// The launchers of one set of kernels, for the translation units of that set (one an op or format under inst/); host code
// reaches them through the table in launch.h.
#pragma once

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/kernels/path.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

const ProductKernels& product_kernels_int4_g128();
const ProductKernels& product_kernels_q4_0();
const ProductKernels& product_kernels_q4_1();
const ProductKernels& product_kernels_q5_0();
const ProductKernels& product_kernels_q5_1();
const ProductKernels& product_kernels_q8_0();
const ProductKernels& product_kernels_q2_k();
const ProductKernels& product_kernels_q3_k();
const ProductKernels& product_kernels_q4_k();
const ProductKernels& product_kernels_q5_k();
const ProductKernels& product_kernels_q6_k();
const ProductKernels& product_kernels_iq4_nl();
const ProductKernels& product_kernels_iq4_xs();
const ProductKernels& product_kernels_f16();

cudaError_t launch_read(const void* from, size_t bytes, uint32_t* out, int blocks, const LaunchSite&);
cudaError_t launch_norm(const NormParams&, const LaunchSite&);
cudaError_t launch_pack_rows(const PackRowsParams&, const LaunchSite&);
cudaError_t launch_reduce(const ReduceParams&, const LaunchSite&);
cudaError_t launch_norm_plain(const NormPlainParams&, const LaunchSite&);
cudaError_t launch_elements(ElementOp, const ElementParams&, const LaunchSite&);
cudaError_t launch_gate(const GateParams&, const LaunchSite&);
cudaError_t launch_rope_store(const RopeStoreParams&, const LaunchSite&);
cudaError_t launch_attend(const AttendParams&, int dim, int most_rows, int seqs, int rows, const LaunchSite&);
cudaError_t launch_sample_rows(const SampleRowsParams&, const LaunchSite&);

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
