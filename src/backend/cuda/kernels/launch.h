// How host code reaches the kernels: a table of launchers a set of kernels (path.h), one translation unit an op or format
// under inst/. Nothing here needs nvcc.
#pragma once

#include <cuda_runtime_api.h>

#include <span>
#include <vector>

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/sample_params.h"
#include "quant/format.h"

namespace quintet::cuda {

/// What one launch takes of a multiprocessor, as the driver says.
struct KernelUse {
  int threads = 0, registers = 0;            ///< of a block, of a thread
  size_t local_bytes = 0, shared_bytes = 0;  ///< of a thread (registers that did not fit), of a block
  int blocks = 0;                            ///< that a multiprocessor holds at once
};

/// Where and how a launch goes. The stream comes with every call; nothing is global.
struct LaunchSite {
  cudaStream_t stream = nullptr;
  int multiprocessors = 0;
  int shared_bytes = 0, multiprocessor_shared_bytes = 0;  ///< shared memory of a block at most, and of all blocks of a multiprocessor
  int arriving_lanes = 1;  ///< see ring_release (kernels/ring.cuh)
  bool dependent = true;  ///< on Hopper, programmatic dependent launch after the kernel before it
  std::vector<KernelUse>* uses = nullptr;  ///< where given, nothing is launched: what each launch would take is added
};

/// What one weight format can do on this device.
struct ProductKernels {
  WeightFormat format;
  int piece_k, piece_bytes;
  int static_bytes;  ///< shared memory that its kernels keep beside what they ask for
  float unit;  ///< see formats/format.cuh; 1 where weights are packed as they are
  int outlier_rows;  ///< rows up to which its partial products add what ProductParams::outliers do themselves
  bool chains_outliers;  ///< whether `chain` adds what a phase's outliers do
  /// Phases of one row in one launch (row_chain_sm90.cuh, row_chain_sm80.cuh); sets what depends on the format and the device.
  cudaError_t (*chain)(ChainParams&, const LaunchSite&);
  /// Rows in one chunk of `tiles` (kernels/activation.h); the epilogue decides what `out` is.
  cudaError_t (*product)(const ProductParams&, int tiles, Epilogue, const LaunchSite&);
  cudaError_t (*pack)(const PackParams&, const LaunchSite&);
  cudaError_t (*unpack)(const UnpackParams&, const LaunchSite&);
  cudaError_t (*expand)(const ExpandParams&, const LaunchSite&);
  cudaError_t (*embed)(const EmbedParams&, const LaunchSite&);
};

/// All launchers of one set of kernels.
struct Kernels {
  bool gates_prompts;  ///< whether the product of more than kMidRows rows takes Epilogue::gated
  int norm_columns;  ///< inputs at most that the product of one row can norm itself (RowNorm)
  /// Inputs at most of the product of one row, on a device with this much shared memory a block; `gated`: of gate and up.
  int (*row_inputs)(int shared_bytes, bool gated);
  std::span<const ProductKernels* const> products;  ///< a format each
  /// Reads `bytes` bytes; for measuring only.
  cudaError_t (*read)(const void* from, size_t bytes, uint32_t* out, int blocks, const LaunchSite&);
  cudaError_t (*norm)(const NormParams&, const LaunchSite&);
  cudaError_t (*pack_rows)(const PackRowsParams&, const LaunchSite&);
  cudaError_t (*reduce)(const ReduceParams&, const LaunchSite&);
  cudaError_t (*norm_plain)(const NormPlainParams&, const LaunchSite&);
  cudaError_t (*elements)(ElementOp, const ElementParams&, const LaunchSite&);
  cudaError_t (*gate)(const GateParams&, const LaunchSite&);
  cudaError_t (*rope_store)(const RopeStoreParams&, const LaunchSite&);
  /// `most_rows`: most (token, query head of a group) rows of any sequence; `dim` 64, 96, 128 or 256.
  cudaError_t (*attend)(const AttendParams&, int dim, int most_rows, int seqs, int rows, const LaunchSite&);
  /// Whether attend takes the only row of a step, over more than one split, by blocks of a split each, which can form q, K and V themselves.
  bool (*attends_alone)(int dim, int heads, int kv_heads, int splits, const LaunchSite&);
  /// What weights kept apart add to a product, or to rows of an embedding table; inputs in a weight's order.
  cudaError_t (*outliers)(const OutlierParams&, const LaunchSite&);
  cudaError_t (*outliers_embed)(const OutlierEmbedParams&, const LaunchSite&);
  cudaError_t (*permute)(const PermuteParams&, const LaunchSite&);
  cudaError_t (*row_tokens)(const RowTokensParams&, const LaunchSite&);
  cudaError_t (*sample_rows)(const SampleRowsParams&, const LaunchSite&);

  /// Null where the GPU does not take `format`.
  const ProductKernels* product(WeightFormat format) const {
    for (const ProductKernels* kernels : products)
      if (kernels->format == format) return kernels;
    return nullptr;
  }
};

namespace hopper {
const Kernels& kernels();
}
namespace sm80 {
const Kernels& kernels();
}

}  // namespace quintet::cuda
