// Launches the sums of the inputs' groups before a product of many rows.
#pragma once

#include "backend/cuda/kernels/input_sums.cuh"
#include "backend/cuda/kernels/launch_kernel.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// A minimum a group meets the sum of the group's inputs: more accumulators than those kernels have registers for.
template <class Format>
cudaError_t launch_input_sums(const ProductParams& p, int tiles, const LaunchSite& site) {
  const int inputs = p.pieces * Format::kPieceK, groups = inputs / (16 * Format::kGroupSteps), rows = (p.rows + tiles - 1) / tiles * tiles;
  const InputSumParams params = {.x = reinterpret_cast<const __half*>(p.x), .out = p.input_sums, .layout = {.tiles = tiles, .k_padded = inputs}, .rows = rows};
  return launch_kernel<InputSumParams>(input_sums<Format::kGroupSteps>, params,
                                       {.grid = dim3(static_cast<unsigned>((groups + kInputSumWarps - 1) / kInputSumWarps), static_cast<unsigned>(rows / 8)),
                                        .block = dim3(kInputSumWarps * 32)}, site);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
