// Formats whose numbers take a byte: GGUF Q8_0, and those that are unfolded to bytes at load.
#pragma once

#include "backend/cuda/formats/format.cuh"

namespace quintet::cuda {

/// Numbers of a piece of 128 inputs, as q + 128, two k16 steps in each of a lane's four 16-byte words.
struct ByteRegs {
  uint4 v[4];
  __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = reinterpret_cast<const uint4*>(piece)[i * 32 + lane];
  }
  /// A byte b under the exponent of 1024 is 1024 + b: one byte permutation for two numbers, then exact subtraction.
  __device__ __forceinline__ void fragment(int step, uint32_t (&a)[4]) const {
    const uint4& q = v[step / 2];
    const uint32_t low = step % 2 ? q.z : q.x, high = step % 2 ? q.w : q.y;
    constexpr uint32_t kExponent = 0x64646464;
    const half2 offset = __half2half2(__float2half_rn(1024.f + 128.f));
    const uint32_t zero = *reinterpret_cast<const uint32_t*>(&offset);
    a[0] = half2_sub(__byte_perm(low, kExponent, 0x4140), zero);
    a[1] = half2_sub(__byte_perm(low, kExponent, 0x4342), zero);
    a[2] = half2_sub(__byte_perm(high, kExponent, 0x4140), zero);
    a[3] = half2_sub(__byte_perm(high, kExponent, 0x4342), zero);
  }
};

struct ByteStore {
  /// Number index: bit 0 k's lowest bit, bit 1 row + 8, bit 2 k + 8: registers 0..3, two numbers each.
  __device__ static size_t at(int lane, int step, int index) {
    return (step / 2 * 32 + lane) * 16 + step % 2 * 8 + ((index >> 1) & 3) * 2 + (index & 1);
  }
  __device__ static void put(uint8_t* piece, int lane, int step, int index, int number) {
    piece[at(lane, step, index)] = static_cast<uint8_t>(number + 128);
  }
  __device__ static int get(const uint8_t* piece, int lane, int step, int index) { return piece[at(lane, step, index)] - 128; }
};

/// w = scale * q with q in [-128, 127], groups of 32.
struct Q8_0 {
  static constexpr int kPieceK = 128, kGroupSteps = 2, kPieceBytes = 2048 + 128;
  static constexpr bool kHasMin = false;
  static constexpr int kFileBlockK = 32, kFileBlockBytes = 34;

  using Regs = ByteRegs;
  using Store = ByteStore;
  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) { regs.fragment(step, a); }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int group, int row) {
    return half_of_four(piece + 2048, group, row);
  }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  __device__ static int file_number(const uint8_t* block, int i) { return static_cast<int8_t>(block[2 + i]); }
  __device__ static bool pack_scales(const uint8_t* block, int, uint8_t* piece, int group, int row) {
    reinterpret_cast<__half*>(piece + 2048)[row * 4 + group] = file_half(block);
    return is_finite(file_half(block));
  }
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    return __fmul_rn(static_cast<float>(number), scale(piece, group, row));
  }
};

}  // namespace quintet::cuda
