// Rows of the embedding table, decoded from panels, into the residual stream; and the one-row-per-block sampler's parts.
#pragma once

#include "backend/cuda/kernels/pack.cuh"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/ptx.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// grid: x = pieces, y = rows; 32 threads. A token of -1 is the one that the previous step sampled for `prev[row]`.
template <class Format>
__global__ void embed_rows(const __grid_constant__ EmbedParams p) {
  launch_dependents();
  wait_for_previous();
  const int row = blockIdx.y;
  int token = p.token[row];
  if (token < 0) token = p.sampled[p.prev[row]].token;
  token = min(max(token, 0), p.vocabulary - 1);
  const int local = token % 16;
  const uint8_t* piece = p.panels + piece_at<Format>(token / 16, blockIdx.x, p.pieces);
  for (int i = threadIdx.x; i < Format::kPieceK; i += 32) {
    const int k = blockIdx.x * Format::kPieceK + i;
    if (k >= p.k) continue;
    const int lane = local % 8 * 4 + i % 8 / 2, index = (i & 1) | (local / 8) << 1 | (i / 8 & 1) << 2;
    p.out[static_cast<size_t>(row) * p.k + k] =
        __fmul_rn(Format::value(Format::Store::get(piece, lane, i / 16, index), piece, scale_group<Format>(i), local) * p.unit, p.scale);
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
