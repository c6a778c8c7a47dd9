// Four-bit formats with one symmetric or asymmetric scale a group: the project's INT4 (groups of 128) and GGUF's
// Q4_0 and Q4_1 (groups of 32).
#pragma once

#include "backend/cuda/formats/format.cuh"

namespace quintet::cuda {

/// INT4, symmetric, groups of 128: w = scale * (q - 8). File block: half scale, 64 bytes, input i in the low (i < 64)
/// or high nibble of byte i % 64.
///
/// Products take w / unit rounded once to FP16, by one operation: nibbles lie at bits 2 to 5 (rows 0 to 7 of a piece) and 6 to 9
/// (rows 8 to 15) of a half, where they are the subnormal numbers q 2^-22 and q 2^-18, and meet scale and zero point in one fused
/// multiply-add. The piece keeps scale 2^22 / unit and scale 2^18 / unit. So no sums of groups have to be scaled: for prompts that
/// was a fifth of the time, and the power that it took another tenth (docs/performance.md).
struct Int4G128 {
  static constexpr int kPieceK = 128, kPieceBytes = 1024 + 32, kGroupSteps = 0;
  static constexpr bool kHasMin = false;
  static constexpr float kUnit = 64;  ///< scales below 1 fit a half then, and of those above 2^-11 nothing is lost
  static constexpr int kFileBlockK = 128, kFileBlockBytes = 66;
  using Store = RotatedNibbleStore;

  struct Regs : NibbleRegs {
    half2 scale[2], zero[2];  ///< of rows g and g + 8: what a nibble's number is multiplied with, and -8 scale / unit
    __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
      NibbleRegs::load(piece, lane);
      const __half* scales = reinterpret_cast<const __half*>(piece + 1024);
      constexpr unsigned short kZero[2] = {0x8020, 0x8200};  // -8 x 2^-22 and -8 x 2^-18
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        scale[i] = __half2half2(scales[lane / 4 + i * 8]);
        zero[i] = __hmul2(scale[i], __half2half2(__ushort_as_half(kZero[i])));
      }
    }
  };
  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    constexpr uint32_t kLow = 0x003c003c, kHigh = 0x03c003c0;
    const uint32_t v = regs.step(step), next = __funnelshift_r(v, v, 8);
    a[0] = half2_fma(v & kLow, regs.scale[0], regs.zero[0]);
    a[1] = half2_fma(v & kHigh, regs.scale[1], regs.zero[1]);
    a[2] = half2_fma(next & kLow, regs.scale[0], regs.zero[0]);
    a[3] = half2_fma(next & kHigh, regs.scale[1], regs.zero[1]);
  }
  __device__ static __forceinline__ float scale(const uint8_t*, int, int) { return 1; }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  __device__ static int file_number(const uint8_t* block, int i) {
    return i < 64 ? block[2 + i] & 15 : block[2 + i - 64] >> 4;
  }
  __device__ static PackFault pack_scales(const uint8_t* block, uint8_t* piece, int row, float unit) {
    const __half own = file_half(block), packed = __float2half_rn(__half2float(own) * (factor(row) / unit));
    reinterpret_cast<__half*>(piece + 1024)[row] = packed;
    return !is_finite(own) ? PackFault::not_finite : is_finite(packed) ? PackFault::none : PackFault::out_of_range;
  }
  /// w / unit, not rounded.
  __device__ static float value(int number, const uint8_t* piece, int, int row) {
    return __fmul_rn(static_cast<float>(number - 8), half_at(piece + 1024, row) / factor(row));
  }

 private:
  __device__ static constexpr float factor(int row) { return row < 8 ? 0x1p22f : 0x1p18f; }
};

/// GGUF Q4_0: w = scale * (q - 8), groups of 32; Q4_1: w = scale * q + m. Input i of a block of 32 is the low (i < 16)
/// or high nibble of byte i % 16.
template <bool kWithMin>
struct Q4 {
  static constexpr int kPieceK = 128, kGroupSteps = 2;
  static constexpr bool kHasMin = kWithMin;
  static constexpr int kPieceBytes = 1024 + 128 + (kWithMin ? 128 : 0);
  static constexpr int kFileBlockK = 32, kFileBlockBytes = kWithMin ? 20 : 18;
  using Regs = NibbleRegs;
  using Store = NibbleStore;

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    nibbles_to_half<kWithMin ? 0 : 8>(regs.step(step), a);
  }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int group, int row) {
    return half_of_four(piece + 1024, group, row);
  }
  __device__ static __forceinline__ float minimum(const uint8_t* piece, int group, int row) {
    return -half_of_four(piece + 1024 + 128, group, row);
  }

  __device__ static int file_number(const uint8_t* block, int i) {
    const uint8_t byte = block[(kWithMin ? 4 : 2) + i % 16];
    return i < 16 ? byte & 15 : byte >> 4;
  }
  __device__ static bool pack_scales(const uint8_t* block, int, uint8_t* piece, int group, int row) {
    const int index = row * 4 + group;
    reinterpret_cast<__half*>(piece + 1024)[index] = file_half(block);
    if (kWithMin) reinterpret_cast<__half*>(piece + 1024 + 128)[index] = file_half(block + 2);
    return is_finite(file_half(block)) && (!kWithMin || is_finite(file_half(block + 2)));
  }
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    const float product = __fmul_rn(static_cast<float>(kWithMin ? number : number - 8), scale(piece, group, row));
    return kWithMin ? __fadd_rn(product, -minimum(piece, group, row)) : product;
  }
};
using Q4_0 = Q4<false>;
using Q4_1 = Q4<true>;

}  // namespace quintet::cuda
