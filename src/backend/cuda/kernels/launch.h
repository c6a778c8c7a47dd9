// How host code reaches the kernels: launchers (one translation unit an op or format under inst/) and the table of
// formats. Nothing here needs nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <span>

#include "backend/cuda/kernels/params.h"
#include "quant/format.h"

namespace quintet::cuda {

/// Where and how a launch goes. The stream comes with every call; nothing is global.
struct LaunchSite {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  bool dependent = true;  ///< programmatic dependent launch after the kernel before it
};

/// What one weight format can do on this device.
struct ProductKernels {
  WeightFormat format;
  int piece_k, piece_bytes;
  /// Rows in one chunk of `tiles` (kernels/activation.h); the epilogue decides what `out` is.
  cudaError_t (*product)(const ProductParams&, int tiles, Epilogue, const LaunchSite&);
  cudaError_t (*pack)(const PackParams&, const LaunchSite&);
  cudaError_t (*unpack)(const UnpackParams&, const LaunchSite&);
  cudaError_t (*embed)(const EmbedParams&, const LaunchSite&);
};

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

/// The formats that this backend takes; null where it does not take `format`.
const ProductKernels* product_kernels(WeightFormat format);

/// Reads `bytes` bytes; for measuring only.
cudaError_t launch_read(const void* from, size_t bytes, uint32_t* out, int blocks, const LaunchSite&);
cudaError_t launch_norm(const NormParams&, const LaunchSite&);
cudaError_t launch_pack_rows(const PackRowsParams&, const LaunchSite&);
cudaError_t launch_reduce(const ReduceParams&, const LaunchSite&);
cudaError_t launch_norm_plain(const NormPlainParams&, const LaunchSite&);
cudaError_t launch_elements(ElementOp, const ElementParams&, const LaunchSite&);
cudaError_t launch_gate(const GateParams&, const LaunchSite&);
cudaError_t launch_rope_store(const RopeStoreParams&, const LaunchSite&);
/// `most_rows`: most (token, query head of a group) rows of any sequence; `dim` 64, 128 or 256.
cudaError_t launch_attend(const AttendParams&, int dim, int most_rows, int seqs, int rows, const LaunchSite&);

}  // namespace quintet::cuda
