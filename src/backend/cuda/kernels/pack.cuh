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

template <class File>
concept RowScaledFile = requires { requires File::kRowScaled; };
template <class File>
concept GridFile = requires { requires File::kHasGrid; };

/// The group of a piece's input i, of those that share a scale.
template <class Format>
__device__ __forceinline__ int scale_group(int i) {
  if constexpr (requires { Format::kScaleK; }) return i / Format::kScaleK;
  return Format::kGroupSteps ? i / 16 / Format::kGroupSteps : 0;
}

/// grid: x = pieces of a row, y = pieces of the part's rows; one warp each, so that no two threads write one word.
template <class Format, class File>
__global__ void pack_panels(const __grid_constant__ PackParams p) {
  constexpr bool kSingle = File::kFileBlockK == 1;
  const int lane = threadIdx.x, k0 = blockIdx.x * Format::kPieceK;
  uint8_t* piece = p.panels + piece_at<Format>(blockIdx.y + p.first_piece, blockIdx.x, p.pieces);
  const auto row_of = [&](int local) {  // p.n: none
    const int within = local - p.place.first;
    return within < 0 || within >= p.place.rows ? p.n : static_cast<int>(blockIdx.y) * p.place.rows + within;
  };
  const size_t row_bytes = static_cast<size_t>(p.k / File::kFileBlockK) * File::kFileBlockBytes;
  const auto block_of = [&](int row, int k) { return p.file + row * row_bytes + static_cast<size_t>(k / File::kFileBlockK) * File::kFileBlockBytes; };
  PackFault fault = PackFault::none;
  const auto expect = [&](bool good) {
    if (!good) fault = PackFault::not_finite;
  };
  // Scales come first: BF16's numbers are relative to them.
  constexpr int kGroups = kSingle || File::kFileBlockK > Format::kPieceK ? 1 : Format::kPieceK / File::kFileBlockK;
  for (int i = lane; i < 16 * kGroups; i += 32) {
    const int local = i % 16, row = row_of(local), group = i / 16, k = k0 + group * File::kFileBlockK;
    if (row >= p.n || k >= p.k) continue;
    const uint8_t* block = block_of(row, k);
    if constexpr (kSingle) {
      expect(File::pack_row(block, min(Format::kPieceK, p.k - k), piece, local));
    } else if constexpr (requires { Format::kUnit; }) {
      const PackFault met = File::pack_scales(block, k % File::kFileBlockK, piece, group, local, p.unit);
      if (met > fault) fault = met;
    } else if constexpr (RowScaledFile<File>) {
      expect(File::pack_scales(block, k % File::kFileBlockK, piece, group, local, p.row_scales[row]));
    } else {
      expect(File::pack_scales(block, k % File::kFileBlockK, piece, group, local));
    }
  }
  __syncwarp();
  for (int step = 0; step < Format::kPieceK / 16; ++step)
    for (int index = 0; index < 8; ++index) {
      const int local = fragment_row(lane, index), row = row_of(local), k = k0 + step * 16 + fragment_k(lane, index);
      if (row >= p.n || k >= p.k) continue;
      const uint8_t* block = block_of(row, k);
      int number = 0;
      if constexpr (kSingle) number = File::file_number(block, piece, local);
      else if constexpr (GridFile<File>) number = File::file_number(block, k % File::kFileBlockK, p.grid);
      else number = File::file_number(block, k % File::kFileBlockK);
      if constexpr (requires { File::good_number(0); }) expect(File::good_number(number));
      Format::Store::put(piece, lane, step, index, number);
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
    p.out[static_cast<size_t>(blockIdx.y) * p.k + k] = Format::value(number, piece, scale_group<Format>(i), local) * p.unit;
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
