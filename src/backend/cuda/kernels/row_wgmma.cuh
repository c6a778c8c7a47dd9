// The inner step of the product of one row by wgmma: four warps, 64 outputs, the weights as register operand.
//
// The row is one column of operand B. The others are read from the same memory, eight inputs further each, and make sums that nobody
// reads: eight columns are the fewest there are. What counts is the number of instructions, as in piece_product.cuh: wgmma runs beside
// those that unpack weights, where mma.sync keeps the scheduler for six cycles.
#pragma once

#include <type_traits>

#include "backend/cuda/kernels/piece_product.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

namespace quintet::cuda {

/// Formats whose products with one row go by wgmma: those whose numbers are the weights themselves. Groups would have to wait for
/// their sums.
template <class Format>
inline constexpr bool kByWgmma = Format::kGroupSteps == 0;

/// Descriptor of operand B without swizzle: rows of 8 inputs 16 bytes apart, so are the two halves of a k16 step. The shuffle tells the
/// compiler that it is the same in all lanes; it takes its time, so call this before what is waited for anyway.
__device__ __forceinline__ uint64_t row_descriptor(const uint4* x) {
  const uint32_t shared = __shfl_sync(0xffffffffu, shared_address(x), 0);
  return (static_cast<uint64_t>(shared & 0x3FFFF) >> 4) | (1ull << 16) | (8ull << 32);
}

/// D[64 x 8] += A . B.
__device__ __forceinline__ void wgmma_row(float (&d)[4], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred p; setp.eq.b32 p,0,0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0,%1,%2,%3},{%4,%5,%6,%7},%8,p,1,1,0;}"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

/// As RowSum, and the fragments that products under way still read.
struct RowWgmmaSum {
  static constexpr int kTogether = 2;  ///< steps of a group of products; two groups in turn
  float v[4] = {};
  uint32_t a[2][kTogether][4];

  /// Waits for all products; then the sums may be read.
  __device__ __forceinline__ void settle() {
    wgmma_wait<0>();
#pragma unroll
    for (int i = 0; i < 4; ++i) asm volatile("" : "+f"(v[i])::"memory");
  }
  __device__ __forceinline__ float of(int upper) const { return v[upper * 2]; }
};

/// The pieces of add_row_run(); `b`: of the first input, and inputs lie plain. Products are under way still when it returns.
template <class Format, int kPieces>
__device__ __forceinline__ void add_row_wgmma(const uint8_t* weights, int stride, uint64_t b, int lane, RowWgmmaSum& sum) {
  constexpr int kSteps = Format::kPieceK / 16, kTogether = RowWgmmaSum::kTogether;
  static_assert(kPieces * kSteps % (2 * kTogether) == 0, "the first group's fragments are free again");
  typename Format::Regs regs[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) regs[i].load(weights + i * stride, lane);
#pragma unroll
  for (int step = 0; step < kPieces * kSteps; step += kTogether) {
    auto& a = sum.a[step / kTogether % 2];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) Format::fragment(regs[(step + i) / kSteps], (step + i) % kSteps, a[i]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTogether; ++i) wgmma_row(sum.v, a[i], b + static_cast<uint64_t>(step + i) * 2);
    wgmma_commit();
    wgmma_wait<1>();
  }
}

/// The sum that a warp of the product of one row forms.
template <class Format>
using ChainSum = std::conditional_t<kByWgmma<Format>, RowWgmmaSum, RowSum<Format>>;

}  // namespace quintet::cuda
