// Products of many rows (prompts): wgmma with dequantized weights as the register operand. A block computes tiles of 128
// outputs by 128 rows; one warp copies, two warpgroups of 64 outputs compute, and one block runs the four slices of K in
// sequence: the same additions as the kernels for few rows, hence the same bits.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/formats/format.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

namespace quintet::cuda {

inline constexpr int kPromptThreads = 384, kPromptOutputs = 128;

template <class Format>
struct PromptRing {
  static constexpr int kActBytes = kPromptRows * Format::kPieceK * 2;
  static constexpr int kWeightBytes = kPromptOutputs / 16 * Format::kPieceBytes;
  // Of formats with minima, the sums of the inputs' groups lie behind the weights.
  static constexpr int kSumBytes = Format::kHasMin ? Format::kPieceK / 16 / (Format::kGroupSteps ? Format::kGroupSteps : 1) * kPromptRows * 4 : 0;
  static constexpr int kStageBytes = (kActBytes + kWeightBytes + kSumBytes + 1023) / 1024 * 1024;  // swizzled tiles want 1024
  static constexpr int kStages = (225 * 1024) / kStageBytes > 6 ? 6 : (225 * 1024) / kStageBytes;
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

/// p.x: operand B in 128-byte swizzle, [row tiles][k / 64][128 rows][128 bytes]; p.out: f32 [rows][out_stride].
template <class Format>
__global__ void __launch_bounds__(kPromptThreads, 1) linear_prompt(const __grid_constant__ ProductParams p) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  using Ring = PromptRing<Format>;
  constexpr int kSteps = Format::kPieceK / 16, kGroup = Format::kGroupSteps ? Format::kGroupSteps : kSteps;
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
    int next_slice = 1;
    for (int piece = 0; piece < p.pieces; ++piece) {
      if (piece == slice_begin(p.pieces, next_slice)) {
        ++next_slice;
#pragma unroll
        for (int i = 0; i < 64; ++i) total[i] += sum[i], sum[i] = 0;
      }
      barrier_wait(shared_address(&full[stage]), parity);
      const uint8_t* act = ring + stage * Ring::kStageBytes;
      const uint8_t* own = act + Ring::kActBytes + (half_index * 4 + warp) * Format::kPieceBytes;
      const uint64_t b = wgmma_descriptor(shared_address(act));
      typename Format::Regs regs;
      regs.load(own, lane);
      // A k64 tile of activations is 16 KiB, a k16 step within it 32 bytes: both in units of 16 bytes.
      const auto operand = [&](int step) { return b + static_cast<uint64_t>(step / 4 * (kPromptRows * 128 >> 4) + step % 4 * 2); };
#pragma unroll
      for (int group = 0; group < kSteps / kGroup; ++group) {
        float fresh[64];
        float(&d)[64] = Format::kGroupSteps ? fresh : sum;
        uint32_t a[4][4];
        Format::fragment(regs, group * kGroup, a[0]);
        if (kGroup > 1) Format::fragment(regs, group * kGroup + 1, a[1]);
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < kGroup; ++step) {  // two dequantized fragments ahead of the one that is read
          wgmma_f16(d, a[step & 3], operand(group * kGroup + step), Format::kGroupSteps ? step > 0 : 1);
          wgmma_commit();
          if (step + 2 < kGroup) {
            if (step > 1) wgmma_wait<2>();
            Format::fragment(regs, group * kGroup + step + 2, a[(step + 2) & 3]);
            wgmma_fence();
          }
        }
        wgmma_wait<0>();
        if (Format::kGroupSteps) {
          const float s0 = Format::scale(own, group, g), s1 = Format::scale(own, group, g + 8);
#pragma unroll
          for (int i = 0; i < 64; i += 4) {
            sum[i] = fmaf(d[i], s0, sum[i]);
            sum[i + 1] = fmaf(d[i + 1], s0, sum[i + 1]);
            sum[i + 2] = fmaf(d[i + 2], s1, sum[i + 2]);
            sum[i + 3] = fmaf(d[i + 3], s1, sum[i + 3]);
          }
          if constexpr (Format::kHasMin) {
            const float m0 = Format::minimum(own, group, g), m1 = Format::minimum(own, group, g + 8);
            const float* inputs = reinterpret_cast<const float*>(act + Ring::kActBytes + Ring::kWeightBytes) + group * kPromptRows + q * 2;
#pragma unroll
            for (int i = 0; i < 64; i += 4) {
              const float2 of = *reinterpret_cast<const float2*>(inputs + i * 2);
              sum[i] = fmaf(of.x, -m0, sum[i]);
              sum[i + 1] = fmaf(of.y, -m0, sum[i + 1]);
              sum[i + 2] = fmaf(of.x, -m1, sum[i + 2]);
              sum[i + 3] = fmaf(of.y, -m1, sum[i + 3]);
            }
          }
        }
      }
      ring_release(shared_address(&empty[stage]), lane, p.arriving_lanes);
      if (++stage == Ring::kStages) stage = 0, parity ^= 1;
    }
    const int output = n * kPromptOutputs + half_index * 64 + warp * 16 + g;
    float* out = static_cast<float*>(p.out) + output;
#pragma unroll
    for (int i = 0; i < 64; ++i) {
      const int row = m * kPromptRows + i / 4 * 8 + q * 2 + (i & 1);
      if (row < p.rows) out[static_cast<size_t>(row) * p.out_stride + (i >> 1 & 1) * 8] = total[i] + sum[i];
    }
  }
#endif
}

}  // namespace quintet::cuda
