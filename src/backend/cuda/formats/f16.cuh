// FP16 weights: no groups, the numbers are the weights; their sum runs through the whole slice.
#pragma once

#include "backend/cuda/formats/format.cuh"

namespace quintet::cuda {

struct F16 {
  static constexpr int kPieceK = 64, kGroupSteps = 0, kPieceBytes = 2048;
  static constexpr bool kHasMin = false;
  static constexpr int kFileBlockK = 1, kFileBlockBytes = 2;

  struct Regs {
    uint4 v[4];
    __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = reinterpret_cast<const uint4*>(piece)[i * 32 + lane];
    }
  };
  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    const uint4& v = regs.v[step];
    a[0] = v.x, a[1] = v.y, a[2] = v.z, a[3] = v.w;
  }
  __device__ static __forceinline__ float scale(const uint8_t*, int, int) { return 1; }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  struct Store {
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
  /// The number is the bits of the half.
  __device__ static int file_number(const uint8_t* block, int) { return block[0] | block[1] << 8; }
  __device__ static bool pack_scales(const uint8_t* block, int, uint8_t*, int, int) { return is_finite(file_half(block)); }
  __device__ static float value(int number, const uint8_t*, int, int) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(number)));
  }
};

}  // namespace quintet::cuda
