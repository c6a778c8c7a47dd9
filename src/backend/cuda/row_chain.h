// Operations on one row, gathered so that one launch does many (kernels/row_chain_sm90.cuh, row_chain_sm80.cuh).
#pragma once

#include "backend/cuda/kernels/launch.h"

namespace quintet::cuda {

/// Takes phases in their order; they run when flush() is called, or when a phase comes that does not fit the ones before.
class RowChain {
 public:
  /// Memory of the device: counters, zeroed, and ChainParams::shared_sums.
  void use(ChainProgress* progress, float* shared_sums) {
    params_.progress = progress;
    params_.shared_sums = shared_sums;
  }
  /// A product by the kernels of its format.
  cudaError_t add(const ProductKernels& kernels, const ChainPhase& phase, const LaunchSite& site);
  /// Attention of one fresh row over one split; false: not by this kernel. `code`: of a launch that had to come first.
  bool add(const AttendParams& params, int dim, const LaunchSite& site, cudaError_t& code);
  cudaError_t flush(const LaunchSite& site);

 private:
  cudaError_t push(const ChainPhase& phase, const LaunchSite& site);

  ChainParams params_ = {};
  const ProductKernels* kernels_ = nullptr;  ///< of the phases that wait, and where none does of those before
};

}  // namespace quintet::cuda
