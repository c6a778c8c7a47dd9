// Formats that are served right rather than at full speed: at load their numbers become bytes and their groups' scales (and
// minima) FP32, so that one struct holds them all: w = scale * q - minimum.
#pragma once

#include "backend/cuda/formats/q8.cuh"

namespace quintet::cuda {

/// `File` says how a block of the file reads: kBlockK, kBlockBytes, kHasMin, number(), scale() and minimum() of a group of 32.
template <class File>
struct Unfolded {
  static constexpr int kPieceK = 128, kGroupSteps = 2, kFileBlockK = File::kBlockK, kFileBlockBytes = File::kBlockBytes;
  static constexpr bool kHasMin = File::kHasMin;
  static constexpr int kScales = 2048, kMins = kScales + 256, kPieceBytes = kMins + (kHasMin ? 256 : 0);
  using Regs = ByteRegs;
  using Store = ByteStore;

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) { regs.fragment(step, a); }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int group, int row) {
    return reinterpret_cast<const float*>(piece + kScales)[row * 4 + group];
  }
  __device__ static __forceinline__ float minimum(const uint8_t* piece, int group, int row) {
    if constexpr (!kHasMin) return 0;
    return reinterpret_cast<const float*>(piece + kMins)[row * 4 + group];
  }

  __device__ static int file_number(const uint8_t* block, int i) { return File::number(block, i); }
  __device__ static bool pack_scales(const uint8_t* block, int first, uint8_t* piece, int group, int row) {
    // A block of 32 is one group of the piece; a block of 256 has the piece's four.
    const int groups = kFileBlockK == 32 ? 1 : 4;
    bool good = true;
    for (int i = 0; i < groups; ++i) {
      const int at = row * 4 + group + i, of_block = first / 32 + i;
      const float scale = File::scale(block, of_block);
      reinterpret_cast<float*>(piece + kScales)[at] = scale;
      good &= is_finite(scale);
      if constexpr (kHasMin) {
        reinterpret_cast<float*>(piece + kMins)[at] = File::minimum(block, of_block);
        good &= is_finite(File::minimum(block, of_block));
      }
    }
    return good;
  }
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    const float product = __fmul_rn(scale(piece, group, row), static_cast<float>(number));
    return kHasMin ? __fadd_rn(product, -minimum(piece, group, row)) : product;
  }
};

/// Number i of 32, four bits as in Q4_0 and a fifth in bit i of `high`.
__device__ inline int five_bits(const uint8_t* q, const uint8_t* high, int i) {
  return (i < 16 ? q[i] & 15 : q[i - 16] >> 4) | (high[i / 8] >> (i % 8) & 1) << 4;
}
/// The 16 levels of IQ4_NL and IQ4_XS.
__device__ inline int iq4_level(int q) {
  constexpr int8_t kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kLevels[q];
}

struct FileQ5_0 {  // d, 4 bytes of fifth bits, 16 of numbers
  static constexpr int kBlockK = 32, kBlockBytes = 22;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i) { return five_bits(b + 6, b + 2, i) - 16; }
  __device__ static float scale(const uint8_t* b, int) { return __half2float(file_half(b)); }
};
struct FileQ5_1 {  // d, m, 4 bytes of fifth bits, 16 of numbers
  static constexpr int kBlockK = 32, kBlockBytes = 24;
  static constexpr bool kHasMin = true;
  __device__ static int number(const uint8_t* b, int i) { return five_bits(b + 8, b + 4, i); }
  __device__ static float scale(const uint8_t* b, int) { return __half2float(file_half(b)); }
  __device__ static float minimum(const uint8_t* b, int) { return -__half2float(file_half(b + 2)); }
};
struct FileIq4Nl {  // d, 16 bytes of indices
  static constexpr int kBlockK = 32, kBlockBytes = 18;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i) { return iq4_level(i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4); }
  __device__ static float scale(const uint8_t* b, int) { return __half2float(file_half(b)); }
};
struct FileIq4Xs {  // d, 2 bytes of upper scale bits, 4 of lower, 8 runs of IQ4_NL's indices
  static constexpr int kBlockK = 256, kBlockBytes = 136;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i) {
    const uint8_t* q = b + 8 + i / 32 * 16;
    return iq4_level(i % 32 < 16 ? q[i % 32] & 15 : q[i % 32 - 16] >> 4);
  }
  __device__ static float scale(const uint8_t* b, int group) {
    const int low = b[4 + group / 2] >> (group % 2 * 4) & 15, high = (b[2] | b[3] << 8) >> (2 * group) & 3;
    return __fmul_rn(__half2float(file_half(b)), static_cast<float>((low | high << 4) - 32));
  }
};

using Q5_0 = Unfolded<FileQ5_0>;
using Q5_1 = Unfolded<FileQ5_1>;
using Iq4Nl = Unfolded<FileIq4Nl>;
using Iq4Xs = Unfolded<FileIq4Xs>;

}  // namespace quintet::cuda
