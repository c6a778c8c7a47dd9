// A weight's panels written out as FP16 panels, by a kernel of its own before the product that reads them: what LinearArgs::
// dequantize_first asks for, so that a bench can tell what fusing the two buys.
//
// Numbers are those that the product's fragments have: of formats that are scaled when they are unpacked the very halves, so that the
// product after has the bits of the fused one where slices of both begin at the same inputs (K a multiple of 512); of others
// scale * number - minimum rounded once to FP16.
#pragma once

#include "backend/cuda/formats/f16.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kExpandWarps = kPanel / 16, kExpandRuns = 8;

/// A register of a fragment (two numbers of one row) scaled, less the row's minimum.
__device__ __forceinline__ uint32_t scaled_pair(uint32_t numbers, float scale, float minimum) {
  const float2 both = __half22float2(*reinterpret_cast<const half2*>(&numbers));
  const half2 scaled = __floats2half2_rn(fmaf(scale, both.x, -minimum), fmaf(scale, both.y, -minimum));
  return *reinterpret_cast<const uint32_t*>(&scaled);
}

/// grid: x = runs of a panel's pieces, strided, so that a format's table in shared memory serves several; y = panels. A warp a piece of
/// 16 outputs.
template <class Format>
__global__ void __launch_bounds__(kExpandWarps * 32) expand_panels(const __grid_constant__ ExpandParams p) {
  constexpr int kSteps = Format::kPieceK / 16, kHalfSteps = F16::kPieceK / 16, kHalfPieces = Format::kPieceK / F16::kPieceK;
  static_assert(kHalfPieces * F16::kPieceK == Format::kPieceK);
  launch_dependents();
  prepare_format<Format>(threadIdx.x, blockDim.x);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  wait_for_previous();  // whose product may still read what this writes over
  for (int at = blockIdx.x; at < p.pieces; at += gridDim.x) {
    const uint8_t* piece = p.panels + ((static_cast<size_t>(blockIdx.y) * p.pieces + at) * kExpandWarps + warp) * Format::kPieceBytes;
    typename Format::Regs regs;
    regs.load(piece, lane);
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint32_t a[4];
      Format::fragment(regs, step, a);
      if constexpr (Format::kGroupSteps != 0) {
#pragma unroll
        for (int r = 0; r < 4; ++r) {  // registers 1 and 3 are of rows 8 to 15
          const int group = step / Format::kGroupSteps, row = lane / 4 + r % 2 * 8;
          a[r] = scaled_pair(a[r], Format::scale(piece, group, row), Format::minimum(piece, group, row));
        }
      }
      const size_t half_piece = (static_cast<size_t>(blockIdx.y) * p.pieces + at) * kHalfPieces + step / kHalfSteps;
      uint8_t* to = p.out + (half_piece * kExpandWarps + warp) * F16::kPieceBytes;
      reinterpret_cast<uint4*>(to)[step % kHalfSteps * 32 + lane] = make_uint4(a[0], a[1], a[2], a[3]);
    }
  }
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
