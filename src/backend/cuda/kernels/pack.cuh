// From the blocks of a model file to panels and back, for any format (formats/format.cuh).
#pragma once

#include "backend/cuda/formats/format.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

template <class Format>
__device__ __forceinline__ size_t piece_at(int piece_row, int piece, int pieces) {
  return ((static_cast<size_t>(piece_row / 4) * pieces + piece) * 4 + piece_row % 4) * Format::kPieceBytes;
}

/// grid: x = pieces, y = 16-row pieces of the part; one warp each, so that no two threads write one word.
template <class Format>
__global__ void pack_panels(const __grid_constant__ PackParams p) {
  const int lane = threadIdx.x, row0 = blockIdx.y * 16, k0 = blockIdx.x * Format::kPieceK;
  uint8_t* piece = p.panels + piece_at<Format>(blockIdx.y * p.piece_scale + p.piece_offset, blockIdx.x, p.pieces);
  const size_t row_bytes = static_cast<size_t>(p.k / Format::kFileBlockK) * Format::kFileBlockBytes;
  bool good = true;
  for (int step = 0; step < Format::kPieceK / 16; ++step)
    for (int index = 0; index < 8; ++index) {
      const int row = row0 + fragment_row(lane, index), k = k0 + step * 16 + fragment_k(lane, index);
      if (row >= p.n || k >= p.k) continue;
      const uint8_t* block = p.file + row * row_bytes + static_cast<size_t>(k / Format::kFileBlockK) * Format::kFileBlockBytes;
      Format::Store::put(piece, lane, step, index, Format::file_number(block, k % Format::kFileBlockK));
      if (Format::kFileBlockK == 1) good &= Format::pack_scales(block, 0, piece, 0, 0);
    }
  if (Format::kFileBlockK > 1) {
    constexpr int kGroups = Format::kPieceK / Format::kFileBlockK > 0 ? Format::kPieceK / Format::kFileBlockK : 1;
    for (int i = lane; i < 16 * kGroups; i += 32) {
      const int row = row0 + i % 16, group = i / 16, k = k0 + group * Format::kFileBlockK;
      if (row >= p.n || k >= p.k) continue;
      const uint8_t* block = p.file + row * row_bytes + static_cast<size_t>(k / Format::kFileBlockK) * Format::kFileBlockBytes;
      good &= Format::pack_scales(block, k % Format::kFileBlockK, piece, group, i % 16);
    }
  }
  if (!good) *p.bad = 1;
}

/// grid: x = pieces, y = rows; 32 threads.
template <class Format>
__global__ void unpack_rows(const __grid_constant__ UnpackParams p) {
  const int row = p.first + blockIdx.y, local = row % 16;
  const uint8_t* piece = p.panels + piece_at<Format>(row / 16 * p.piece_scale + p.piece_offset, blockIdx.x, p.pieces);
  for (int i = threadIdx.x; i < Format::kPieceK; i += 32) {
    const int k = blockIdx.x * Format::kPieceK + i;
    if (k >= p.k) continue;
    const int lane = local % 8 * 4 + i % 8 / 2, index = (i & 1) | (local / 8) << 1 | (i / 8 & 1) << 2;
    const int number = Format::Store::get(piece, lane, i / 16, index);
    const int group = Format::kGroupSteps ? i / 16 / Format::kGroupSteps : 0;
    p.out[static_cast<size_t>(blockIdx.y) * p.k + k] = Format::value(number, piece, group, local);
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
