// Products of more than 16 rows by what sm_80 has: a block computes tiles of outputs by kRows rows, a warp 32 outputs of all its
// rows by mma.sync, so that a dequantized fragment meets every row; all warps fill one ring of stages by cp.async.
//
// The same additions as every other product kernel: a group's sum in a fresh accumulator, scaled once into its slice, slices
// in order. Totals of more than one slice wait in the output itself: the registers hold one group and one slice.
#pragma once

#include "backend/cuda/formats/format.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/ring.cuh"

namespace quintet::cuda {

// Two blocks of four warps, which wait for each other apart, are faster than one of eight (docs/performance.md).
inline constexpr int kTileWarps = 4, kTileOutputs = kTileWarps * 32, kTileBlocks = 2, kTileMostStages = kMostPending + 2;

/// A stage is a piece of K: the inputs as they travel (kernels/activation.h), the weights, and, of formats with minima, the sums of
/// the inputs' groups.
template <class Format, int kRows>
struct TileRing {
  static constexpr int kGroups = Format::kHasMin ? Format::kPieceK / 16 / (Format::kGroupSteps ? Format::kGroupSteps : 1) : 0;
  static constexpr int kInputBytes = kRows * Format::kPieceK * 2, kWeightBytes = kTileOutputs / 16 * Format::kPieceBytes, kSumBytes = kGroups * kRows * 4;
  static constexpr int kStageBytes = (kInputBytes + kWeightBytes + kSumBytes + 127) / 128 * 128;
  static_assert(2 * kStageBytes + format_static_bytes<Format>() <= 99 * 1024);
};

/// Tile t of tiles_n x tiles_m in an order that keeps a group of weights and the rows they meet in L2: groups of 4096 outputs,
/// rows within.
__device__ __forceinline__ void tile_place(int t, int tiles_n, int tiles_m, int& n, int& m) {
  constexpr int kGroup = 4096 / kTileOutputs;
  const int group = t / (kGroup * tiles_m), within = t % (kGroup * tiles_m), width = min(kGroup, tiles_n - group * kGroup);
  n = group * kGroup + within % width;
  m = within / width;
}

/// p.x: tiles of p.tile_rows rows, a multiple of kRows, in 128-byte swizzle; p.stages: 2 to kTileMostStages. Epilogue::partial (rows up
/// to kRows) or whole.
template <class Format, int kRows, Epilogue kEpilogue>
__global__ void __launch_bounds__(kTileWarps * 32, kTileBlocks) linear_tile_sm80(const __grid_constant__ ProductParams p) {
  using Ring = TileRing<Format, kRows>;
  constexpr int kSteps = Format::kPieceK / 16, kGroup = Format::kGroupSteps ? Format::kGroupSteps : kSteps, kTiles = kRows / 8;
  constexpr int kSplit = kEpilogue == Epilogue::partial ? kSlices : 1, kThreads = kTileWarps * 32;
  constexpr int kPanelBytes = kPanel / 16 * Format::kPieceBytes;
  extern __shared__ __align__(128) uint8_t ring[];
  const int warp = warp_index(), lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  prepare_format<Format>(threadIdx.x, blockDim.x);
  const int tiles_n = p.n / kTileOutputs, tiles_m = kSplit == 1 ? (p.rows + kRows - 1) / kRows : 1, units = tiles_n * tiles_m * kSplit;
  const auto first_piece = [&](int unit) { return kSplit == 1 ? 0 : slice_begin(p.pieces, unit % kSplit); };
  const auto last_piece = [&](int unit) { return kSplit == 1 ? p.pieces : slice_begin(p.pieces, unit % kSplit + 1); };

  // A warp asks for the weights that it reads itself and for its share of the inputs.
  int asked_unit = blockIdx.x - gridDim.x, asked = 0, asked_last = 0, asked_stage = 0;
  const uint8_t *weights = nullptr, *inputs = nullptr, *sums = nullptr;
  const auto ask = [&] {
    while (asked == asked_last && asked_unit < units) {  // the next unit; a slice of few pieces may have none
      asked_unit += gridDim.x;
      if (asked_unit >= units) break;
      asked = first_piece(asked_unit), asked_last = last_piece(asked_unit);
      int n, m;
      tile_place(asked_unit / kSplit, tiles_n, tiles_m, n, m);
      const int piece_row = n * kTileWarps * 2 + warp * 2;  // the warp's two pieces lie side by side
      weights = p.weights + (static_cast<size_t>(piece_row / 4) * p.pieces + asked) * kPanelBytes + piece_row % 4 * Format::kPieceBytes;
      const int tile = m * kRows / p.tile_rows, row = m * kRows % p.tile_rows, k_tiles = p.pieces * Format::kPieceK / 64;
      inputs = reinterpret_cast<const uint8_t*>(p.x) + ((static_cast<size_t>(tile) * k_tiles + asked * (Format::kPieceK / 64)) * p.tile_rows + row) * 128;
      if constexpr (Format::kHasMin)
        sums = reinterpret_cast<const uint8_t*>(p.input_sums + (static_cast<size_t>(tile) * p.pieces + asked) * Ring::kGroups * p.tile_rows + row);
    }
    if (asked_unit < units) {
      const uint32_t to = shared_address(ring) + asked_stage * Ring::kStageBytes;
#pragma unroll
      for (int k = 0; k < Format::kPieceK / 64; ++k)
        copy_span<kRows * 128, kThreads>(to + k * kRows * 128, inputs + static_cast<size_t>(k) * p.tile_rows * 128, threadIdx.x);
      copy_span<2 * Format::kPieceBytes, 32>(to + Ring::kInputBytes + warp * 2 * Format::kPieceBytes, weights, lane);
      if constexpr (Format::kHasMin) {
        constexpr int kRowChunks = kRows * 4 / 16;
        for (int i = threadIdx.x; i < Ring::kGroups * kRowChunks; i += kThreads)
          copy_async_16(to + Ring::kInputBytes + Ring::kWeightBytes + i * 16,
                        sums + static_cast<size_t>(i / kRowChunks) * p.tile_rows * 4 + i % kRowChunks * 16);
        sums += static_cast<size_t>(Ring::kGroups) * p.tile_rows * 4;
      }
      weights += kPanelBytes, inputs += static_cast<size_t>(Format::kPieceK / 64) * p.tile_rows * 128, ++asked;
    }
    copy_async_commit();  // groups are counted, empty or not
    if (++asked_stage == p.stages) asked_stage = 0;
  };
  for (int i = 0; i < p.stages - 1; ++i) ask();

  // Operand B by ldmatrix: lanes 8 i to 8 i + 7 give rows of matrix i: two tiles of 8 rows, two halves of a k16 step each.
  const int matrix_row = lane / 16 * 8 + lane % 8, matrix_half = lane / 8 % 2;
  int stage = 0;
  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    int n, m;
    tile_place(unit / kSplit, tiles_n, tiles_m, n, m);
    const int first_row = m * kRows + q * 2;
    float* out = static_cast<float*>(p.out) + (kSplit == 1 ? 0 : unit % kSplit * p.slice_stride) + n * kTileOutputs + warp * 32 + g;
    float sum[2][kTiles][4] = {};
    // Lane (g, q) holds outputs g and g + 8 of each piece for batch rows 2 q and 2 q + 1 of each tile.
    const auto store = [&](bool add) {
#pragma unroll
      for (int o = 0; o < 2; ++o)
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = first_row + t * 8 + (i & 1);
            if (row >= p.rows) continue;
            float& to = out[static_cast<size_t>(row) * p.out_stride + o * 16 + (i >> 1) * 8];
            const float value = sum[o][t][i] * p.unit;
            to = add ? to + value : value;
          }
    };
    int next_slice = 1;
    for (int piece = first_piece(unit); piece < last_piece(unit); ++piece) {
      if (kSplit == 1 && piece == slice_begin(p.pieces, next_slice)) {
        store(next_slice > 1);
        ++next_slice;
#pragma unroll
        for (int o = 0; o < 2; ++o)
#pragma unroll
          for (int t = 0; t < kTiles; ++t)
#pragma unroll
            for (int i = 0; i < 4; ++i) sum[o][t][i] = 0;
      }
      copy_async_wait_for(p.stages - 2);
      __syncthreads();  // the stage is there for all warps, and all have read the one before it, which is asked for again
      ask();
      const uint8_t* at = ring + stage * Ring::kStageBytes;
      if (++stage == p.stages) stage = 0;
      const uint8_t* own = at + Ring::kInputBytes + warp * 2 * Format::kPieceBytes;
      const uint32_t operands = shared_address(at) + matrix_row * 128;
      typename Format::Regs regs[2];
#pragma unroll
      for (int o = 0; o < 2; ++o) regs[o].load(own + o * Format::kPieceBytes, lane);
#pragma unroll
      for (int group = 0; group < kSteps / kGroup; ++group) {
        float fresh[2][kTiles][4];
#pragma unroll
        for (int within = 0; within < kGroup; ++within) {
          const int step = group * kGroup + within;
          uint32_t a[2][4];
#pragma unroll
          for (int o = 0; o < 2; ++o) Format::fragment(regs[o], step, a[o]);
          // 16-byte chunk c of a row lies at c ^ (row % 8), in tiles of 64 inputs.
          const uint32_t from = operands + step / 4 * (kRows * 128) + ((step % 4 * 2 + matrix_half) ^ (lane % 8)) * 16;
#pragma unroll
          for (int t = 0; t < kTiles; t += 2) {
            uint32_t b[4];
            load_matrix_x4(from + t * 8 * 128, b[0], b[1], b[2], b[3]);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const int o = i / 2, half = i % 2;
              if (Format::kGroupSteps == 0) mma_f16(sum[o][t + half], a[o], b[half * 2], b[half * 2 + 1]);
              else if (within == 0) mma_f16_fresh(fresh[o][t + half], a[o], b[half * 2], b[half * 2 + 1]);
              else mma_f16(fresh[o][t + half], a[o], b[half * 2], b[half * 2 + 1]);
            }
          }
        }
        if constexpr (Format::kGroupSteps > 0) {
#pragma unroll
          for (int o = 0; o < 2; ++o) {
            const uint8_t* piece_at = own + o * Format::kPieceBytes;
            const float s0 = Format::scale(piece_at, group, g), s1 = Format::scale(piece_at, group, g + 8);
#pragma unroll
            for (int t = 0; t < kTiles; ++t)
#pragma unroll
              for (int i = 0; i < 4; ++i) sum[o][t][i] = fmaf(fresh[o][t][i], i < 2 ? s0 : s1, sum[o][t][i]);
          }
          if constexpr (Format::kHasMin) {
            const float* of_group = reinterpret_cast<const float*>(at + Ring::kInputBytes + Ring::kWeightBytes) + group * kRows + q * 2;
#pragma unroll
            for (int o = 0; o < 2; ++o) {
              const float m0 = Format::minimum(own + o * Format::kPieceBytes, group, g), m1 = Format::minimum(own + o * Format::kPieceBytes, group, g + 8);
#pragma unroll
              for (int t = 0; t < kTiles; ++t)
#pragma unroll
                for (int i = 0; i < 4; ++i) sum[o][t][i] = fmaf(of_group[t * 8 + (i & 1)], i < 2 ? -m0 : -m1, sum[o][t][i]);
            }
          }
        }
      }
    }
    store(kSplit == 1);
  }
}

}  // namespace quintet::cuda
