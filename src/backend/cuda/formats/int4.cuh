// Four-bit formats with one symmetric or asymmetric scale a group: the project's INT4 (groups of 128) and GGUF's
// Q4_0 and Q4_1 (groups of 32).
#pragma once

#include "backend/cuda/formats/format.cuh"

namespace quintet::cuda {

/// INT4, symmetric, groups of 128: w = scale * (q - 8). File block: half scale, 64 bytes, input i in the low (i < 64)
/// or high nibble of byte i % 64.
struct Int4G128 {
  static constexpr int kPieceK = 128, kPieceBytes = 1024 + 32, kGroupSteps = 8;
  static constexpr bool kHasMin = false;
  static constexpr int kFileBlockK = 128, kFileBlockBytes = 66;
  using Regs = NibbleRegs;
  using Store = NibbleStore;

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    nibbles_to_half<8>(regs.step(step), a);
  }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int, int row) { return half_at(piece + 1024, row); }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  __device__ static int file_number(const uint8_t* block, int i) {
    return i < 64 ? block[2 + i] & 15 : block[2 + i - 64] >> 4;
  }
  __device__ static bool pack_scales(const uint8_t* block, int, uint8_t* piece, int, int row) {
    reinterpret_cast<__half*>(piece + 1024)[row] = file_half(block);
    return is_finite(file_half(block));
  }
  __device__ static float value(int number, const uint8_t* piece, int, int row) {
    return __fmul_rn(static_cast<float>(number - 8), scale(piece, 0, row));
  }
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
