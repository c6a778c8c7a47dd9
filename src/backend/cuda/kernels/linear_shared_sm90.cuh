// Products of 1 to 64 rows: a block's warps share the activations, one more warp keeps a ring of bulk copies full.
//
// One numeric rule with every other product kernel (docs/design.md, "Numbers"): K is cut in four slices fixed by K
// alone; a group's sum is formed by k16 steps in ascending order in a fresh FP32 accumulator and scaled once into its
// slice; slices are added in order, by this block (kWhole) or by whoever reads the partial sums.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/formats/format.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"

namespace quintet::cuda {

/// kTiles: 8-row tiles of the batch (NT); kWarps: consumer warps; kPieces: pieces a warp owns side by side (2 where gate
/// and up meet); kStages: depth of the ring.
/// The gate's activation, in FP32: 0 SiLU, 1 GELU (tanh form).
__device__ __forceinline__ float activate(int kind, float x) {
  if (kind == 0) return x / (1.f + __expf(-x));
  const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.f + tanhf(inner));
}

template <class Format, int kTiles, int kWarps, int kPieces, int kStages, Epilogue kEpilogue, int kBlocksPerSm>
__global__ void __launch_bounds__(kWarps * 32 + 32, kBlocksPerSm) linear_shared(const __grid_constant__ ProductParams p) {
#if __CUDA_ARCH__ >= 900
  constexpr int kSteps = Format::kPieceK / 16;
  constexpr int kWeightBytes = kWarps * kPieces * Format::kPieceBytes;
  // One row alone (kTiles = 0) travels as the four lanes that hold it; every column of B is then that row.
  constexpr int kRowTiles = kTiles ? kTiles : 1, kLanes = kTiles ? 32 : 4;
  constexpr int kActBytes = Format::kPieceK / 32 * kRowTiles * kLanes * 16;
  constexpr int kStageBytes = (kWeightBytes + kActBytes + 127) / 128 * 128;
  constexpr int kUnitN = kWarps * kPieces * 16;
  constexpr int kPanels = kUnitN / kPanel;
  static_assert(kUnitN % kPanel == 0);
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ __align__(8) uint64_t full[kStages], empty[kStages];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int split = kEpilogue == Epilogue::partial ? kSlices : 1;
  const int units = p.n / kUnitN * split;

  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(shared_address(&full[s]), 1);
      barrier_init(shared_address(&empty[s]), kWarps);
    }
    barrier_init_fence();
  }
  __syncthreads();
  launch_dependents();

  if (warp == kWarps) {  // the producer
    if (lane == 0) {
      int stage = 0;
      uint32_t parity = 1;
      int started = 0;  // stages whose weights were asked for before the previous kernel ended
      auto ask_weights = [&](int unit, int piece, int s) {
        const int tile = unit / split;
        const uint32_t barrier = shared_address(&full[s]);
        barrier_expect(barrier, kWeightBytes + kActBytes);
        for (int i = 0; i < kPanels; ++i)
          bulk_copy_weights(shared_address(ring + s * kStageBytes) + kActBytes + i * (kPanel / 16) * Format::kPieceBytes,
                            p.weights + (static_cast<size_t>(tile * kPanels + i) * p.pieces + piece) * (kPanel / 16) * Format::kPieceBytes,
                            (kPanel / 16) * Format::kPieceBytes, barrier);
      };
      auto ask_activations = [&](int piece, int s) {
        bulk_copy(shared_address(ring + s * kStageBytes), reinterpret_cast<const uint8_t*>(p.x) + static_cast<size_t>(piece) * kActBytes,
                  kActBytes, shared_address(&full[s]));
      };
      auto first = [&](int unit) { return split == 1 ? 0 : slice_begin(p.pieces, unit % split); };
      auto last = [&](int unit) { return split == 1 ? p.pieces : slice_begin(p.pieces, unit % split + 1); };
      {  // fill the ring with weights; activations wait for the previous kernel
        int unit = blockIdx.x, piece = unit < units ? first(unit) : 0;
        for (; started < kStages && unit < units; ++started) {
          while (unit < units && piece == last(unit)) { unit += gridDim.x; if (unit < units) piece = first(unit); }
          if (unit >= units) break;
          ask_weights(unit, piece++, started);
        }
        wait_for_previous();
        unit = blockIdx.x, piece = unit < units ? first(unit) : 0;
        for (int i = 0; i < started; ++i) {
          while (piece == last(unit)) { unit += gridDim.x; piece = first(unit); }
          ask_activations(piece++, i);
        }
      }
      int done = 0;
      for (int unit = blockIdx.x; unit < units; unit += gridDim.x)
        for (int piece = first(unit); piece < last(unit); ++piece) {
          if (done++ >= started) {
            barrier_wait(shared_address(&empty[stage]), parity);
            ask_weights(unit, piece, stage);
            ask_activations(piece, stage);
          }
          if (++stage == kStages) stage = 0, parity ^= 1;
        }
    }
    return;
  }

  wait_for_previous();  // outputs may be the previous kernel's inputs
  const int g = lane / 4, q = lane % 4;
  int stage = 0;
  uint32_t parity = 0;
  for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
    const int tile = unit / split, slice = unit % split;
    float total[kPieces][kRowTiles][4] = {}, sum[kPieces][kRowTiles][4] = {};
    const int first = split == 1 ? 0 : slice_begin(p.pieces, slice);
    const int last = split == 1 ? p.pieces : slice_begin(p.pieces, slice + 1);
    int next_slice = 1;
    for (int piece = first; piece < last; ++piece) {
      if (split == 1 && piece == slice_begin(p.pieces, next_slice)) {
        ++next_slice;
#pragma unroll
        for (int o = 0; o < kPieces; ++o)
#pragma unroll
          for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
            for (int i = 0; i < 4; ++i) total[o][t][i] += sum[o][t][i], sum[o][t][i] = 0;
      }
      barrier_wait(shared_address(&full[stage]), parity);
      const uint8_t* act = ring + stage * kStageBytes;
      const uint4* x = reinterpret_cast<const uint4*>(act) + (kTiles ? lane : lane % 4);
      const uint8_t* weights = act + kActBytes + warp * kPieces * Format::kPieceBytes;
      typename Format::Regs regs[kPieces];
#pragma unroll
      for (int o = 0; o < kPieces; ++o) regs[o].load(weights + o * Format::kPieceBytes, lane);
      constexpr int kGroup = Format::kGroupSteps ? Format::kGroupSteps : kSteps;
#pragma unroll
      for (int group = 0; group < kSteps / kGroup; ++group) {
        float d[kPieces][kRowTiles][4], ones[kRowTiles][4];
#pragma unroll
        for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            ones[t][i] = 0;
#pragma unroll
            for (int o = 0; o < kPieces; ++o) d[o][t][i] = Format::kGroupSteps ? 0 : sum[o][t][i];
          }
#pragma unroll
        for (int pair = 0; pair < kGroup / 2; ++pair) {
          uint4 b[kRowTiles];
          const int k32 = group * kGroup / 2 + pair;
#pragma unroll
          for (int t = 0; t < kRowTiles; ++t) b[t] = x[(k32 * kRowTiles + t) * kLanes];
#pragma unroll
          for (int half = 0; half < 2; ++half) {
#pragma unroll
            for (int o = 0; o < kPieces; ++o) {
              uint32_t a[4];
              Format::fragment(regs[o], k32 * 2 + half, a);
#pragma unroll
              for (int t = 0; t < kRowTiles; ++t) mma_f16(d[o][t], a, half ? b[t].z : b[t].x, half ? b[t].w : b[t].y);
            }
            if (Format::kHasMin) {
              constexpr uint32_t kOnes = 0x3c003c00;
              const uint32_t one[4] = {kOnes, kOnes, kOnes, kOnes};
#pragma unroll
              for (int t = 0; t < kRowTiles; ++t) mma_f16(ones[t], one, half ? b[t].z : b[t].x, half ? b[t].w : b[t].y);
            }
          }
        }
#pragma unroll
        for (int o = 0; o < kPieces; ++o) {
          const uint8_t* own = weights + o * Format::kPieceBytes;
          if (!Format::kGroupSteps) {
#pragma unroll
            for (int t = 0; t < kRowTiles; ++t)
#pragma unroll
              for (int i = 0; i < 4; ++i) sum[o][t][i] = d[o][t][i];
            continue;
          }
          const float s0 = Format::scale(own, group, g), s1 = Format::scale(own, group, g + 8);
          float m0 = 0, m1 = 0;
          if (Format::kHasMin) m0 = Format::minimum(own, group, g), m1 = Format::minimum(own, group, g + 8);
#pragma unroll
          for (int t = 0; t < kRowTiles; ++t) {
            sum[o][t][0] = fmaf(d[o][t][0], s0, sum[o][t][0]);
            sum[o][t][1] = fmaf(d[o][t][1], s0, sum[o][t][1]);
            sum[o][t][2] = fmaf(d[o][t][2], s1, sum[o][t][2]);
            sum[o][t][3] = fmaf(d[o][t][3], s1, sum[o][t][3]);
            if (Format::kHasMin) {
              sum[o][t][0] = fmaf(ones[t][0], -m0, sum[o][t][0]);
              sum[o][t][1] = fmaf(ones[t][1], -m0, sum[o][t][1]);
              sum[o][t][2] = fmaf(ones[t][2], -m1, sum[o][t][2]);
              sum[o][t][3] = fmaf(ones[t][3], -m1, sum[o][t][3]);
            }
          }
        }
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(shared_address(&empty[stage]));
      if (++stage == kStages) stage = 0, parity ^= 1;
    }

    // Lane (g, q) holds outputs g and g + 8 of each piece for batch rows 2 q and 2 q + 1 of each tile.
#pragma unroll
    for (int t = 0; t < kRowTiles; ++t) {
      const int row = t * 8 + q * 2;
      if constexpr (kEpilogue == Epilogue::gated) {
        // A warp's two pieces are gate and up of the same 16 outputs. Lanes 4 apart hold neighbouring outputs: they swap
        // so that each writes two neighbours of one row at once.
        float value[4];
#pragma unroll
        for (int i = 0; i < 4; ++i)
          value[i] = activate(p.activation, total[0][t][i] + sum[0][t][i]) * (total[1][t][i] + sum[1][t][i]);
        const bool odd = g & 1;
        const float low = __shfl_xor_sync(0xffffffffu, odd ? value[0] : value[1], 4);
        const float high = __shfl_xor_sync(0xffffffffu, odd ? value[2] : value[3], 4);
        const int r = row + odd, n = tile * (kUnitN / 2) + warp * 16 + (g & ~1);
        if (r < p.rows) {
          __half* out = static_cast<__half*>(p.out);
          *reinterpret_cast<half2*>(out + p.out_layout.index(r, n)) = odd ? __floats2half2_rn(low, value[1]) : __floats2half2_rn(value[0], low);
          *reinterpret_cast<half2*>(out + p.out_layout.index(r, n + 8)) = odd ? __floats2half2_rn(high, value[3]) : __floats2half2_rn(value[2], high);
        }
      } else {
#pragma unroll
        for (int o = 0; o < kPieces; ++o) {
          const int n = tile * kUnitN + (warp * kPieces + o) * 16 + g;
          float* out = static_cast<float*>(p.out) + (kEpilogue == Epilogue::partial ? slice * p.slice_stride : 0);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int r = row + (i & 1);
            const float value = kEpilogue == Epilogue::partial ? sum[o][t][i] : total[o][t][i] + sum[o][t][i];
            if (r < p.rows) out[static_cast<size_t>(r) * p.out_stride + n + (i >> 1) * 8] = value;
          }
        }
      }
    }
  }
#endif
}

}  // namespace quintet::cuda
