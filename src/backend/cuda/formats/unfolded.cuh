// Formats that are served right rather than at full speed: at load their numbers become bytes and their groups' scales (and
// minima) FP32, so that one struct holds them all: w = scale * q - minimum.
#pragma once

#include "backend/cuda/formats/q8.cuh"

namespace quintet::cuda {

/// w = scale * q, or scale * q - minimum, groups of 16 kSteps inputs.
template <int kSteps, bool kWithMin>
struct Unfolded {
  static constexpr int kPieceK = 128, kGroupSteps = kSteps, kGroups = 8 / kSteps;
  static constexpr bool kHasMin = kWithMin;
  static constexpr int kScales = 2048, kMins = kScales + 64 * kGroups, kPieceBytes = kMins + (kWithMin ? 64 * kGroups : 0);
  using Regs = ByteRegs;
  using Store = ByteStore<128>;

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) { regs.template fragment<128>(step, a); }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int group, int row) {
    return reinterpret_cast<const float*>(piece + kScales)[row * kGroups + group];
  }
  __device__ static __forceinline__ float minimum(const uint8_t* piece, int group, int row) {
    if constexpr (!kWithMin) return 0;
    return reinterpret_cast<const float*>(piece + kMins)[row * kGroups + group];
  }
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    const float product = __fmul_rn(scale(piece, group, row), static_cast<float>(number));
    return kWithMin ? __fadd_rn(product, -minimum(piece, group, row)) : product;
  }
};

/// `File` says how a block reads: kBlockK (32 or 256), kBlockBytes, kSteps, kHasMin, number(), scale() and, with kHasMin, minimum() of
/// a group.
template <class File>
struct UnfoldedFile {
  using Layout = Unfolded<File::kSteps, File::kHasMin>;
  static constexpr int kFileBlockK = File::kBlockK, kFileBlockBytes = File::kBlockBytes;
  static constexpr bool kHasGrid = requires(const uint8_t* b) { File::number(b, 0, b); };
  __device__ static int file_number(const uint8_t* block, int i) { return File::number(block, i); }
  __device__ static int file_number(const uint8_t* block, int i, const uint8_t* grid) { return File::number(block, i, grid); }
  __device__ static bool pack_scales(const uint8_t* block, int first, uint8_t* piece, int group, int row) {
    // A block of 32 is one group of the piece; a block of 256 has all of the piece's.
    constexpr int kGroups = kFileBlockK == 32 ? 1 : Layout::kGroups;
    bool good = true;
    for (int i = 0; i < kGroups; ++i) {
      const int at = row * Layout::kGroups + group + i, of_block = first / (16 * File::kSteps) + i;
      const float scale = File::scale(block, of_block);
      reinterpret_cast<float*>(piece + Layout::kScales)[at] = scale;
      good &= is_finite(scale);
      if constexpr (File::kHasMin) {
        reinterpret_cast<float*>(piece + Layout::kMins)[at] = File::minimum(block, of_block);
        good &= is_finite(File::minimum(block, of_block));
      }
    }
    return good;
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
  static constexpr int kSteps = 2, kBlockK = 32, kBlockBytes = 22;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i) { return five_bits(b + 6, b + 2, i) - 16; }
  __device__ static float scale(const uint8_t* b, int) { return __half2float(file_half(b)); }
};
struct FileQ5_1 {  // d, m, 4 bytes of fifth bits, 16 of numbers
  static constexpr int kSteps = 2, kBlockK = 32, kBlockBytes = 24;
  static constexpr bool kHasMin = true;
  __device__ static int number(const uint8_t* b, int i) { return five_bits(b + 8, b + 4, i); }
  __device__ static float scale(const uint8_t* b, int) { return __half2float(file_half(b)); }
  __device__ static float minimum(const uint8_t* b, int) { return -__half2float(file_half(b + 2)); }
};
struct FileIq4Nl {  // d, 16 bytes of indices
  static constexpr int kSteps = 2, kBlockK = 32, kBlockBytes = 18;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i) { return iq4_level(i < 16 ? b[2 + i] & 15 : b[2 + i - 16] >> 4); }
  __device__ static float scale(const uint8_t* b, int) { return __half2float(file_half(b)); }
};
struct FileIq4Xs {  // d, 2 bytes of upper scale bits, 4 of lower, 8 runs of IQ4_NL's indices
  static constexpr int kSteps = 2, kBlockK = 256, kBlockBytes = 136;
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

/// The grids of IQ2 and IQ3: a number names a run of magnitudes; signs come apart from them, a bit each, set where negative.
__device__ inline int signed_magnitude(uint8_t magnitude, uint32_t signs, int i) { return signs >> i & 1 ? -magnitude : magnitude; }
/// Eight signs in seven bits: the eighth makes their number even.
__device__ inline uint32_t even_signs(uint32_t seven) { return seven | (__popc(seven) & 1) << 7; }
__device__ inline uint32_t file_u32(const uint8_t* b) { return b[0] | b[1] << 8 | b[2] << 16 | static_cast<uint32_t>(b[3]) << 24; }
__device__ inline int scale_nibble(const uint8_t* scales, int index) { return scales[index / 2] >> (index % 2 * 4) & 15; }
__device__ inline float iq2_scale(const uint8_t* b, int scale) {
  return __fmul_rn(__fmul_rn(__half2float(file_half(b)), 0.5f + static_cast<float>(scale)), 0.25f);
}

struct FileIq2Xxs {  // d, then of each 32: 4 bytes of grid runs of 8, 28 bits of signs and 4 of scale
  static constexpr int kSteps = 2, kBlockK = 256, kBlockBytes = 66;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i, const uint8_t* grid) {
    const uint8_t* q = b + 2 + i / 32 * 8;
    const int run = i % 32 / 8;
    return signed_magnitude(grid[q[run] * 8 + i % 8], even_signs(file_u32(q + 4) >> (7 * run) & 127), i % 8);
  }
  __device__ static float scale(const uint8_t* b, int group) { return iq2_scale(b, static_cast<int>(file_u32(b + 2 + group * 8 + 4) >> 28)); }
};
struct FileIq2Xs {  // d, 16 bits a run of 8 (9 of grid, 7 of signs), 8 bytes of scales of 16
  static constexpr int kSteps = 1, kBlockK = 256, kBlockBytes = 74;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i, const uint8_t* grid) {
    const uint8_t* q = b + 2 + i / 8 * 2;
    const uint32_t bits = q[0] | q[1] << 8;
    return signed_magnitude(grid[(bits & 511) * 8 + i % 8], even_signs(bits >> 9), i % 8);
  }
  __device__ static float scale(const uint8_t* b, int group) { return iq2_scale(b, scale_nibble(b + 66, group)); }
};
struct FileIq2S {  // d, 32 bytes of grid, 32 of signs, 8 of grid's upper bits, 8 of scales of 16
  static constexpr int kSteps = 1, kBlockK = 256, kBlockBytes = 82;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i, const uint8_t* grid) {
    const int run = i / 8, q = b[2 + run] | (b[66 + run / 4] >> (run % 4 * 2) & 3) << 8;
    return signed_magnitude(grid[q * 8 + i % 8], b[34 + run], i % 8);
  }
  __device__ static float scale(const uint8_t* b, int group) { return iq2_scale(b, scale_nibble(b + 74, group)); }
};
struct FileIq3Xxs {  // d, 64 bytes of grid runs of 4, of each 32 then 28 bits of signs and 4 of scale
  static constexpr int kSteps = 2, kBlockK = 256, kBlockBytes = 98;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i, const uint8_t* grid) {
    const uint32_t signs = even_signs(file_u32(b + 66 + i / 32 * 4) >> (i % 32 / 8 * 7) & 127);
    return signed_magnitude(grid[b[2 + i / 4] * 4 + i % 4], signs, i % 8);
  }
  __device__ static float scale(const uint8_t* b, int group) {
    return __fmul_rn(__fmul_rn(__half2float(file_half(b)), 0.5f + static_cast<float>(file_u32(b + 66 + group * 4) >> 28)), 0.5f);
  }
};
struct FileIq3S {  // d, 64 bytes of grid runs of 4, 8 of grid's upper bits, 32 of signs, 4 of scales of 32
  static constexpr int kSteps = 2, kBlockK = 256, kBlockBytes = 110;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i, const uint8_t* grid) {
    const int run = i % 32 / 4, q = b[2 + i / 4] | (b[66 + i / 32] >> run & 1) << 8;
    return signed_magnitude(grid[q * 4 + i % 4], b[74 + i / 8], i % 8);
  }
  __device__ static float scale(const uint8_t* b, int group) {
    return __fmul_rn(__half2float(file_half(b)), static_cast<float>(1 + 2 * scale_nibble(b + 106, group)));
  }
};

}  // namespace quintet::cuda
