// Products of 2 to 16 rows by what sm_80 has: eight warps of 16 outputs share the inputs; all of them fill one ring of
// stages by cp.async.
//
// K is cut in four slices fixed by K alone (piece_product.cuh has the rule within a slice); slices are added in order, by
// this block (Epilogue::whole) or by whoever reads the partial sums.
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/piece_product.cuh"
#include "backend/cuda/kernels/ring.cuh"

namespace quintet::cuda {

inline constexpr int kSharedWarps = 8, kSharedOutputs = kSharedWarps * 16, kSharedBlocks = 2;

/// A stage is a piece of K, or two small ones: the weights of kSharedOutputs outputs, then the inputs, and, of formats with minima, the
/// sums of the inputs' groups. About 64 KiB.
template <class Format, int kTiles>
struct SharedRing {
  static constexpr int kPanels = kSharedOutputs / kPanel, kPanelBytes = kPanel / 16 * Format::kPieceBytes, kWeightBytes = kPanels * kPanelBytes;
  static constexpr int kInputBytes = Format::kPieceK / 32 * kTiles * 512, kSumBytes = input_groups<Format>() * kTiles * 8 * 4;
  static constexpr int kPieceBytes = kWeightBytes + kInputBytes + kSumBytes;
  static constexpr int kDepth = Format::kPieceBytes <= 1536 ? 2 : 1, kStageBytes = kDepth * kPieceBytes;  ///< pieces of K of a stage
  static constexpr int kStages = std::clamp(64 * 1024 / kStageBytes, 3, 6), kBytes = kStages * kStageBytes;
  static_assert(kBytes + format_static_bytes<Format>() <= 99 * 1024, "sm_86 and sm_89 have no more a block");
};

/// kTiles: 8-row tiles of the batch. Epilogue::partial or whole.
template <class Format, int kTiles, Epilogue kEpilogue>
__global__ void __launch_bounds__(kSharedWarps * 32, kSharedBlocks) linear_shared_sm80(const __grid_constant__ ProductParams p) {
  using Ring = SharedRing<Format, kTiles>;
  constexpr int kSplit = kEpilogue == Epilogue::partial ? kSlices : 1;
  extern __shared__ __align__(128) uint8_t ring[];
  const int warp = warp_index(), lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int units = p.n / kSharedOutputs * kSplit;
  prepare_format<Format>(threadIdx.x, blockDim.x);
  const auto first_piece = [&](int unit) { return kSplit == 1 ? 0 : slice_begin(p.pieces, unit % kSplit); };
  const auto last_piece = [&](int unit) { return kSplit == 1 ? p.pieces : slice_begin(p.pieces, unit % kSplit + 1); };

  // A half of the threads asks for a panel of weights and its share of the inputs.
  constexpr int kCopiers = kSharedWarps * 32 / Ring::kPanels, kShare = Ring::kInputBytes / Ring::kPanels;
  const int panel = threadIdx.x / kCopiers;
  int asked_unit = blockIdx.x - gridDim.x, asked = 0, asked_last = 0;
  SpanCopier<Ring::kPanelBytes, kShare, kCopiers> copier(threadIdx.x % kCopiers, Ring::kPanelBytes, Ring::kInputBytes,
                                                         Ring::kWeightBytes + panel * (kShare - Ring::kPanelBytes));
  const auto ask = [&](const uint8_t* to) {
    while (asked == asked_last && asked_unit < units) {  // the next unit; a slice of few pieces may have none
      asked_unit += gridDim.x;
      if (asked_unit >= units) break;
      asked = first_piece(asked_unit), asked_last = last_piece(asked_unit);
      copier.begin(p.weights + (static_cast<size_t>(asked_unit / kSplit * Ring::kPanels + panel) * p.pieces + asked) * Ring::kPanelBytes,
                   reinterpret_cast<const uint8_t*>(p.x) + static_cast<size_t>(asked) * Ring::kInputBytes + panel * kShare);
    }
    if (asked_unit < units)
#pragma unroll
      for (int i = 0; i < Ring::kDepth; ++i)
        if (asked < asked_last) {
          copier.copy(shared_address(to) + i * Ring::kPieceBytes + panel * Ring::kPanelBytes);
          if constexpr (Format::kHasMin)
            copy_span<Ring::kSumBytes, kSharedWarps * 32>(shared_address(to) + i * Ring::kPieceBytes + Ring::kWeightBytes + Ring::kInputBytes,
                                                          reinterpret_cast<const uint8_t*>(p.input_sums) + static_cast<size_t>(asked) * Ring::kSumBytes, threadIdx.x);
          ++asked;
        }
    copy_async_commit();  // groups are counted, empty or not
  };
  for (int i = 0; i < Ring::kStages - 1; ++i) ask(ring + i * Ring::kStageBytes);

  const uint8_t *own = ring, *drained = ring + (Ring::kStages - 1) * Ring::kStageBytes;
  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    float total[1][kTiles][4] = {}, sum[1][kTiles][4] = {};
    int next_slice = 1;
    const int last = last_piece(unit);
    for (int piece = first_piece(unit); piece < last; piece += Ring::kDepth) {
      copy_async_wait<Ring::kStages - 2>();
      __syncthreads();  // the stage is there for all warps, and all have read the one before it, which is asked for again
      ask(drained);
#pragma unroll
      for (int d = 0; d < Ring::kDepth; ++d) {
        if (piece + d >= last) break;
        if (kSplit == 1 && piece + d == slice_begin(p.pieces, next_slice)) {
          ++next_slice;
#pragma unroll
          for (int t = 0; t < kTiles; ++t)
#pragma unroll
            for (int i = 0; i < 4; ++i) total[0][t][i] += sum[0][t][i], sum[0][t][i] = 0;
        }
        const uint8_t* at = own + d * Ring::kPieceBytes;
        add_pieces<Format, 1, kTiles>(at + warp * Format::kPieceBytes, FragmentInputs<kTiles>{reinterpret_cast<const uint4*>(at + Ring::kWeightBytes) + lane},
                                      reinterpret_cast<const float*>(at + Ring::kWeightBytes + Ring::kInputBytes), lane, sum);
      }
      drained = own;
      own = own == ring + (Ring::kStages - 1) * Ring::kStageBytes ? ring : own + Ring::kStageBytes;
    }

    // Lane (g, q) holds outputs g and g + 8 of the piece for batch rows 2 q and 2 q + 1 of each tile.
    const int n = unit / kSplit * kSharedOutputs + warp * 16 + g;
    float* out = static_cast<float*>(p.out) + (kSplit == 1 ? 0 : unit % kSplit * p.slice_stride) + n;
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int row = t * 8 + q * 2 + (i & 1);
        if (row < p.rows) out[static_cast<size_t>(row) * p.out_stride + (i >> 1) * 8] = (kSplit == 1 ? total[0][t][i] + sum[0][t][i] : sum[0][t][i]) * p.unit;
      }
  }
}

}  // namespace quintet::cuda
