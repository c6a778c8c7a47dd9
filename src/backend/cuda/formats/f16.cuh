// Dense weights: FP16, whose numbers are the weights themselves, and BF16 as halves under powers of two.
#pragma once

#include "backend/cuda/formats/format.cuh"

namespace quintet::cuda {

/// Halves of a piece of 64 inputs: a lane's 16 bytes of each k16 step.
struct HalfRegs {
  uint4 v[4];
  __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = reinterpret_cast<const uint4*>(piece)[i * 32 + lane];
  }
};

/// The number is the bits of the half.
struct HalfStore {
  __device__ static size_t at(int lane, int step, int index) {
    return (step * 32 + lane) * 16 + ((index >> 1) & 3) * 4 + (index & 1) * 2;
  }
  __device__ static void put(uint8_t* piece, int lane, int step, int index, int number) {
    *reinterpret_cast<uint16_t*>(piece + at(lane, step, index)) = static_cast<uint16_t>(number);
  }
  __device__ static int get(const uint8_t* piece, int lane, int step, int index) {
    return *reinterpret_cast<const uint16_t*>(piece + at(lane, step, index));
  }
};

/// No groups: the sum runs through the whole slice.
struct F16 {
  static constexpr int kPieceK = 64, kGroupSteps = 0, kPieceBytes = 2048;
  static constexpr bool kHasMin = false;
  static constexpr int kFileBlockK = 1, kFileBlockBytes = 2;
  using Regs = HalfRegs;
  using Store = HalfStore;

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    const uint4& v = regs.v[step];
    a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
  }
  __device__ static __forceinline__ float scale(const uint8_t*, int, int) { return 1; }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  __device__ static int file_number(const uint8_t* value, const uint8_t*, int) { return value[0] | value[1] << 8; }
  __device__ static bool good_number(int number) { return (number & 0x7c00) != 0x7c00; }
  __device__ static bool pack_row(const uint8_t*, int, uint8_t*, int) { return true; }
  __device__ static float value(int number, const uint8_t*, int, int) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(number)));
  }
};

/// 64 weights of a row are divided by a power of two that brings the largest of them to 2^15 and more: their eight significant bits
/// fit a half down to 2^-32 of the largest, below which they are rounded. The exponent of that power, biased as in FP32, is a byte a
/// row behind the numbers.
struct Bf16 {
  static constexpr int kPieceK = 64, kGroupSteps = 4, kScales = 2048, kPieceBytes = kScales + 16;
  static constexpr bool kHasMin = false;
  static constexpr int kFileBlockK = 1, kFileBlockBytes = 2;
  using Regs = HalfRegs;
  using Store = HalfStore;

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) { F16::fragment(regs, step, a); }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int, int row) {
    return __uint_as_float(static_cast<uint32_t>(piece[kScales + row]) << 23);
  }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  __device__ static bool pack_row(const uint8_t* values, int count, uint8_t* piece, int row) {
    int largest = 0;  // of the biased exponents
    for (int i = 0; i < count; ++i) largest = max(largest, (values[2 * i] | values[2 * i + 1] << 8) >> 7 & 255);
    piece[kScales + row] = static_cast<uint8_t>(max(1, largest - 15));
    return largest < 255;
  }
  __device__ static int file_number(const uint8_t* value, const uint8_t* piece, int row) {
    const float weight = __uint_as_float(static_cast<uint32_t>(value[0] | value[1] << 8) << 16);
    const float inverse = __uint_as_float((254u - piece[kScales + row]) << 23);
    return __half_as_ushort(__float2half_rn(weight * inverse));
  }
  __device__ static float value(int number, const uint8_t* piece, int, int row) {
    return __fmul_rn(__half2float(__ushort_as_half(static_cast<unsigned short>(number))), scale(piece, 0, row));
  }
};

}  // namespace quintet::cuda
