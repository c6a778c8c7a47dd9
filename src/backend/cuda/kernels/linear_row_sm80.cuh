// Products of one row by what sm_80 has: four warps form the four slices of 16 outputs, each from a ring of weights of its own,
// which it fills by cp.async; the row lies in shared memory. The rings are asked for first, so that memory works while the
// row arrives or its norm is formed.
//
// The numbers are those of every other product kernel (piece_product.cuh).
#pragma once

#include <cuda_fp16.h>

#include <algorithm>

#include "backend/cuda/kernels/activation_function.cuh"
#include "backend/cuda/kernels/inverse_rms.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/piece_product.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda {

/// Pieces of a group of warps: two of 8 outputs of gate and 8 of up each, or one of 16 outputs.
__host__ __device__ constexpr int row_pieces(Epilogue epilogue) { return epilogue == Epilogue::gated ? 2 : 1; }
__host__ __device__ constexpr int row_group_threads(Epilogue epilogue) { return row_pieces(epilogue) * kSlices * 32; }
inline constexpr int kRowThreads = 512;  ///< of a block at most, and where the row is normed

/// A stage of a warp's ring: one piece of weights, or two small ones.
template <class Format>
struct RowStage {
  static constexpr int kDepth = Format::kPieceBytes <= 1280 ? 2 : 1, kBytes = kDepth * Format::kPieceBytes;
  static_assert(kRowThreads / 32 * 2 * kBytes + kRowNormColumns80 * 2 + kRowStaticBytes + format_static_bytes<Format>() <= 99 * 1024, "sm_86 and sm_89 have no more a block");
};

/// The norm of p's row into `row` (operand B of one row, zeros up to `inputs`), by all kRowThreads threads of the block; the row is
/// there after the next barrier. The tree is that of chunk_sum.cuh: four chunks at a time, 128 threads each.
__device__ __forceinline__ void norm_row(const RowNorm& p, __half* row, int inputs) {
  constexpr int kTogether = kRowThreads / kNormThreads, kRounds = kRowNormColumns80 / kNormChunk / kTogether;
  __shared__ __align__(16) float warp_sums[kRounds * kTogether * 4];  // [chunk][4]
  float kept[kRounds][8], weight[kRounds][8];
  const auto column = [](int round) { return round * kTogether * kNormChunk + static_cast<int>(threadIdx.x) * 8; };
#pragma unroll
  for (int i = 0; i < kRounds; ++i)
    if (column(i) < p.hidden) {
      load_8(p.residual + column(i), kept[i]);
      load_8(p.weight + column(i), weight[i]);
    }
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
    if (threadIdx.x % 32 == 0) warp_sums[i * kTogether * 4 + threadIdx.x / 32] = squares;
  }
  __syncthreads();
  float sum = 0;
  for (int chunk = 0; chunk * kNormChunk < p.hidden; ++chunk) {
    const float4 w = *reinterpret_cast<const float4*>(&warp_sums[chunk * 4]);
    sum += ((w.x + w.y) + w.z) + w.w;
  }
  const float scale = inverse_rms(sum, p.hidden, p.eps);
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
}

/// A block has as many groups of row_group_threads threads as are launched; a group takes units of row_pieces pieces. p.stages: 2 to
/// kMostPending + 1, of each warp's ring. Epilogue::whole or gated. kNormed: the row is the norm of p.norm; kRowThreads threads.
template <class Format, Epilogue kEpilogue, bool kNormed>
__global__ void __launch_bounds__(kRowThreads, 1) linear_row_sm80(const __grid_constant__ ProductParams p) {
  using Stage = RowStage<Format>;
  constexpr int kPieces = row_pieces(kEpilogue), kGroupThreads = row_group_threads(kEpilogue), kPanelBytes = kPanel / 16 * Format::kPieceBytes;
  constexpr int kPieceLanes = Format::kPieceK / 32 * 4;  // 16 bytes each of a piece's inputs
  extern __shared__ __align__(128) uint8_t memory[];  // the row, then the rings
  __shared__ float met[kRowThreads / kGroupThreads][2][kSlices][kPieces * 16];  // slices of a group's two units in turn
  const int warp = warp_index(), lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const int group = warp / (kGroupThreads / 32), slice = warp % kSlices, piece_row = warp % (kGroupThreads / 32) / kSlices;
  const int units = p.n / (16 * kPieces), unit_step = gridDim.x * (blockDim.x / kGroupThreads), first_unit = group * gridDim.x + blockIdx.x;
  const int first = slice_begin(p.pieces, slice), count = slice_begin(p.pieces, slice + 1) - first;
  const int row_bytes = p.pieces * Format::kPieceK * 2, ring_bytes = p.stages * Stage::kBytes;
  const uint8_t* const ring = memory + row_bytes + warp * ring_bytes;
  prepare_format<Format>(threadIdx.x, blockDim.x);

  if constexpr (!kNormed) {
    for (int at = threadIdx.x * 16; at < row_bytes; at += blockDim.x * 16) copy_async_16(shared_address(memory) + at, reinterpret_cast<const uint8_t*>(p.x) + at);
    copy_async_commit();
  }
  const auto weights_of = [&](int unit) {
    const int row = unit * kPieces + piece_row;
    return p.weights + (static_cast<size_t>(row / 4) * p.pieces + first) * kPanelBytes + row % 4 * Format::kPieceBytes;
  };
  // What is asked for next, stages - 1 ahead of what is computed, across units.
  int asked_unit = count > 0 ? first_unit : units, left = count;
  RowCopier<Format::kPieceBytes, kPanelBytes, Stage::kDepth> copier(lane);
  if (asked_unit < units) copier.begin(weights_of(asked_unit));
  const auto ask = [&](const uint8_t* to) {
    if (asked_unit < units) {
      copier.copy(shared_address(to), left >= Stage::kDepth);
      left -= Stage::kDepth;
      if (left <= 0) {
        left = count, asked_unit += unit_step;
        if (asked_unit < units) copier.begin(weights_of(asked_unit));
      }
    }
    copy_async_commit();  // groups are counted, empty or not
  };
  for (int i = 0; i < p.stages - 1; ++i) ask(ring + i * Stage::kBytes);
  if constexpr (kNormed) norm_row(p.norm, reinterpret_cast<__half*>(memory), p.pieces * Format::kPieceK);
  else copy_async_wait_for(p.stages - 1);
  __syncthreads();  // the row is there

  const uint8_t *own = ring, *drained = ring + ring_bytes - Stage::kBytes;
  int turn = 0;
  for (int unit = first_unit; unit < units; unit += unit_step) {
    RowSum<Format> sum = {};
    const uint4* x = reinterpret_cast<const uint4*>(memory) + first * kPieceLanes + q;
    for (int i = 0; i < count; i += Stage::kDepth, x += Stage::kDepth * kPieceLanes) {
      copy_async_wait_for(p.stages - 2);
      __syncwarp();  // the stage is there for all lanes, and all have read the one before it, which is asked for again
      ask(drained);
      const uint8_t* weights = own;
      if (Stage::kDepth == 2 && i + 1 < count) add_row_run<Format, 2, false>(weights, Format::kPieceBytes, x, nullptr, lane, sum);
      else add_row_run<Format, 1, false>(weights, 0, x, nullptr, lane, sum);
      drained = own;
      own = own == ring + ring_bytes - Stage::kBytes ? ring : own + Stage::kBytes;
    }
    auto& slices = met[group][turn];
    if (q == 0) {
      slices[slice][piece_row * 16 + g] = sum.of(0);
      slices[slice][piece_row * 16 + g + 8] = sum.of(1);
    }
    // One barrier of the group a unit: whoever writes this half again has passed the next one, which the readers here reach first.
    asm volatile("bar.sync %0,%1;" ::"r"(group + 1), "n"(kGroupThreads) : "memory");
    const auto total = [&](int i) { return (((slices[0][i] + slices[1][i]) + slices[2][i]) + slices[3][i]) * p.unit; };
    const int i = threadIdx.x % kGroupThreads;
    if constexpr (kEpilogue == Epilogue::gated) {
      const int gate = i / 8 * 16 + i % 8;
      if (i < 16) static_cast<__half*>(p.out)[p.out_layout.index(0, unit * 16 + i)] = __float2half_rn(activate(p.activation, total(gate)) * total(gate + 8));
    } else {
      if (i < 16) static_cast<float*>(p.out)[unit * 16 + i] = total(i);
    }
    turn ^= 1;
  }
}

}  // namespace quintet::cuda
