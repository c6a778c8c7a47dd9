// Products of one row: a block works on four slices of 64 outputs at a time, four warps a slice. One more warp keeps a ring of
// bulk copies full.
//
// The numbers are those of every other product kernel (piece_product.cuh): a warp forms one slice of 16 outputs, and the
// slices meet in shared memory, in order.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/kernels/activation_function.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/piece_product.cuh"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda {

inline constexpr int kRowItems = 4;  ///< slices in work at a time
inline constexpr int kRowWarps = kRowItems * kPanel / 16, kRowMostStages = 16;

/// How a block's shared memory is laid out: a ring of stages, then the row. A stage has kDepth pieces of K of a panel for each
/// slice in work.
template <class Format>
struct RowRing {
  static constexpr int kDepth = Format::kPieceBytes <= 1536 ? 2 : 1;
  static constexpr int kPanelBytes = kPanel / 16 * Format::kPieceBytes, kSliceBytes = kDepth * kPanelBytes, kStageBytes = kRowItems * kSliceBytes;
};

/// The norm of p's row into `row` (operand B of one row, zeros up to `inputs`), by the kRowWarps consumer warps. The tree is
/// that of chunk_sum.cuh: four chunks at a time, 128 threads each.
struct NormedRow {
  static constexpr int kRounds = kRowNormRounds;  // kRowWarps / 4 chunks each
  float weight[kRounds][8];

  /// What the kernel before does not write.
  __device__ __forceinline__ void prepare(const RowNorm& p) {
#pragma unroll
    for (int i = 0; i < kRounds; ++i)
      if (column(i) < p.hidden) load_8(p.weight + column(i), weight[i]);
  }
  __device__ __forceinline__ void make(const RowNorm& p, __half* row, int inputs) const {
    __shared__ __align__(16) float warp_sums[kRounds * kRowWarps];  // [chunk][4]
    float kept[kRounds][8];
#pragma unroll
    for (int i = 0; i < kRounds; ++i)
      if (column(i) < p.hidden) load_8(p.residual + column(i), kept[i]);
    if (p.partial) {
#pragma unroll
      for (int i = 0; i < kRounds; ++i)
        if (column(i) < p.hidden) {
          const float4 a = add_slices<float4>(p.partial + column(i), p.slice_stride, p.slices), b = add_slices<float4>(p.partial + column(i) + 4, p.slice_stride, p.slices);
          float v[8] = {a.x, a.y, a.z, a.w, b.x, b.y, b.z, b.w};
#pragma unroll
          for (int j = 0; j < 8; ++j) {
            if (p.bias) v[j] += p.bias[column(i) + j];
            kept[i][j] += v[j];
          }
        }
    }
#pragma unroll
    for (int i = 0; i < kRounds; ++i) {
      float squares = 0;
      if (column(i) < p.hidden)
#pragma unroll
        for (int j = 0; j < 8; ++j) squares = fmaf(kept[i][j], kept[i][j], squares);
#pragma unroll
      for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
      if (threadIdx.x % 32 == 0) warp_sums[i * kRowWarps + threadIdx.x / 32] = squares;
    }
    barrier();
    float sum = 0;
    for (int chunk = 0; chunk * kNormChunk < p.hidden; ++chunk) {
      const float4 w = *reinterpret_cast<const float4*>(&warp_sums[chunk * 4]);
      sum += ((w.x + w.y) + w.z) + w.w;
    }
    const float scale = rsqrtf(sum / p.hidden + p.eps);
    const ActLayout layout = {.tiles = 0, .k_padded = inputs};
#pragma unroll
    for (int i = 0; i < kRounds; ++i)
#pragma unroll
      for (int j = 0; j < 8; j += 2) {
        const int at = column(i) + j;
        if (at >= inputs) continue;
        *reinterpret_cast<half2*>(row + layout.index(0, at)) =
            at < p.hidden ? __floats2half2_rn(kept[i][j] * scale * weight[i][j], kept[i][j + 1] * scale * weight[i][j + 1]) : __float2half2_rn(0.f);
      }
    if (p.residual_out && blockIdx.x == 0)
#pragma unroll
      for (int i = 0; i < kRounds; ++i)
        if (column(i) < p.hidden) {
          float4* to = reinterpret_cast<float4*>(p.residual_out + column(i));
          to[0] = make_float4(kept[i][0], kept[i][1], kept[i][2], kept[i][3]);
          to[1] = make_float4(kept[i][4], kept[i][5], kept[i][6], kept[i][7]);
        }
    barrier();
  }

 private:
  __device__ static __forceinline__ int column(int round) { return round * kRowWarps / 4 * kNormChunk + threadIdx.x * 8; }
  __device__ static __forceinline__ void barrier() { asm volatile("bar.sync 1,%0;" ::"n"(kRowWarps * 32) : "memory"); }
};

/// Work is cut into items of one slice of 64 outputs; a block takes the items of a run of units. Epilogue::whole or gated.
/// kNormed: the row is the norm of p.norm.
template <class Format, Epilogue kEpilogue, bool kNormed>
__global__ void __launch_bounds__(kRowWarps * 32 + 32, 1) linear_row(const __grid_constant__ ProductParams p) {
#if __CUDA_ARCH__ >= 900
  using Ring = RowRing<Format>;
  constexpr int kDepth = Ring::kDepth;
  extern __shared__ __align__(128) uint8_t ring[];
  __shared__ __align__(8) uint64_t full[kRowMostStages], empty[kRowMostStages], row_here;
  __shared__ float met[2][kSlices][kPanel];  // slices of two units in turn
  uint8_t* row = ring + p.stages * Ring::kStageBytes;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, units = p.n / kPanel;
  const int begin = static_cast<int>(static_cast<int64_t>(units) * blockIdx.x / gridDim.x) * kSlices;
  const int end = static_cast<int>(static_cast<int64_t>(units) * (blockIdx.x + 1) / gridDim.x) * kSlices;
  int longest = 0;
  for (int s = 0; s < kSlices; ++s) longest = max(longest, slice_begin(p.pieces, s + 1) - slice_begin(p.pieces, s));
  const int steps = (longest + kDepth - 1) / kDepth;  // stages that four items take
  if (threadIdx.x == 0) {
    ring_init(full, empty, p.stages, kRowItems, kRowWarps);
    barrier_init(shared_address(&row_here), 1);
    barrier_init_fence();
  }
  __syncthreads();
  launch_dependents();
  /// Pieces that item i has from step `step` on, at most kDepth of them in one stage.
  const auto pieces_left = [&](int i, int step) {
    return i < end ? slice_begin(p.pieces, i % kSlices + 1) - slice_begin(p.pieces, i % kSlices) - step * kDepth : 0;
  };

  if (warp == kRowWarps) {  // fills the ring, also while the previous kernel still runs: a lane for each item in work
    if (lane >= kRowItems) return;
    RingFiller filler(full, empty, ring + lane * Ring::kSliceBytes, p.stages, Ring::kStageBytes);
    const int slice = (begin + lane) % kSlices, first = slice_begin(p.pieces, slice), count = slice_begin(p.pieces, slice + 1) - first;
    for (int item = begin + lane; item - lane < end; item += kRowItems) {
      const uint8_t* from = p.weights + (static_cast<size_t>(item / kSlices) * p.pieces + first) * Ring::kPanelBytes;
      const int left = item < end ? count : 0;
      for (int step = 0; step < steps; ++step, from += Ring::kSliceBytes)
        filler.put<true>(from, max(0, min(kDepth, left - step * kDepth)) * Ring::kPanelBytes);
    }
    return;
  }

  if constexpr (kNormed) {
    NormedRow normed;
    normed.prepare(p.norm);
    wait_for_previous();
    normed.make(p.norm, reinterpret_cast<__half*>(row), p.pieces * Format::kPieceK);
  } else {
    wait_for_previous();  // outputs may be the previous kernel's inputs
    if (threadIdx.x == 0) {
      const int row_bytes = p.pieces * Format::kPieceK * 2;
      barrier_expect(shared_address(&row_here), row_bytes);
      bulk_copy(shared_address(row), p.x, row_bytes, shared_address(&row_here));
    }
    barrier_wait(shared_address(&row_here), 0);
  }
  const int which = warp / (kPanel / 16), piece_row = warp % (kPanel / 16), g = lane / 4, q = lane % 4;
  constexpr int kPieceLanes = Format::kPieceK / 32 * 4;  // 16 bytes each of a piece's inputs
  int stage = 0, turn = 0;
  uint32_t parity = 0;
  for (int item = begin; item < end; item += kRowItems) {
    const int own = item + which, slice = own % kSlices;
    float sum[2] = {};  // outputs g and g + 8 of the piece, in lanes with q = 0
    const uint4* slice_inputs = reinterpret_cast<const uint4*>(row) + static_cast<size_t>(slice_begin(p.pieces, slice)) * kPieceLanes + q;
    for (int step = 0; step < steps;) {
      // Two stages at a time where they are whole: their chains of products run side by side.
      const int left = pieces_left(own, step), second = stage + 1 == p.stages ? 0 : stage + 1;
      const bool both = left >= 2 * kDepth && step + 1 < steps;
      const auto weights_at = [&](int s) { return ring + s * Ring::kStageBytes + which * Ring::kSliceBytes + piece_row * Format::kPieceBytes; };
      const uint4* inputs = slice_inputs + step * kDepth * kPieceLanes;
      const auto release = [&] {
        if (lane == 0) barrier_arrive(shared_address(&empty[stage]));
        if (++stage == p.stages) stage = 0, parity ^= 1;
        ++step;
      };
      barrier_wait(shared_address(&full[stage]), parity);
      if (both) {
        barrier_wait(shared_address(&full[second]), second ? parity : parity ^ 1);
        const uint8_t* weights[2] = {weights_at(stage), weights_at(second)};
        add_row_runs<Format, 2, kDepth>(weights, Ring::kPanelBytes, inputs, lane, sum);
        __syncwarp();
        release();
        release();
      } else {
        for (int i = 0; i < min(left, kDepth); ++i) {
          const uint8_t* weights[1] = {weights_at(stage) + i * Ring::kPanelBytes};
          add_row_runs<Format, 1, 1>(weights, 0, inputs + i * kPieceLanes, lane, sum);
        }
        __syncwarp();
        release();
      }
    }
    const int output = own / kSlices * kPanel;
    if (q == 0) {
      met[turn][slice][piece_row * 16 + g] = sum[0];
      met[turn][slice][piece_row * 16 + g + 8] = sum[1];
    }
    // One barrier a unit: whoever writes this half again has passed the next one, which the readers here reach first.
    asm volatile("bar.sync 1,%0;" ::"n"(kRowWarps * 32) : "memory");
    const auto total = [&](int i) {
      const auto& m = met[turn];
      return ((m[0][i] + m[1][i]) + m[2][i]) + m[3][i];
    };
    if constexpr (kEpilogue == Epilogue::gated) {
      // Pieces of gate and up alternate: 32 gated outputs, two neighbours a thread.
      if (threadIdx.x < kPanel / 4) {
        const int i = threadIdx.x * 2, at = i / 16 * 32 + i % 16;
        *reinterpret_cast<half2*>(static_cast<__half*>(p.out) + p.out_layout.index(0, output / 2 + i)) =
            __floats2half2_rn(activate(p.activation, total(at)) * total(at + 16), activate(p.activation, total(at + 1)) * total(at + 17));
      }
    } else if (threadIdx.x < kPanel) {
      static_cast<float*>(p.out)[output + threadIdx.x] = total(threadIdx.x);
    }
    turn ^= 1;
  }
#endif
}

}  // namespace quintet::cuda
