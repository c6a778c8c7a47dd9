// Products of one row by what sm_80 has: four warps form the four slices of 16 or 32 outputs, each from a ring of weights of its own,
// which it fills by cp.async; the row lies in shared memory. Here a launch a product, whose rings are asked for first, so that memory works
// while the row arrives or its norm is formed; row_chain_sm80.cuh has whole layers in one launch.
//
// The numbers are those of every other product kernel (piece_product.cuh).
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/kernels/activation_function.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/piece_product.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/row_norm.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// A warp works on kSide pieces of outputs side by side, whose products are chains of their own and share the inputs; a stage of its ring has
/// one piece of K of each.
template <class Format>
struct RowStage {
  static constexpr int kSide = Format::kPieceBytes <= 1280 ? 2 : 1, kBytes = kSide * Format::kPieceBytes;
};

/// What a group of warps takes at a time: one piece of outputs a warp and slice, or two; 8 outputs of gate and 8 of up lie in a piece.
template <class Format, Epilogue kEpilogue>
struct RowUnit {
  static constexpr int kPieces = kEpilogue == Epilogue::gated ? 2 : RowStage<Format>::kSide, kOutputs = kPieces * 16;
  static constexpr int kWarps = kPieces / RowStage<Format>::kSide * kSlices, kThreads = kWarps * 32;
  static constexpr int kMostGroups = kRowThreads / kThreads;
  __host__ __device__ static constexpr int ring_bytes(int stages) { return kWarps * stages * RowStage<Format>::kBytes; }
  static_assert(ring_bytes(2) + kRowNormColumns * 2 + kRowStaticBytes + format_static_bytes<Format>() <= 99 * 1024, "sm_86 and sm_89 have no more a block");
};

/// A warp's ring, which the warp fills and drains.
template <class Format, int kStages>
class WarpRing {
  static constexpr int kBytes = RowStage<Format>::kBytes;

 public:
  __device__ explicit WarpRing(const uint8_t* memory) : first_(memory), own_(memory), drained_(memory + (kStages - 1) * kBytes) {}
  /// Asks for the first stages. ask(to) copies one stage to `to`, where there is one, and commits it.
  template <class Ask>
  __device__ __forceinline__ void begin(Ask& ask) const {
#pragma unroll 1
    for (int i = 0; i < kStages - 1; ++i) ask(first_ + i * kBytes);
  }
  /// Adds the next stage's products; x: this lane's inputs.
  template <class Ask>
  __device__ __forceinline__ void step(Ask& ask, const uint4* x, int lane, RowSum<Format> (&sum)[RowStage<Format>::kSide]) {
    copy_async_wait<kStages - 2>();
    __syncwarp();  // the stage is there for all lanes, and all have read the one before it, which is asked for again
    add_row_beside<Format>(own_, x, lane, sum, [&] { ask(drained_); });  // copies would hold up the loads behind them
    drained_ = own_;
    own_ = own_ == first_ + (kStages - 1) * kBytes ? first_ : own_ + kBytes;
  }

 private:
  const uint8_t *first_, *own_, *drained_;
};

/// A slice's sums of kOutputs outputs, of which this warp formed those from first_output on, into `slices`.
template <class Format, int kOutputs>
__device__ __forceinline__ void store_sums(const RowSum<Format> (&sum)[RowStage<Format>::kSide], float (&slice)[kOutputs], int first_output, int lane) {
  if (lane % 4 != 0) return;
#pragma unroll
  for (int i = 0; i < RowStage<Format>::kSide; ++i)
#pragma unroll
    for (int upper = 0; upper < 2; ++upper) slice[first_output + i * 16 + upper * 8 + lane / 4] = sum[i].of(upper);
}
template <int kOutputs>
__device__ __forceinline__ float sum_of_slices(const float (&slices)[kSlices][kOutputs], int output) {
  return ((slices[0][output] + slices[1][output]) + slices[2][output]) + slices[3][output];
}

/// The first p.groups groups of a block's warps have rings of kStages stages, and take the units. Epilogue::whole or gated.
/// kNormed: the row is the norm of p.norm; kRowThreads threads.
template <class Format, Epilogue kEpilogue, bool kNormed, int kStages>
__global__ void __launch_bounds__(kRowThreads, 1) linear_row_sm80(const __grid_constant__ ProductParams p) {
  using Stage = RowStage<Format>;
  using Unit = RowUnit<Format, kEpilogue>;
  constexpr int kPanelBytes = kPanel / 16 * Format::kPieceBytes, kPieceLanes = Format::kPieceK / 32 * 4;  // 16 bytes each of a piece's inputs
  extern __shared__ __align__(128) uint8_t memory[];  // the row, then the rings
  __shared__ float met[Unit::kMostGroups][2][kSlices][Unit::kOutputs];  // slices of a group's two units in turn
  const int warp = warp_index(), lane = threadIdx.x % 32;
  const int group = warp / Unit::kWarps, slice = warp % kSlices, side = warp % Unit::kWarps / kSlices;
  const int units = p.n / Unit::kOutputs, unit_step = gridDim.x * p.groups, first_unit = group < p.groups ? group * gridDim.x + blockIdx.x : units;
  const int first = slice_begin(p.pieces, slice), count = slice_begin(p.pieces, slice + 1) - first;
  const int row_bytes = p.pieces * Format::kPieceK * 2;
  WarpRing<Format, kStages> ring(memory + row_bytes + warp * (kStages * Stage::kBytes));
  prepare_format<Format>(threadIdx.x, blockDim.x);

  if constexpr (!kNormed) {
    for (int at = threadIdx.x * 16; at < row_bytes; at += blockDim.x * 16) copy_async_16(shared_address(memory) + at, reinterpret_cast<const uint8_t*>(p.x) + at);
    copy_async_commit();
  }
  const auto weights_of = [&](int unit) {
    const int piece = unit * Unit::kPieces + side;
    return p.weights + (static_cast<size_t>(piece / 4) * p.pieces + first) * kPanelBytes + piece % 4 * Format::kPieceBytes;
  };
  // What is asked for next, kStages - 1 ahead of what is computed, across units.
  int asked_unit = count > 0 ? first_unit : units, left = count;
  const uint8_t* asked = p.weights + lane * 16;
  if (asked_unit < units) asked = weights_of(asked_unit) + lane * 16;
  const auto ask = [&](const uint8_t* to) {
    if (asked_unit < units) {
      copy_warp<Stage::kBytes>(shared_address(to) + lane * 16, asked, lane);
      asked += kPanelBytes;
      if (--left == 0) {
        left = count, asked_unit += unit_step;
        if (asked_unit < units) asked = weights_of(asked_unit) + lane * 16;
      }
    }
    copy_async_commit();  // groups are counted, empty or not
  };
  ring.begin(ask);
  if constexpr (kNormed) {
    NormedRow normed;
    normed.load_early(p.norm);
    normed.template make<false>(p.norm, reinterpret_cast<__half*>(memory), p.pieces * Format::kPieceK, blockIdx.x + 1 == gridDim.x);  // a block with the fewest units
  } else {
    copy_async_wait<kStages - 1>();
    __syncthreads();  // the row is there
  }

  int turn = 0;
  for (int unit = first_unit; unit < units; unit += unit_step) {
    RowSum<Format> sum[Stage::kSide] = {};
    const uint4* x = reinterpret_cast<const uint4*>(memory) + first * kPieceLanes + lane % 4;
#pragma unroll 1
    for (int i = 0; i < count; ++i, x += kPieceLanes) ring.step(ask, x, lane, sum);
    auto& slices = met[group][turn];
    store_sums<Format>(sum, slices[slice], side * 16, lane);
    // One barrier of the group a unit: whoever writes this half again has passed the next one, which the readers here reach first.
    asm volatile("bar.sync %0,%1;" ::"r"(group + 2), "n"(Unit::kThreads) : "memory");  // 1: NormedRow's
    const auto total = [&](int i) { return sum_of_slices(slices, i) * p.unit; };
    const int i = threadIdx.x % Unit::kThreads;
    if constexpr (kEpilogue == Epilogue::gated) {
      const int gate = i / 8 * 16 + i % 8;
      if (i < 16) static_cast<__half*>(p.out)[p.out_layout.index(0, unit * 16 + i)] = __float2half_rn(activate(p.activation, total(gate)) * total(gate + 8));
    } else {
      if (i < Unit::kOutputs) static_cast<float*>(p.out)[unit * Unit::kOutputs + i] = total(i);
    }
    turn ^= 1;
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
