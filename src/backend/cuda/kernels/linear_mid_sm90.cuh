// Products of 17 to 64 rows, and of 2 to 16 where they have no groups, or NF4's: wgmma with dequantized weights as the register operand. Four
// warpgroups of 64 outputs share the activations of a block; while one of them scales its sums the others keep the tensor cores busy. Of a
// fifth warpgroup two warps copy, by a few lanes, and two form what outliers add; registers change hands by warpgroups.
//
// The same additions as every other product kernel: a group's sum in a fresh accumulator, scaled once into its slice, slices
// in order. Totals of more than one slice wait in shared memory: the registers hold one group and one slice.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/formats/format.cuh"
#include "backend/cuda/kernels/outliers_beside.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/wgmma_pieces.cuh"

namespace quintet::cuda {

inline constexpr int kMidGroups = 4, kMidThreads = (kMidGroups + 1) * 128, kMidOutputs = kMidGroups * 64;

/// Rows up to which partial products add what outliers do themselves: beside the sums of more there are too few registers.
inline constexpr int kBesideRows = 32;

/// Registers of threads that compute and of the fifth warpgroup's, which start with 96 each.
template <int kRows, Epilogue kEpilogue>
struct MidRegisters {
  static constexpr bool kBeside = kEpilogue == Epilogue::partial && kRows <= kBesideRows;
  static constexpr int kCompute = !kBeside ? 112 : kRows <= 16 ? 80 : 88, kBesides = !kBeside ? 24 : kRows <= 16 ? 152 : 120;
  static_assert(kMidGroups * kCompute + kBesides <= (kMidGroups + 1) * 96);
};
template <class Format, int kRows, Epilogue kEpilogue>
struct MidRing {
  static constexpr int kActBytes = kRows * Format::kPieceK * 2;
  static constexpr int kWeightBytes = kMidOutputs / 16 * Format::kPieceBytes;
  static constexpr int kTotalBytes = kEpilogue == Epilogue::partial ? 0 : kMidOutputs * kRows * 4;
  // Of formats with minima, the sums of the inputs' groups lie behind the weights.
  static constexpr int kSumBytes = Format::kHasMin ? Format::kPieceK / 16 / (Format::kGroupSteps ? Format::kGroupSteps : 1) * kRows * 4 : 0;
  static constexpr int kStageBytes = (kActBytes + kWeightBytes + kSumBytes + 1023) / 1024 * 1024;  // swizzled tiles want 1024
  static constexpr int kTableBytes = format_dynamic_bytes<Format>();
  static constexpr int kFit = (225 * 1024 - format_static_bytes<Format>() - kTableBytes - kTotalBytes) / kStageBytes;
  static constexpr int kMost = kRows <= 16 ? 12 : 8, kStages = kFit > kMost ? kMost : kFit;
  static constexpr int kSharedBytes = kTableBytes + kStages * kStageBytes + kTotalBytes + 1024;
  static_assert(kStages >= 2);
};

/// p.x: operand B in 128-byte swizzle, [k / 64][kRows rows][128 bytes]. Epilogue::partial or whole.
template <class Format, int kRows, Epilogue kEpilogue>
__global__ void __launch_bounds__(kMidThreads, 1) linear_mid(const __grid_constant__ ProductParams p) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  using Ring = MidRing<Format, kRows, kEpilogue>;
  using Registers = MidRegisters<kRows, kEpilogue>;
  constexpr bool kFlows = Format::kGroupSteps == 0;
  constexpr int kSums = kRows / 2;
  constexpr int kSplit = kEpilogue == Epilogue::partial ? kSlices : 1;
  extern __shared__ uint8_t dynamic_memory[];
  uint8_t* ring = dynamic_memory + Ring::kTableBytes;
  ring += (1024 - shared_address(ring) % 1024) % 1024;
  float* totals = reinterpret_cast<float*>(ring + Ring::kStages * Ring::kStageBytes);  // [kSums][consumers]
  __shared__ __align__(8) uint64_t full[Ring::kStages], empty[Ring::kStages];
  const int units = p.n / kMidOutputs * kSplit, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    ring_init(full, empty, Ring::kStages, kMidGroups + (Format::kHasMin ? 2 : 1), kMidGroups * 4 * p.arriving_lanes);
    barrier_init_fence();
  }
  __syncthreads();
  launch_dependents();
  const auto first_piece = [&](int unit) { return kSplit == 1 ? 0 : slice_begin(p.pieces, unit % kSplit); };
  const auto last_piece = [&](int unit) { return kSplit == 1 ? p.pieces : slice_begin(p.pieces, unit % kSplit + 1); };

  if (warp >= kMidGroups * 4) {
    // Two warps fill the ring: one asks for weights, a lane a panel, also while the previous kernel still runs; the other for
    // the inputs and their sums once that has ended.
    take_registers<Registers::kBesides, 96>();
    constexpr int kPanelBytes = kPanel / 16 * Format::kPieceBytes;
    const int role = warp - kMidGroups * 4;
    if constexpr (Registers::kBeside) {
      if (role > 1 && p.outliers.begin) outliers_beside<kRows>(p, p.pieces * Format::kPieceK, threadIdx.x - (kMidGroups * 4 + 2) * 32);
    }
    if (role > 1 || lane >= (role == 0 ? kMidGroups : Format::kHasMin ? 2 : 1)) return;
    if (role == 1) wait_for_previous();
    const int to = role == 0 ? Ring::kActBytes + lane * kPanelBytes : lane ? Ring::kActBytes + Ring::kWeightBytes : 0;
    const int bytes = role == 0 ? kPanelBytes : lane ? Ring::kSumBytes : Ring::kActBytes;
    RingFiller filler(full, empty, ring + to, Ring::kStages, Ring::kStageBytes);
    for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
      const uint8_t* from = role == 0 ? p.weights + static_cast<size_t>(unit / kSplit * kMidGroups + lane) * p.pieces * kPanelBytes
                                      : lane ? reinterpret_cast<const uint8_t*>(p.input_sums) : reinterpret_cast<const uint8_t*>(p.x);
      from += static_cast<size_t>(first_piece(unit)) * bytes;
      for (int piece = first_piece(unit); piece < last_piece(unit); ++piece, from += bytes) {
        if (role == 0) filler.put<true>(from, bytes);
        else filler.put<false>(from, bytes);
      }
    }
    return;
  }

  take_registers<Registers::kCompute, 96>();
  prepare_format<Format>(threadIdx.x, kMidGroups * 128);
  wait_for_previous();
  const int g = lane / 4, q = lane % 4;
  uint32_t full_at = shared_address(full), empty_at = shared_address(empty);
  keep(full_at), keep(empty_at);
  int stage = 0;
  uint32_t parity = 0;
  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    float sum[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] = 0;
    uint32_t a[4][4];  // fragments in turn
    FlowingStage flowing = {.empty = empty_at, .lane = lane, .arriving_lanes = p.arriving_lanes};
    int next_slice = 1;
    float* total = totals + threadIdx.x;
    for (int piece = first_piece(unit); piece < last_piece(unit); ++piece) {
      if (kSplit == 1 && piece == slice_begin(p.pieces, next_slice)) {
        if (kFlows) flowing.settle(sum);
#pragma unroll
        for (int i = 0; i < kSums; ++i) {
          float& t = total[i * kMidGroups * 128];
          t = next_slice == 1 ? sum[i] : t + sum[i];
          sum[i] = 0;
        }
        ++next_slice;
      }
      const uint8_t* act = ring + stage * Ring::kStageBytes;
      const uint8_t* own = act + Ring::kActBytes + warp * Format::kPieceBytes;
      const UniformOperand b(shared_address(act), kRows);
      barrier_wait(full_at + stage * 8, parity);
      typename Format::Regs regs;
      regs.load(own, lane);
      if constexpr (kFlows) {
        flow_piece<Format, kRows <= 16 ? 2 : 1>(regs, b, a, sum, flowing, stage);
      } else {
        const float* inputs = reinterpret_cast<const float*>(act + Ring::kActBytes + Ring::kWeightBytes) + q * 2;
#pragma unroll
        for (int group = 0; group < Format::kPieceK / 16 / Format::kGroupSteps; ++group) {
          float fresh[kSums];
          multiply_group<Format>(regs, b, group, fresh);
          add_group<Format>(own, group, g, inputs + group * kRows, fresh, sum);
        }
        ring_release(empty_at + stage * 8, lane, p.arriving_lanes);
      }
      if (++stage == Ring::kStages) stage = 0, parity ^= 1;
    }
    if (kFlows) flowing.settle(sum);

    // Sums i of a lane: row i / 4 * 8 + 2 q + i % 2, output g or, for i & 2, g + 8 of the warp's 16.
    const int row0 = q * 2;
    const int output = unit / kSplit * kMidOutputs + warp * 16 + g;
    float* out = static_cast<float*>(p.out) + (kSplit == 1 ? 0 : unit % kSplit * p.slice_stride) + output;
#pragma unroll
    for (int i = 0; i < kSums; ++i) {
      const int row = row0 + i / 4 * 8 + (i & 1);
      const float value = kSplit == 1 ? total[i * kMidGroups * 128] + sum[i] : sum[i];
      if (row < p.rows) out[static_cast<size_t>(row) * p.out_stride + (i & 2) * 4] = value * p.unit;
    }
  }
#endif
}

}  // namespace quintet::cuda
