// NF4: four bits that name one of 16 levels, FP32 scales of 64 inputs.
#pragma once

#include "backend/cuda/formats/format.cuh"

namespace quintet::cuda {

/// The levels times kLevelScale, rounded to halves: with this factor the worst one is off by 2^-12.6 of itself, as little as with
/// any factor (without: 2^-11.6). Products use these, value() those of the codec.
__host__ __device__ constexpr uint32_t nf4_half(int q) {
  constexpr uint16_t kLevels[16] = {0xbe8e, 0xbc90, 0xbae2, 0xb92d, 0xb775, 0xb4d8, 0xb0c6, 0x0000,
                                    0x302c, 0x3438, 0x3674, 0x386e, 0x39c7, 0x3b60, 0x3cbd, 0x3e8e};
  return kLevels[q];
}
/// Upper or lower bytes of four levels.
__host__ __device__ constexpr uint32_t nf4_bytes(int first, bool upper) {
  uint32_t word = 0;
  for (int i = 0; i < 4; ++i) word |= (nf4_half(first + i) >> (upper ? 8 : 0) & 255) << (8 * i);
  return word;
}
/// Bytes of the levels of four numbers: three bits of a number choose in each half of the table, the fourth between them.
template <bool kUpper>
__device__ __forceinline__ uint32_t nf4_look_up(uint32_t numbers) {
  constexpr uint32_t kTable[4] = {nf4_bytes(0, kUpper), nf4_bytes(4, kUpper), nf4_bytes(8, kUpper), nf4_bytes(12, kUpper)};
  const uint32_t lowest_three = numbers & 0x7777;
  return __byte_perm(__byte_perm(kTable[0], kTable[1], lowest_three), __byte_perm(kTable[2], kTable[3], lowest_three), (numbers >> 1 & 0x4444) | 0x3210);
}
/// The two levels of a byte as halves.
__device__ __forceinline__ uint32_t nf4_pair(uint32_t byte) { return __byte_perm(nf4_look_up<false>(byte), nf4_look_up<true>(byte), 0x5140); }

/// w = scale * level(q). Number index i of a lane's step lies at bits 4 i. A table in shared memory has two levels for every byte,
/// kCopies (8 or 32) times, so that lanes read banks of their own or share one with three others: four loads a step instead of 22
/// integer operations, which issue every second cycle. kWide: entries of a byte lie 256 bytes from those of the next, so that one byte
/// permutation makes an address; 64 KiB of the kernel's dynamic shared memory.
template <int kCopies, bool kWide = false>
struct Nf4 {
  using FewRows = Nf4<32, true>;  ///< for kernels that have room for it
  static constexpr int kPieceK = 128, kGroupSteps = 4, kScales = 1024, kPieceBytes = kScales + 128, kStride = kWide ? 64 : kCopies, kEntries = 256 * kStride;
  static constexpr int kStaticBytes = kWide ? 0 : kEntries * 4, kDynamicBytes = kWide ? kEntries * 4 : 0;
  static constexpr bool kHasMin = false;
  static constexpr float kLevelScale = 1.6384963989257812f;
  __device__ static __forceinline__ uint32_t* table() {
    if constexpr (kWide) {
      extern __shared__ uint8_t dynamic_memory[];
      return reinterpret_cast<uint32_t*>(dynamic_memory);
    } else {
      __shared__ uint32_t pairs[kEntries];
      return pairs;
    }
  }
  __device__ static __forceinline__ void prepare(int thread, int threads) {
    for (int i = thread; i < 256 * kCopies; i += threads) table()[i / kCopies * kStride + i % kCopies] = nf4_pair(i / kCopies);
  }

  struct Regs {
    NibbleRegs numbers;
    uint32_t lane_bytes;
    __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
      numbers.load(piece, lane);
      lane_bytes = lane % kCopies * 4;
    }
  };
  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    const uint32_t v = regs.numbers.step(step);
    const auto at = [](uint32_t bytes) { return *reinterpret_cast<const uint32_t*>(reinterpret_cast<const uint8_t*>(table()) + bytes); };
    if constexpr (kWide) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[i] = at(__byte_perm(v, regs.lane_bytes, 0x5504 | i << 4));  // byte i above the lane's
      return;
    }
    constexpr int kShift = kCopies == 32 ? 7 : 5;  // from a byte to the bytes before its entries
    static_assert(4 * kCopies == 1 << kShift);
    const auto look_up = [&](uint32_t shifted) { return at(and_or(shifted, 255 << kShift, regs.lane_bytes)); };
    a[0] = look_up(v << kShift), a[1] = look_up(v >> (8 - kShift)), a[2] = look_up(v >> (16 - kShift)), a[3] = look_up(v >> (24 - kShift));
  }
  __device__ static __forceinline__ float own_scale(const uint8_t* piece, int group, int row) {
    const float2 both = reinterpret_cast<const float2*>(piece + kScales)[row];
    return group ? both.y : both.x;
  }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int group, int row) { return own_scale(piece, group, row) * (1 / kLevelScale); }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  struct Store {
    __device__ static void put(uint8_t* piece, int lane, int step, int index, int number) {
      NibbleStore::word(piece, lane, step) |= static_cast<uint32_t>(number) << (4 * index);
    }
    __device__ static int get(const uint8_t* piece, int lane, int step, int index) {
      return NibbleStore::word(const_cast<uint8_t*>(piece), lane, step) >> (4 * index) & 15;
    }
  };
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    constexpr float kLevels[16] = {-1.0f, -0.6961928009986877f, -0.5250730514526367f, -0.39491748809814453f, -0.28444138169288635f, -0.18477343022823334f,
                                   -0.09105003625154495f, 0.0f, 0.07958029955625534f, 0.16093020141124725f, 0.24611230194568634f, 0.33791524171829224f,
                                   0.44070982933044434f, 0.5626170039176941f, 0.7229568362236023f, 1.0f};
    return __fmul_rn(own_scale(piece, group, row), kLevels[number]);
  }
};

/// Input 2 i in the high half of byte i, 2 i + 1 in the low half, behind the scale: a half, or (kDouble) a byte under the row's
/// scale.
template <class Layout, bool kDouble>
struct FileNf4 {
  static constexpr int kHeader = kDouble ? 1 : 2, kFileBlockK = 64, kFileBlockBytes = kHeader + 32;
  static constexpr bool kRowScaled = kDouble;
  __device__ static int file_number(const uint8_t* block, int i) {
    const uint8_t byte = block[kHeader + i / 2];
    return i % 2 ? byte & 15 : byte >> 4;
  }
  __device__ static bool put(float scale, uint8_t* piece, int group, int row) {
    reinterpret_cast<float*>(piece + Layout::kScales)[row * 2 + group] = scale;
    return is_finite(scale);
  }
  __device__ static bool pack_scales(const uint8_t* block, int, uint8_t* piece, int group, int row) {
    return put(__half2float(file_half(block)), piece, group, row);
  }
  __device__ static bool pack_scales(const uint8_t* block, int, uint8_t* piece, int group, int row, float row_scale) {
    return put(__fmul_rn(row_scale, static_cast<float>(block[0])), piece, group, row);
  }
};

}  // namespace quintet::cuda
