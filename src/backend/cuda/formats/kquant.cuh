// GGUF's k-quants: w = (d * scale) * (q - zero) - dmin * min, where each group has small integers `scale` and `min` and each
// block of 256 has halves d and dmin. Numbers of four bits lie as NibbleStore has them; a fifth and sixth bit lie in planes
// behind them.
#pragma once

#include <type_traits>

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

/// Numbers of four bits as RotatedNibbleStore has them, for halves without an exponent: those of lower rows are q / kLower there, those of
/// upper rows q / kUpper.
struct FourBitNumbers {
  static constexpr float kLower = 0x1p22f, kUpper = 0x1p18f;
  using Store = RotatedNibbleStore;

  struct Regs : NibbleRegs {
    __device__ __forceinline__ void numbers(int step, uint32_t (&n)[4]) const {
      const uint32_t v = this->step(step), next = __funnelshift_r(v, v, 8);
      n[0] = v & 0x003c003c, n[1] = v & 0x03c003c0, n[2] = next & 0x003c003c, n[3] = next & 0x03c003c0;
    }
  };
};

/// The same of five bits. Each four steps of a lane are five words, whose halves hold three numbers and a bit of a fourth: those at bits 0
/// and 5 need no shift, lower and upper rows. The fifth words lie together behind the others. As nibbles and a plane of fifth bits, which took
/// four operations a register, 16 rows ran at 51 % of the read ceiling.
struct FiveBitNumbers {
  static constexpr float kLower = 0x1p24f, kUpper = 0x1p19f;

  /// Of register r of step s of four: the word, and the number's place there: 0, 1 or 2 at that many times five bits, 3 at bit 15 of all words.
  __host__ __device__ static constexpr int word_of(int s, int r) { return r < 2 ? s : s == 0 ? r - 2 : s == 1 ? r : 4; }
  __host__ __device__ static constexpr int place_of(int s, int r) { return r < 2 ? r : s < 2 ? 2 : s == 2 ? r - 2 : r; }

  struct Regs {
    uint4 v[2];
    uint2 fifth;
    __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
      v[0] = reinterpret_cast<const uint4*>(piece)[lane];
      v[1] = reinterpret_cast<const uint4*>(piece)[32 + lane];
      fifth = reinterpret_cast<const uint2*>(piece + 1024)[lane];
    }
    __device__ __forceinline__ void numbers(int step, uint32_t (&n)[4]) const {
      constexpr uint32_t kLowest = 0x001f001f, kNext = 0x03e003e0;
      const uint4& q = v[step / 4];
      const uint32_t word[5] = {q.x, q.y, q.z, q.w, step / 4 ? fifth.y : fifth.x};
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        const uint32_t own = word[word_of(step % 4, r)], numbers = r % 2 ? kNext : kLowest;
        const int place = place_of(step % 4, r);
        if (place == 3) {
          n[r] = (word[0] >> 10) & 0x00200020;
#pragma unroll
          for (int i = 1; i < 5; ++i) n[r] = and_or(word[i] >> (10 - i), 0x00200020u << i, n[r]);
        } else {
          n[r] = (place == 2 ? own >> (r % 2 ? 5 : 10) : own) & numbers;
        }
      }
    }
  };

  struct Store {
    __device__ static uint32_t& word(uint8_t* piece, int lane, int step, int i) {
      return reinterpret_cast<uint32_t*>(piece)[i < 4 ? (step / 4 * 32 + lane) * 4 + i : 256 + lane * 2 + step / 4];
    }
    __device__ static void put(uint8_t* piece, int lane, int step, int index, int number) {
      const int reg = index >> 1, place = place_of(step % 4, reg), half = (index & 1) * 16;
      if (place < 3) word(piece, lane, step, word_of(step % 4, reg)) |= static_cast<uint32_t>(number) << (place * 5 + half);
      else
        for (int i = 0; i < 5; ++i) word(piece, lane, step, i) |= static_cast<uint32_t>(number >> i & 1) << (15 + half);
    }
    __device__ static int get(const uint8_t* piece, int lane, int step, int index) {
      const int reg = index >> 1, place = place_of(step % 4, reg), half = (index & 1) * 16;
      const auto bits = [&](int i, int from) { return word(const_cast<uint8_t*>(piece), lane, step, i) >> (from + half); };
      if (place < 3) return bits(word_of(step % 4, reg), place * 5) & 31;
      int number = 0;
      for (int i = 0; i < 5; ++i) number |= static_cast<int>(bits(i, 15) & 1) << i;
      return number;
    }
  };
};

/// The k-quants of five bits and less, whose products take w / unit rounded to FP16 as those of Int4 do (int4.cuh says how and why):
/// scales and minima of groups are rounded to FP16 and meet the number in one fused multiply-add. The piece has d kLower / unit (of the upper
/// rows d kUpper / unit) and dmin 2^22 / unit in the places of d and dmin.
///
/// A group's scale is a byte times d, rounded once: half arithmetic on two groups at a time. A byte under the exponent of 1024 is 1024 more; four
/// times a byte under none, a subnormal half, is 2^-22 of it. Through FP32 it took conversions, a tenth of a product's time.
template <class File>
struct RoundedKQuant {
  using Packed = KQuant<File>;  // whose layout this is, but for the words of numbers
  using Numbers = std::conditional_t<File::kBits == 5, FiveBitNumbers, FourBitNumbers>;
  static constexpr int kPieceK = Packed::kPieceK, kPieceBytes = Packed::kPieceBytes, kFileBlockK = Packed::kFileBlockK, kFileBlockBytes = Packed::kFileBlockBytes;
  static constexpr int kGroupSteps = 0, kScaleK = 16 * File::kGroupSteps, kGroups = Packed::kGroups, kWords = kGroups / 4;
  static constexpr bool kHasMin = false;
  static constexpr float kUnit = 64;
  static_assert(File::kBits == 4 || File::kBits == 5);
  using Store = typename Numbers::Store;

  struct Regs : Numbers::Regs {
    half2 scales[2][kGroups / 2], offsets[2][kGroups / 2];  ///< of two groups each, of rows g and g + 8; without minima fragment() forms the offsets
    __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
      Numbers::Regs::load(piece, lane);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = lane / 4 + i * 8;
        uint32_t words[kWords];
        load_row(piece + Packed::kScales, row, words);
        const half2 d = __half2half2(reinterpret_cast<const __half*>(piece + Packed::kSuper)[row]);
        constexpr uint32_t kExponent = 0x64646464, kSigns = 0x80808080;
        const half2 zero = __half2half2(__float2half_rn(File::kHasMin ? 1024.f : 1024.f + 128));
#pragma unroll
        for (int pair = 0; pair < kGroups / 2; ++pair) {
          const uint32_t word = File::kHasMin ? words[pair / 2] : words[pair / 2] ^ kSigns;
          scales[i][pair] = __hmul2(__hsub2(halves(__byte_perm(word, kExponent, pair % 2 ? 0x4342 : 0x4140)), zero), d);
        }
        if constexpr (File::kHasMin) {
          load_row(piece + Packed::kMins, row, words);
          const half2 dmin = __half2half2(reinterpret_cast<const __half*>(piece + Packed::kSuper + 32)[row]);
#pragma unroll
          for (int pair = 0; pair < kGroups / 2; ++pair)
            offsets[i][pair] = __hmul2(halves(__byte_perm(words[pair / 2] << 2, kSigns, pair % 2 ? 0x4342 : 0x4140)), dmin);  // six bits: none is lost
        }
      }
    }

   private:
    __device__ static __forceinline__ half2 halves(uint32_t bits) { return *reinterpret_cast<const half2*>(&bits); }
    __device__ static __forceinline__ void load_row(const uint8_t* bytes, int row, uint32_t (&to)[kWords]) {
      if constexpr (kWords == 1) {
        to[0] = reinterpret_cast<const uint32_t*>(bytes)[row];
      } else {
        const uint2 both = reinterpret_cast<const uint2*>(bytes)[row];
        to[0] = both.x, to[1] = both.y;
      }
    }
  };

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    const int group = step / File::kGroupSteps;
    uint32_t numbers[4];
    regs.numbers(step, numbers);
    const auto of_group = [&](const half2(&pairs)[kGroups / 2]) { return group % 2 ? __high2half2(pairs[group / 2]) : __low2half2(pairs[group / 2]); };
    half2 scale[2], offset[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scale[i] = of_group(regs.scales[i]);
      if constexpr (File::kHasMin) offset[i] = of_group(regs.offsets[i]);
      else offset[i] = __hmul2(scale[i], __half2half2(__float2half_rn(-File::kZero / (i ? Numbers::kUpper : Numbers::kLower))));
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = half2_fma(numbers[i], scale[i % 2], offset[i % 2]);
  }
  __device__ static __forceinline__ float scale(const uint8_t*, int, int) { return 1; }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  __device__ static int file_number(const uint8_t* block, int i) { return File::number(block, i); }
  __device__ static PackFault pack_scales(const uint8_t* block, int first, uint8_t* piece, int group, int row, float unit) {
    if (!Packed::pack_scales(block, first, piece, group, row)) return PackFault::not_finite;
    auto* super = reinterpret_cast<__half*>(piece + Packed::kSuper) + row;
    constexpr float kMostScale = 63;  // six bits and a sign at most
    const float d = __half2float(super[0]) * (scale_factor(row) / unit), dmin = File::kHasMin ? __half2float(super[16]) * (0x1p22f / unit) : 0;
    super[0] = __float2half_rn(d);
    if (File::kHasMin) super[16] = __float2half_rn(dmin);
    return is_finite(__float2half_rn(d * kMostScale)) && is_finite(__float2half_rn(dmin)) ? PackFault::none : PackFault::out_of_range;
  }
  /// w / unit, by d and dmin as they are packed: neither scales nor the sum are rounded to FP16.
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    const float scale = Packed::scale(piece, group, row) / scale_factor(row), product = __fmul_rn(scale, static_cast<float>(number - File::kZero));
    return File::kHasMin ? __fadd_rn(product, -Packed::minimum(piece, group, row) * 0x1p-22f) : product;
  }

 private:
  __device__ static constexpr float scale_factor(int row) { return row < 8 ? Numbers::kLower : Numbers::kUpper; }
};

using Q4_K = RoundedKQuant<FileQ4K>;
using Q5_K = RoundedKQuant<FileQ5K>;
using Q6_K = KQuant<FileQ6K>;
using Q2_K = RoundedKQuant<FileQ2K>;
using Q3_K = RoundedKQuant<FileQ3K>;

}  // namespace quintet::cuda
