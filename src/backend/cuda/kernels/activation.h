// How activations lie in memory between kernels: as operand B of the products, ready for one bulk copy a piece.
//
// One row lies plain in the Hopper set, more as wgmma wants them. In the sm80 set up to 16 rows are [k / 32][kTiles][32 lanes][16 bytes]:
// lane (g, q) holds row g of its tile of 8 rows, inputs 2 q, 2 q + 1, 2 q + 8, 2 q + 9 of two k16 steps; one row alone is
// [k / 32][4 lanes][16 bytes]; more rows lie as in the Hopper set.
// Inputs beyond k are zero up to a whole piece.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>
#include <cstdint>

namespace quintet::cuda {

/// Inputs of a product are padded to this many with zeros, whatever the weights' format.
__host__ __device__ constexpr int padded_inputs(int k) { return (k + 127) / 128 * 128; }

/// Layout of one step's activations. tiles is 0 (one row); 8, 16, 32 or 64, where rows fit one tile, or 128: tiles of that many rows by
/// 64 inputs for wgmma, [row tiles][k / 64][rows][128 bytes], the 16-byte chunk c of a row at c ^ (row % 8), but in the sm80 set 8 and
/// 16: fragments of mma.m16n8k16; kPlainTiles: row-major, k_padded to a row.
inline constexpr int kPlainTiles = -1, kPromptRows = 128;
struct ActLayout {
  int tiles = 0;
  int k_padded = 0;

  /// Index in halves of input k of a row; an even input and the next one lie side by side.
  __device__ size_t index(int row, int k) const {
    if (tiles == kPlainTiles) return static_cast<size_t>(row) * k_padded + k;
    if (tiles >= kLeastSwizzled) {
      const size_t tile = static_cast<size_t>(row / kPromptRows) * (k_padded / 64) + k / 64;
      return (tile * tiles + row % kPromptRows) * 64 + ((k % 64 / 8) ^ (row % 8)) * 8 + k % 8;
    }
    const int step = k % 32 / 16, j = k % 16;
    const int word = step * 2 + j / 8, q = j % 8 / 2;
    if (!tiles) {
#if QUINTET_CUDA_HOPPER
      return static_cast<size_t>(k);
#else
      return (static_cast<size_t>(k / 32) * 4 + q) * 8 + word * 2 + (k & 1);
#endif
    }
    return (static_cast<size_t>(k / 32 * (tiles / 8) + row / 8) * 32 + row % 8 * 4 + q) * 8 + word * 2 + (k & 1);
  }

 private:
#if QUINTET_CUDA_HOPPER
  static constexpr int kLeastSwizzled = 8;
#else
  static constexpr int kLeastSwizzled = 32;
#endif
};

/// Rows of the largest tile below that of prompts.
inline constexpr int kMidRows = 64;

}  // namespace quintet::cuda
