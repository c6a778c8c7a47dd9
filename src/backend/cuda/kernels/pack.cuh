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

/// grid: x = pieces of a row, y = pieces of the part's rows; one warp each, so that no two threads write one word.
template <class Format>
__global__ void pack_panels(const __grid_constant__ PackParams p) {
  const int lane = threadIdx.x, k0 = blockIdx.x * Format::kPieceK;
  uint8_t* piece = p.panels + piece_at<Format>(blockIdx.y + p.first_piece, blockIdx.x, p.pieces);
  const auto row_of = [&](int local) {  // p.n: none
    const int within = local - p.place.first;
    return within < 0 || within >= p.place.rows ? p.n : static_cast<int>(blockIdx.y) * p.place.rows + within;
  };
  const size_t row_bytes = static_cast<size_t>(p.k / Format::kFileBlockK) * Format::kFileBlockBytes;
  PackFault fault = PackFault::none;
  for (int step = 0; step < Format::kPieceK / 16; ++step)
    for (int index = 0; index < 8; ++index) {
      const int row = row_of(fragment_row(lane, index)), k = k0 + step * 16 + fragment_k(lane, index);
      if (row >= p.n || k >= p.k) continue;
      const uint8_t* block = p.file + row * row_bytes + static_cast<size_t>(k / Format::kFileBlockK) * Format::kFileBlockBytes;
      Format::Store::put(piece, lane, step, index, Format::file_number(block, k % Format::kFileBlockK));
      if constexpr (Format::kFileBlockK == 1)
        if (!Format::pack_scales(block, 0, piece, 0, 0)) fault = PackFault::not_finite;
    }
  if (Format::kFileBlockK > 1) {
    constexpr int kGroups = Format::kPieceK / Format::kFileBlockK > 0 ? Format::kPieceK / Format::kFileBlockK : 1;
    for (int i = lane; i < 16 * kGroups; i += 32) {
      const int row = row_of(i % 16), group = i / 16, k = k0 + group * Format::kFileBlockK;
      if (row >= p.n || k >= p.k) continue;
      const uint8_t* block = p.file + row * row_bytes + static_cast<size_t>(k / Format::kFileBlockK) * Format::kFileBlockBytes;
      if constexpr (requires { Format::kUnit; }) {
        const PackFault met = Format::pack_scales(block, piece, i % 16, p.unit);
        if (met > fault) fault = met;
      } else if (!Format::pack_scales(block, k % Format::kFileBlockK, piece, group, i % 16)) {
        fault = PackFault::not_finite;
      }
    }
  }
  if (fault != PackFault::none) atomicMax(reinterpret_cast<uint32_t*>(p.fault), static_cast<uint32_t>(fault));
}

/// grid: x = pieces, y = rows; 32 threads.
template <class Format>
__global__ void unpack_rows(const __grid_constant__ UnpackParams p) {
  const int row = p.first + blockIdx.y, local = p.place.local(row);
  const uint8_t* piece = p.panels + piece_at<Format>(p.place.piece(row) + p.first_piece, blockIdx.x, p.pieces);
  for (int i = threadIdx.x; i < Format::kPieceK; i += 32) {
    const int k = blockIdx.x * Format::kPieceK + i;
    if (k >= p.k) continue;
    const int lane = local % 8 * 4 + i % 8 / 2, index = (i & 1) | (local / 8) << 1 | (i / 8 & 1) << 2;
    const int number = Format::Store::get(piece, lane, i / 16, index);
    const int group = Format::kGroupSteps ? i / 16 / Format::kGroupSteps : 0;
    p.out[static_cast<size_t>(blockIdx.y) * p.k + k] = Format::value(number, piece, group, local) * p.unit;
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
