// How activations lie in memory between kernels: as operand B of mma.m16n8k16, ready for one bulk copy a piece.
//
// A batch of rows is cut into chunks of 8 kTiles rows (one chunk up to 64 rows). A chunk is
// [k / 32][kTiles][32 lanes][16 bytes]: lane (g, q) holds row g of its tile, inputs 2 q, 2 q + 1, 2 q + 8, 2 q + 9 of
// two k16 steps. One row alone is [k / 32][4 lanes][16 bytes]. Inputs beyond k are zero up to a whole piece.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace quintet::cuda {

/// Inputs of a product are padded to this many with zeros, whatever the weights' format.
__host__ __device__ constexpr int padded_inputs(int k) { return (k + 127) / 128 * 128; }

/// Layout of one step's activations; tiles is 0 (one row), 1, 2, 4 or 8; kPlainTiles: row-major, k_padded to a row.
inline constexpr int kPlainTiles = -1;
/// More than 64 rows travel in tiles of 128 rows by 64 inputs for wgmma: 128 bytes a row, its 16-byte chunk c at
/// c ^ (row % 8), [row tiles][k / 64][128 rows][128 bytes].
inline constexpr int kPromptTiles = 16, kPromptRows = 128;
struct ActLayout {
  int tiles = 0;
  int k_padded = 0;

  __host__ __device__ int chunk_rows() const { return tiles == kPromptTiles ? kPromptRows : tiles ? tiles * 8 : 1; }
  __host__ __device__ size_t chunk_halves() const { return static_cast<size_t>(k_padded) * chunk_rows(); }
  /// Index in halves of the even input k (and of k + 1 beside it) of a row.
  __device__ size_t index(int row, int k) const {
    if (tiles == kPlainTiles) return static_cast<size_t>(row) * k_padded + k;
    if (tiles == kPromptTiles) {
      const size_t tile = static_cast<size_t>(row / kPromptRows) * (k_padded / 64) + k / 64;
      return (tile * kPromptRows + row % kPromptRows) * 64 + ((k % 64 / 8) ^ (row % 8)) * 8 + k % 8;
    }
    const int step = k % 32 / 16, j = k % 16;
    const int word = step * 2 + j / 8, q = j % 8 / 2;
    if (!tiles) return (static_cast<size_t>(k / 32) * 4 + q) * 8 + word * 2 + (k & 1);
    const int chunk = row / (tiles * 8), local = row % (tiles * 8);
    const size_t lane = static_cast<size_t>(k / 32 * tiles + local / 8) * 32 + local % 8 * 4 + q;
    return chunk * chunk_halves() + lane * 8 + word * 2 + (k & 1);
  }
};

/// The layout in which `rows` rows travel; `prompt`: whether every product has the kernel for many rows.
__host__ __device__ inline int tiles_for_rows(int rows, bool prompt) {
  return rows == 1 ? 0 : rows <= 8 ? 1 : rows <= 16 ? 2 : rows <= 32 ? 4 : rows <= 64 || !prompt ? 8 : kPromptTiles;
}

}  // namespace quintet::cuda
