// The norm of one row, done by every block of a product on its way in.
#pragma once

#include <cuda_fp16.h>

#include "backend/cuda/kernels/grid_progress.cuh"
#include "backend/cuda/kernels/inverse_rms.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/row_inputs.cuh"
#include "backend/cuda/kernels/slices.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kRowWarps = 16, kRowThreads = kRowWarps * 32;  ///< that compute, of a block of row_chain

/// The norm of p's row into `row` (as store_inputs() has it, zeros up to `inputs`), by kRowThreads threads. The tree is that of
/// chunk_sum.cuh: four chunks at a time, 128 threads each.
struct NormedRow {
  static constexpr int kRounds = kRowNormRounds;  // kRowWarps / 4 chunks each
  // Zeroed: what may stay unwritten lives on from one phase of a chain to the next, and costs registers all the way.
  float weight[kRounds][8] = {}, kept[kRounds][8] = {};

  /// What is there before the operation before this one has ended.
  __device__ __forceinline__ void load_early(const RowNorm& p) {
    each([&](int i, int column) {
      if (column >= p.hidden) return;
      load_8(p.weight + column, weight[i]);
      load_8(p.residual + column, kept[i]);
    });
  }
  /// One of the blocks that make the row `writes` residual_out, which takes it a microsecond.
  template <bool kPlain>
  __device__ __forceinline__ void make(const RowNorm& p, __half* row, int inputs, bool writes) {
    __shared__ __align__(16) float warp_sums[kRounds * kRowWarps];  // [chunk][4]
    if (p.partial) {
      float added[kRounds][8] = {};
      each([&](int i, int column) {
        if (column < p.hidden) load_8(p.partial + column, added[i]);
      });
      if (p.bias)
        each([&](int i, int column) {
#pragma unroll
          for (int j = 0; j < 8; ++j)
            if (column < p.hidden) added[i][j] += p.bias[column + j];
        });
      each([&](int i, int) {
#pragma unroll
        for (int j = 0; j < 8; ++j) kept[i][j] += added[i][j];
      });
    }
    each([&](int i, int column) {
      float squares = 0;
      if (column < p.hidden)
#pragma unroll
        for (int j = 0; j < 8; ++j) squares = fmaf(kept[i][j], kept[i][j], squares);
#pragma unroll
      for (int step = 16; step > 0; step /= 2) squares += __shfl_xor_sync(0xffffffffu, squares, step);
      if (threadIdx.x % 32 == 0) warp_sums[i * kRowWarps + threadIdx.x / 32] = squares;
    });
    named_barrier<1, kRowThreads>();
    float sum = 0;
#pragma unroll
    for (int chunk = 0; chunk < kRounds * kRowWarps / 4; ++chunk) {
      const float4 w = *reinterpret_cast<const float4*>(&warp_sums[chunk * 4]);
      if (chunk * kNormChunk < p.hidden) sum += ((w.x + w.y) + w.z) + w.w;
    }
    const float scale = inverse_rms(sum, p.hidden, p.eps);
    each([&](int i, int column) {
      if (column >= inputs) return;
      alignas(16) half2 v[4];
#pragma unroll
      for (int j = 0; j < 8; j += 2)
        v[j / 2] = column < p.hidden ? __floats2half2_rn(kept[i][j] * scale * weight[i][j], kept[i][j + 1] * scale * weight[i][j + 1]) : __float2half2_rn(0.f);
      store_inputs<kPlain>(reinterpret_cast<uint8_t*>(row), column, *reinterpret_cast<const uint4*>(v));
    });
    if (p.residual_out && writes)
      each([&](int i, int column) {
        if (column >= p.hidden) return;
        float4* to = reinterpret_cast<float4*>(p.residual_out + column);
        to[0] = make_float4(kept[i][0], kept[i][1], kept[i][2], kept[i][3]);
        to[1] = make_float4(kept[i][4], kept[i][5], kept[i][6], kept[i][7]);
      });
    if constexpr (kPlain) fence_row();
    named_barrier<1, kRowThreads>();
  }

 private:
  template <class Body>
  __device__ static __forceinline__ void each(Body&& body) {
#pragma unroll
    for (int i = 0; i < kRounds; ++i) body(i, i * kRowWarps / 4 * kNormChunk + static_cast<int>(threadIdx.x) * 8);
  }
};

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
