// Products of 17 to 64 rows: wgmma with dequantized weights as the register operand. Four warpgroups of 64 outputs share
// the activations of a block; while one of them scales its sums the others keep the tensor cores busy. A fifth warpgroup copies: a few lanes of it, but registers change hands by warpgroups.
//
// The same additions as every other product kernel: a group's sum in a fresh accumulator, scaled once into its slice, slices
// in order. Totals of more than one slice wait in shared memory: the registers hold one group and one slice.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/formats/format.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/wgmma_pieces.cuh"

namespace quintet::cuda {

inline constexpr int kMidGroups = 4, kMidThreads = (kMidGroups + 1) * 128, kMidOutputs = kMidGroups * 64;

template <class Format, int kRows, Epilogue kEpilogue>
struct MidRing {
  static constexpr int kActBytes = kRows * Format::kPieceK * 2;
  static constexpr int kWeightBytes = kMidOutputs / 16 * Format::kPieceBytes;
  static constexpr int kTotalBytes = kEpilogue == Epilogue::partial ? 0 : kMidOutputs * kRows * 4;
  // Of formats with minima, the sums of the inputs' groups lie behind the weights.
  static constexpr int kSumBytes = Format::kHasMin ? Format::kPieceK / 16 / (Format::kGroupSteps ? Format::kGroupSteps : 1) * kRows * 4 : 0;
  static constexpr int kStageBytes = (kActBytes + kWeightBytes + kSumBytes + 1023) / 1024 * 1024;  // swizzled tiles want 1024
  static constexpr int kFit = (225 * 1024 - format_static_bytes<Format>() - kTotalBytes) / kStageBytes, kStages = kFit > 8 ? 8 : kFit;
  static constexpr int kSharedBytes = kStages * kStageBytes + kTotalBytes + 1024;
  static_assert(kStages >= 2);
};

/// p.x: operand B in 128-byte swizzle, [k / 64][kRows rows][128 bytes]. Epilogue::partial or whole.
template <class Format, int kRows, Epilogue kEpilogue>
__global__ void __launch_bounds__(kMidThreads, 1) linear_mid(const __grid_constant__ ProductParams p) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  using Ring = MidRing<Format, kRows, kEpilogue>;
  constexpr bool kFlows = Format::kGroupSteps == 0;
  constexpr int kSums = kRows / 2;
  constexpr int kSplit = kEpilogue == Epilogue::partial ? kSlices : 1;
  extern __shared__ uint8_t raw[];
  uint8_t* ring = raw + (1024 - shared_address(raw) % 1024) % 1024;
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
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    constexpr int kPanelBytes = kPanel / 16 * Format::kPieceBytes;
    const int role = warp - kMidGroups * 4;
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

  asm volatile("setmaxnreg.inc.sync.aligned.u32 112;");  // 640 threads start with 96 each
  prepare_format<Format>(threadIdx.x, kMidGroups * 128);
  wait_for_previous();
  const int g = lane / 4, q = lane % 4;
  int stage = 0;
  uint32_t parity = 0;
  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    float sum[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] = 0;
    uint32_t a[4][4];  // fragments in turn
    FlowingStage flowing = {.empty = empty, .lane = lane, .arriving_lanes = p.arriving_lanes};
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
      barrier_wait(shared_address(&full[stage]), parity);
      const uint8_t* act = ring + stage * Ring::kStageBytes;
      const uint8_t* own = act + Ring::kActBytes + warp * Format::kPieceBytes;
      const WgmmaOperand b = {.first = wgmma_descriptor(shared_address(act)), .rows = kRows};
      typename Format::Regs regs;
      regs.load(own, lane);
      if constexpr (kFlows) {
        flow_piece<Format>(regs, b, a, sum, flowing, stage);
      } else {
        const float* inputs = reinterpret_cast<const float*>(act + Ring::kActBytes + Ring::kWeightBytes) + q * 2;
#pragma unroll
        for (int group = 0; group < Format::kPieceK / 16 / Format::kGroupSteps; ++group) {
          float fresh[kSums];
          multiply_group<Format>(regs, b, group, fresh);
          add_group<Format>(own, group, g, inputs + group * kRows, fresh, sum);
        }
        ring_release(shared_address(&empty[stage]), lane, p.arriving_lanes);
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
