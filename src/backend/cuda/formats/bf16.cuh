// BF16 weights as halves under a power of two for each 64 of a row. A half keeps the eight bits of a BF16 number over a
// smaller range of exponents: numbers below 2^-31 of the largest of their 64 are rounded to its 2^-39 (never to be seen in a
// product's FP32 sums), all others are exact.
#pragma once

#include "backend/cuda/formats/f16.cuh"

namespace quintet::cuda {

struct Bf16 {
  static constexpr int kPieceK = F16::kPieceK, kGroupSteps = kPieceK / 16, kScales = F16::kPieceBytes, kPieceBytes = kScales + 16 * 4;
  static constexpr bool kHasMin = false, kScaledByPiece = true;
  static constexpr int kFileBlockK = 1, kFileBlockBytes = 2;

  using Regs = F16::Regs;
  using Store = F16::Store;
  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) { F16::fragment(regs, step, a); }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int, int row) {
    return reinterpret_cast<const float*>(piece + kScales)[row];
  }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  __device__ static float file_value(const uint8_t* block) { return __uint_as_float(static_cast<uint32_t>(block[0] | block[1] << 8) << 16); }
  /// The power of two that brings the largest of a row's `count` numbers to [2^14, 2^15); 0 where all are. False: not finite.
  __device__ static bool pack_row_scale(const uint8_t* file, int count, uint8_t* piece, int row) {
    uint32_t largest = 0;
    for (int i = 0; i < count; ++i) largest = max(largest, __float_as_uint(file_value(file + i * kFileBlockBytes)) & 0x7fffffff);
    const int exponent = static_cast<int>(largest >> 23);
    // Normal powers of two alone: numbers of a row that is all but zero lose nothing that FP32 sums would keep.
    reinterpret_cast<float*>(piece + kScales)[row] = largest == 0 ? 0.f : __uint_as_float(static_cast<uint32_t>(max(exponent - 14, 1)) << 23);
    return exponent < 255;
  }
  /// The bits of the half. The scale's reciprocal is a power of two as well.
  __device__ static int number(const uint8_t* block, const uint8_t* piece, int row) {
    const float by = scale(piece, 0, row);
    return by == 0 ? 0 : __half_as_ushort(__float2half_rn(__fdiv_rn(file_value(block), by)));
  }
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    return __fmul_rn(__half2float(__ushort_as_half(static_cast<unsigned short>(number))), scale(piece, group, row));
  }
};

}  // namespace quintet::cuda
