// Products of 2 to 16 rows with weights in groups: a block's warps share the activations, two more keep a ring of bulk copies full.
//
// K is cut in four slices fixed by K alone (piece_product.cuh has the rule within a slice); slices are added in order, by
// this block (Epilogue::whole) or by whoever reads the partial sums.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/piece_product.cuh"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/ring.cuh"

namespace quintet::cuda {

/// A stage of the ring: the inputs, kUnitPieces pieces of weights side by side, and, of formats with minima, the sums of the inputs'
/// groups.
template <class Format, int kTiles, int kUnitPieces>
struct SharedStage {
  static constexpr int kActBytes = Format::kPieceK / 32 * kTiles * 512, kWeightBytes = kUnitPieces * Format::kPieceBytes;
  static constexpr int kSumBytes = input_groups<Format>() * kTiles * 8 * 4;
  static constexpr int kBytes = (kActBytes + kWeightBytes + kSumBytes + 127) / 128 * 128;
};

/// kTiles: 8-row tiles of the batch; kWarps: consumer warps; kPieces: pieces a warp owns side by side; kStages:
/// depth of the ring. Epilogue::partial or whole.
template <class Format, int kTiles, int kWarps, int kPieces, int kStages, Epilogue kEpilogue, int kBlocksPerSm>
__global__ void __launch_bounds__(kWarps * 32 + 64, kBlocksPerSm) linear_shared(const __grid_constant__ ProductParams p) {
#if __CUDA_ARCH__ >= 900
  using Stage = SharedStage<Format, kTiles, kWarps * kPieces>;
  constexpr int kActBytes = Stage::kActBytes, kStageBytes = Stage::kBytes;
  constexpr int kUnitN = kWarps * kPieces * 16;
  constexpr int kPanels = kUnitN / kPanel;
  static_assert(kUnitN % kPanel == 0);
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int split = kEpilogue == Epilogue::partial ? kSlices : 1;
  const int units = p.n / kUnitN * split;

  if (threadIdx.x == 0) {
    ring_init(full, empty, kStages, kPanels + (Format::kHasMin ? 2 : 1), kWarps * p.arriving_lanes);
    barrier_init_fence();
  }
  __syncthreads();
  launch_dependents();

  // Two warps fill the ring: one asks for weights, a lane a panel, also while the previous kernel still runs; the other for
  // the inputs and their sums once that has ended.
  if (warp >= kWarps) {
    constexpr int kPanelBytes = kPanel / 16 * Format::kPieceBytes;
    const bool weights = warp == kWarps;
    if (lane >= (weights ? kPanels : Format::kHasMin ? 2 : 1)) return;
    if (!weights) wait_for_previous();
    const int to = weights ? kActBytes + lane * kPanelBytes : lane ? kActBytes + Stage::kWeightBytes : 0;
    const int bytes = weights ? kPanelBytes : lane ? Stage::kSumBytes : kActBytes;
    RingFiller filler(full, empty, ring + to, kStages, kStageBytes);
    for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
      const int first = split == 1 ? 0 : slice_begin(p.pieces, unit % split), last = split == 1 ? p.pieces : slice_begin(p.pieces, unit % split + 1);
      const uint8_t* from = weights ? p.weights + static_cast<size_t>(unit / split * kPanels + lane) * p.pieces * kPanelBytes
                                    : lane ? reinterpret_cast<const uint8_t*>(p.input_sums) : reinterpret_cast<const uint8_t*>(p.x);
      from += static_cast<size_t>(first) * bytes;
      for (int piece = first; piece < last; ++piece, from += bytes) {
        if (weights) filler.put<true>(from, bytes);
        else filler.put<false>(from, bytes);
      }
    }
    return;
  }

  prepare_format<Format>(threadIdx.x, kWarps * 32);
  wait_for_previous();  // outputs may be the previous kernel's inputs
  const int g = lane / 4, q = lane % 4;
  SwizzledInputs<kTiles> inputs(lane);
  int stage = 0;
  uint32_t parity = 0;
  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int tile = unit / split, slice = unit % split;
    float total[kPieces][kTiles][4] = {}, sum[kPieces][kTiles][4] = {};
    const int first = split == 1 ? 0 : slice_begin(p.pieces, slice);
    const int last = split == 1 ? p.pieces : slice_begin(p.pieces, slice + 1);
    int next_slice = 1;
    for (int piece = first; piece < last; ++piece) {
      if (split == 1 && piece == slice_begin(p.pieces, next_slice)) {
        ++next_slice;
#pragma unroll
        for (int o = 0; o < kPieces; ++o)
#pragma unroll
          for (int t = 0; t < kTiles; ++t)
#pragma unroll
            for (int i = 0; i < 4; ++i) total[o][t][i] += sum[o][t][i], sum[o][t][i] = 0;
      }
      barrier_wait(shared_address(&full[stage]), parity);
      const uint8_t* act = ring + stage * kStageBytes;
      inputs.begin(shared_address(act));
      const uint8_t* weights = act + kActBytes + warp * kPieces * Format::kPieceBytes;
      add_pieces<Format, kPieces, kTiles>(weights, inputs, reinterpret_cast<const float*>(act + kActBytes + Stage::kWeightBytes), lane, sum);
      ring_release(shared_address(&empty[stage]), lane, p.arriving_lanes);
      if (++stage == kStages) stage = 0, parity ^= 1;
    }

    // Lane (g, q) holds outputs g and g + 8 of each piece for batch rows 2 q and 2 q + 1 of each tile.
#pragma unroll
    for (int t = 0; t < kTiles; ++t) {
      const int row = t * 8 + q * 2;
#pragma unroll
      for (int o = 0; o < kPieces; ++o) {
        const int n = tile * kUnitN + (warp * kPieces + o) * 16 + g;
        float* out = static_cast<float*>(p.out) + (kEpilogue == Epilogue::partial ? slice * p.slice_stride : 0);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int r = row + (i & 1);
          const float value = kEpilogue == Epilogue::partial ? sum[o][t][i] : total[o][t][i] + sum[o][t][i];
          if (r < p.rows) out[static_cast<size_t>(r) * p.out_stride + n + (i >> 1) * 8] = value * p.unit;
        }
      }
    }
  }
#endif
}

}  // namespace quintet::cuda
