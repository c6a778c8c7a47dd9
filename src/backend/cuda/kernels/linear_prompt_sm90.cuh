// Products of many rows (prompts): wgmma with dequantized weights as the register operand. A block computes tiles of 128
// outputs by 128 rows; one warp copies, two warpgroups of 64 outputs compute, and one block runs the four slices of K in
// sequence: the same additions as the kernels for few rows, hence the same bits.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/formats/format.cuh"
#include "backend/cuda/kernels/activation_function.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/wgmma_pieces.cuh"

namespace quintet::cuda {

inline constexpr int kPromptThreads = 384, kPromptOutputs = 128;

template <class Format>
struct PromptRing {
  static constexpr int kActBytes = kPromptRows * Format::kPieceK * 2;
  static constexpr int kWeightBytes = kPromptOutputs / 16 * Format::kPieceBytes;
  // Of formats with minima, the sums of the inputs' groups lie behind the weights.
  static constexpr int kSumBytes = Format::kHasMin ? Format::kPieceK / 16 / (Format::kGroupSteps ? Format::kGroupSteps : 1) * kPromptRows * 4 : 0;
  static constexpr int kStageBytes = (kActBytes + kWeightBytes + kSumBytes + 1023) / 1024 * 1024;  // swizzled tiles want 1024
  static constexpr int kFit = (225 * 1024 - format_static_bytes<Format>()) / kStageBytes, kStages = kFit > 6 ? 6 : kFit;
  static constexpr int kSharedBytes = kStages * kStageBytes + 1024;
};

/// Tile t of tiles_n x tiles_m in an order that keeps a group of weights and the rows they meet in L2: groups of 32 tile
/// columns of outputs, rows within.
__device__ __forceinline__ void prompt_tile(int t, int tiles_n, int tiles_m, int& n, int& m) {
  constexpr int kGroup = 32;
  const int group = t / (kGroup * tiles_m), within = t % (kGroup * tiles_m), width = min(kGroup, tiles_n - group * kGroup);
  n = group * kGroup + within % width;
  m = within / width;
}

/// p.x: operand B in 128-byte swizzle, [row tiles][k / 64][128 rows][128 bytes]; p.out: f32 [rows][out_stride], or gated.
template <class Format>
__global__ void __launch_bounds__(kPromptThreads, 1) linear_prompt(const __grid_constant__ ProductParams p) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  using Ring = PromptRing<Format>;
  constexpr bool kFlows = Format::kGroupSteps == 0;
  extern __shared__ uint8_t raw[];
  uint8_t* ring = raw + (1024 - shared_address(raw) % 1024) % 1024;
  __shared__ __align__(8) uint64_t full[Ring::kStages], empty[Ring::kStages];
  constexpr int kPanels = kPromptOutputs / kPanel;
  const int tiles_n = p.n / kPromptOutputs, tiles_m = (p.rows + kPromptRows - 1) / kPromptRows, tiles = tiles_n * tiles_m;
  const int group_index = threadIdx.x / 128;
  if (threadIdx.x == 0) {
    ring_init(full, empty, Ring::kStages, kPanels + (Format::kHasMin ? 2 : 1), 8 * p.arriving_lanes);
    barrier_init_fence();
  }
  __syncthreads();
  launch_dependents();

  if (group_index == 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    // As in linear_mid: a lane a panel, another warp for the inputs and their sums.
    constexpr int kPanelBytes = kPanel / 16 * Format::kPieceBytes;
    const int role = threadIdx.x / 32, lane = threadIdx.x % 32;
    if (role > 1 || lane >= (role == 0 ? kPanels : Format::kHasMin ? 2 : 1)) return;
    if (role == 1) wait_for_previous();
    const int to = role == 0 ? Ring::kActBytes + lane * kPanelBytes : lane ? Ring::kActBytes + Ring::kWeightBytes : 0;
    const int bytes = role == 0 ? kPanelBytes : lane ? Ring::kSumBytes : Ring::kActBytes;
    RingFiller filler(full, empty, ring + to, Ring::kStages, Ring::kStageBytes);
    for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
      int n, m;
      prompt_tile(t, tiles_n, tiles_m, n, m);
      const uint8_t* from = role == 0 ? p.weights + static_cast<size_t>(n * kPanels + lane) * p.pieces * bytes
                                      : (lane ? reinterpret_cast<const uint8_t*>(p.input_sums) : reinterpret_cast<const uint8_t*>(p.x)) + static_cast<size_t>(m) * p.pieces * bytes;
      for (int piece = 0; piece < p.pieces; ++piece, from += bytes) filler.put<false>(from, bytes);
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  prepare_format<Format>(threadIdx.x - 128, kPromptThreads - 128);
  wait_for_previous();
  const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4, half_index = group_index - 1;
  int stage = 0;
  uint32_t parity = 0;
  for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
    int n, m;
    prompt_tile(t, tiles_n, tiles_m, n, m);
    float total[64], sum[64];
#pragma unroll
    for (int i = 0; i < 64; ++i) total[i] = 0, sum[i] = 0;
    uint32_t a[4][4];  // fragments in turn
    FlowingStage flowing = {.empty = shared_address(empty), .lane = lane, .arriving_lanes = p.arriving_lanes};
    int next_slice = 1;
    for (int piece = 0; piece < p.pieces; ++piece) {
      if (piece == slice_begin(p.pieces, next_slice)) {
        ++next_slice;
        if (kFlows) flowing.settle(sum);
#pragma unroll
        for (int i = 0; i < 64; ++i) total[i] += sum[i], sum[i] = 0;
      }
      barrier_wait(shared_address(&full[stage]), parity);
      const uint8_t* act = ring + stage * Ring::kStageBytes;
      const uint8_t* own = act + Ring::kActBytes + (half_index * 4 + warp) * Format::kPieceBytes;
      const WgmmaOperand b = {.first = wgmma_descriptor(shared_address(act)), .rows = kPromptRows};
      typename Format::Regs regs;
      regs.load(own, lane);
      if constexpr (kFlows) {
        flow_piece<Format, 1>(regs, b, a, sum, flowing, stage);
      } else {
        const float* inputs = reinterpret_cast<const float*>(act + Ring::kActBytes + Ring::kWeightBytes) + q * 2;
#pragma unroll
        for (int group = 0; group < Format::kPieceK / 16 / Format::kGroupSteps; ++group) {
          float fresh[64];
          multiply_group<Format>(regs, b, group, fresh);
          add_group<Format>(own, group, g, inputs + group * kPromptRows, fresh, sum);
        }
        ring_release(shared_address(&empty[stage]), lane, p.arriving_lanes);
      }
      if (++stage == Ring::kStages) stage = 0, parity ^= 1;
    }
    if (kFlows) flowing.settle(sum);
    const int piece_output = n * kPromptOutputs + half_index * 64 + warp * 16, first_row = m * kPromptRows;
    if (p.gated) {
      // A lane has gate and up of output g of the piece's 8 for two rows; turned over, two outputs of row g, which lie side by side.
#pragma unroll
      for (int i = 0; i < 64; i += 4) {
        float gated[2];
#pragma unroll
        for (int r = 0; r < 2; ++r)
          gated[r] = activate(p.activation, (total[i + r] + sum[i + r]) * p.unit) * ((total[i + 2 + r] + sum[i + 2 + r]) * p.unit);
        const half2 two_rows = __floats2half2_rn(gated[0], gated[1]);
        const uint32_t two_outputs = transposed_8x8(*reinterpret_cast<const uint32_t*>(&two_rows));
        const int row = first_row + i / 4 * 8 + g;
        if (row < p.rows) *reinterpret_cast<uint32_t*>(static_cast<__half*>(p.out) + p.out_layout.index(row, piece_output / 2 + q * 2)) = two_outputs;
      }
      continue;
    }
    const int output = piece_output + g;
    float* out = static_cast<float*>(p.out) + output;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const int row = first_row + i / 4 * 8 + q * 2 + (i & 1);
      if (row < p.rows) out[static_cast<size_t>(row) * p.out_stride + (i >> 1 & 1) * 8] = (total[i] + sum[i]) * p.unit;
    }
  }
#endif
}

}  // namespace quintet::cuda
