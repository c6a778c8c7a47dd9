// GGUF's k-quants: w = (d * scale) * (q - zero) - dmin * min, where each group has small integers `scale` and `min` and each
// block of 256 has halves d and dmin. Numbers of four bits lie as NibbleStore has them; a fifth and sixth bit lie in planes
// behind them.
#pragma once

#include "backend/cuda/formats/format.cuh"

namespace quintet::cuda {

/// Where the bits above the lowest four of a lane's numbers lie: a word holds 16 / (8 kHigh) k16 steps; register r of step s
/// has its two numbers at bits p and p + 16, p = (s % steps * 4 + r) * kHigh for kHigh = 2 and r * 4 + s % 4 for kHigh = 1.
template <int kHigh>
struct HighBits {
  static constexpr int kSteps = kHigh == 1 ? 4 : 2, kWords = 8 / kSteps, kBytes = 32 * kWords * 4;
  __host__ __device__ static constexpr int place(int step, int reg) {
    return kHigh == 1 ? reg * 4 + step % 4 : (step % 2 * 4 + reg) * 2;
  }
  __device__ static uint32_t& word(uint8_t* planes, int lane, int step) {
    return reinterpret_cast<uint32_t*>(planes)[lane * kWords + step / kSteps];
  }
};

/// `File` says how a block of the file reads: kBits, kZero, kGroupSteps, kHasMin, kBlockBytes, d_at, dmin_at, number(), scale(),
/// minimum().
template <class File>
struct KQuant {
  static constexpr int kPieceK = 128, kGroupSteps = File::kGroupSteps, kFileBlockK = 256, kFileBlockBytes = File::kBlockBytes;
  static constexpr bool kHasMin = File::kHasMin;
  static constexpr int kHigh = File::kBits - 4, kGroups = 8 / kGroupSteps;
  using Planes = HighBits<kHigh ? kHigh : 1>;
  static constexpr int kScales = 1024 + (kHigh ? Planes::kBytes : 0), kMins = kScales + 16 * kGroups;
  static constexpr int kSuper = kMins + (kHasMin ? 16 * kGroups : 0), kPieceBytes = kSuper + (kHasMin ? 64 : 32);
  static_assert(kPieceBytes % 16 == 0);

  struct Regs {
    NibbleRegs low;
    uint32_t high[Planes::kWords];
    __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
      low.load(piece, lane);
      if constexpr (kHigh == 1) {
        const uint2 w = reinterpret_cast<const uint2*>(piece + 1024)[lane];
        high[0] = w.x, high[1] = w.y;
      } else if constexpr (kHigh == 2) {
        const uint4 w = reinterpret_cast<const uint4*>(piece + 1024)[lane];
        high[0] = w.x, high[1] = w.y, high[2] = w.z, high[3] = w.w;
      }
    }
  };

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    if constexpr (kHigh == 0) {
      nibbles_to_half<File::kZero>(regs.low.step(step), a);
    } else {
      // As nibbles_to_half, with the high bits put above the nibble: at bits 4 and up of a register that holds its nibble
      // at bit 0, at bits 8 and up of one that holds it at bit 4 (and is divided by 16).
      const half2 low_offset = __half2half2(__float2half_rn(1024.f + File::kZero)), sixteenth = __half2half2(__float2half_rn(1.f / 16));
      const half2 high_offset = __half2half2(__float2half_rn(-64.f - File::kZero));
      const uint32_t v = regs.low.step(step), next = v >> 8, word = regs.high[step / Planes::kSteps];
      constexpr uint32_t kMask = kHigh == 1 ? 1 : 3;
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const int from = Planes::place(step, r), to = r % 2 ? 8 : 4;
        const uint32_t shifted = from >= to ? word >> (from - to) : word << (to - from);
        const uint32_t nibble = and_or(r / 2 ? next : v, r % 2 ? 0x00f000f0 : 0x000f000f, 0x64006400);
        const uint32_t number = and_or(shifted, r % 2 ? kMask * 0x01000100u : kMask * 0x00100010u, nibble);
        a[r] = r % 2 ? half2_fma(number, sixteenth, high_offset)
                     : half2_sub(number, *reinterpret_cast<const uint32_t*>(&low_offset));
      }
    }
  }

  /// Byte `group` of a row's kGroups, which lie together: one load for all of them.
  __device__ static __forceinline__ uint32_t row_byte(const uint8_t* bytes, int group, int row) {
    if constexpr (kGroups == 4) return reinterpret_cast<const uint32_t*>(bytes)[row] >> (group * 8) & 255;
    const uint2 eight = reinterpret_cast<const uint2*>(bytes)[row];
    return (group / 4 ? eight.y : eight.x) >> (group % 4 * 8) & 255;
  }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int group, int row) {
    const uint32_t byte = row_byte(piece + kScales, group, row);
    const float number = kHasMin ? static_cast<float>(byte) : static_cast<float>(static_cast<int8_t>(byte));
    return __fmul_rn(half_at(piece + kSuper, row), number);
  }
  __device__ static __forceinline__ float minimum(const uint8_t* piece, int group, int row) {
    if constexpr (!kHasMin) return 0;
    return __fmul_rn(half_at(piece + kSuper + 32, row), static_cast<float>(row_byte(piece + kMins, group, row)));
  }

  struct Store {
    __device__ static void put(uint8_t* piece, int lane, int step, int index, int number) {
      NibbleStore::put(piece, lane, step, index, number & 15);
      if constexpr (kHigh > 0)
        Planes::word(piece + 1024, lane, step) |= static_cast<uint32_t>(number >> 4) << (Planes::place(step, index >> 1) + (index & 1) * 16);
    }
    __device__ static int get(const uint8_t* piece, int lane, int step, int index) {
      int number = NibbleStore::get(piece, lane, step, index);
      if constexpr (kHigh > 0) {
        const uint32_t word = Planes::word(const_cast<uint8_t*>(piece) + 1024, lane, step);
        number |= static_cast<int>(word >> (Planes::place(step, index >> 1) + (index & 1) * 16) & ((1 << kHigh) - 1)) << 4;
      }
      return number;
    }
  };

  __device__ static int file_number(const uint8_t* block, int i) { return File::number(block, i); }
  __device__ static bool pack_scales(const uint8_t* block, int first, uint8_t* piece, int, int row) {
    for (int group = 0; group < kGroups; ++group) {
      const int of_block = first / (kGroupSteps * 16) + group;
      piece[kScales + row * kGroups + group] = static_cast<uint8_t>(File::scale(block, of_block));
      if constexpr (kHasMin) piece[kMins + row * kGroups + group] = static_cast<uint8_t>(File::minimum(block, of_block));
    }
    reinterpret_cast<__half*>(piece + kSuper)[row] = file_half(block + File::kD);
    bool good = is_finite(file_half(block + File::kD));
    if constexpr (kHasMin) {
      reinterpret_cast<__half*>(piece + kSuper + 32)[row] = file_half(block + File::kDMin);
      good &= is_finite(file_half(block + File::kDMin));
    }
    return good;
  }
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    const float product = __fmul_rn(scale(piece, group, row), static_cast<float>(number - File::kZero));
    return kHasMin ? __fadd_rn(product, -minimum(piece, group, row)) : product;
  }
};

/// The 6-bit scales (from 0) and minima (from 4) of Q4_K and Q5_K: those of groups 0..3 in the low six bits of their bytes,
/// those of 4..7 in four bits of bytes 8..11 and two above the former.
__device__ inline int six_bits(const uint8_t* packed, int group, bool is_min) {
  const int at = is_min ? 4 : 0;
  if (group < 4) return packed[at + group] & 63;
  const int low = is_min ? packed[4 + group] >> 4 : packed[4 + group] & 15;
  return low | (packed[at + group - 4] >> 6) << 4;
}

struct FileQ4K {  // d, dmin, 12 bytes of scales, 128 of numbers
  static constexpr int kBits = 4, kZero = 0, kGroupSteps = 2, kBlockBytes = 144, kD = 0, kDMin = 2;
  static constexpr bool kHasMin = true;
  __device__ static int number(const uint8_t* b, int i) { return b[16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15; }
  __device__ static int scale(const uint8_t* b, int group) { return six_bits(b + 4, group, false); }
  __device__ static int minimum(const uint8_t* b, int group) { return six_bits(b + 4, group, true); }
};
struct FileQ5K {  // d, dmin, 12 bytes of scales, 32 of fifth bits, 128 of numbers
  static constexpr int kBits = 5, kZero = 0, kGroupSteps = 2, kBlockBytes = 176, kD = 0, kDMin = 2;
  static constexpr bool kHasMin = true;
  __device__ static int number(const uint8_t* b, int i) {
    return (b[48 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4) & 15) | (b[16 + i % 32] >> (i / 32) & 1) << 4;
  }
  __device__ static int scale(const uint8_t* b, int group) { return six_bits(b + 4, group, false); }
  __device__ static int minimum(const uint8_t* b, int group) { return six_bits(b + 4, group, true); }
};
struct FileQ6K {  // 128 bytes of low halves, 64 of upper two bits, 16 signed scales, d
  static constexpr int kBits = 6, kZero = 32, kGroupSteps = 1, kBlockBytes = 210, kD = 208;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i) {
    return (b[i / 128 * 64 + i % 64] >> (i / 64 % 2 * 4) & 15) | (b[128 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) << 4;
  }
  __device__ static int scale(const uint8_t* b, int group) { return b[192 + group]; }
};
struct FileQ2K {  // 16 bytes of scales (low half) and minima, 64 of numbers, d, dmin
  static constexpr int kBits = 4, kZero = 0, kGroupSteps = 1, kBlockBytes = 84, kD = 80, kDMin = 82;
  static constexpr bool kHasMin = true;
  __device__ static int number(const uint8_t* b, int i) { return b[16 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3; }
  __device__ static int scale(const uint8_t* b, int group) { return b[group] & 15; }
  __device__ static int minimum(const uint8_t* b, int group) { return b[group] >> 4; }
};
struct FileQ3K {  // 32 bytes of third bits, 64 of numbers, 12 of 6-bit scales less 32, d
  static constexpr int kBits = 4, kZero = 4, kGroupSteps = 1, kBlockBytes = 110, kD = 108;
  static constexpr bool kHasMin = false;
  __device__ static int number(const uint8_t* b, int i) {
    return (b[32 + i / 128 * 32 + i % 32] >> (i / 32 % 4 * 2) & 3) | (b[i % 32] >> (i / 32) & 1) << 2;
  }
  __device__ static int scale(const uint8_t* b, int group) {
    const uint8_t* packed = b + 96;
    return ((packed[group % 8] >> (group / 8 * 4) & 15) | (packed[8 + group % 4] >> (group / 4 * 2) & 3) << 4) - 32;
  }
};

using Q4_K = KQuant<FileQ4K>;
using Q5_K = KQuant<FileQ5K>;
using Q6_K = KQuant<FileQ6K>;
using Q2_K = KQuant<FileQ2K>;
using Q3_K = KQuant<FileQ3K>;

}  // namespace quintet::cuda
