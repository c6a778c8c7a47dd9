// Four-bit formats with one scale a group, and perhaps a minimum: the project's INT4, GGUF's Q4_0 and Q4_1 (groups of 32), and
// the project's three-bit integers, which take four bits here.
#pragma once

#include "backend/cuda/formats/format.cuh"

namespace quintet::cuda {

/// w = scale * (q - 8), or scale * q + m, groups of 32, 64 or 128. File block: half scale, half m, then codes: input i of a
/// group of g in the low (i < g / 2) or high nibble of byte i % (g / 2).
template <int kGroup, bool kWithMin>
struct Int4 {
  static constexpr int kPieceK = 128, kGroupSteps = kGroup / 16, kGroups = kPieceK / kGroup;
  static constexpr bool kHasMin = kWithMin;
  static constexpr int kScales = 1024, kMins = kScales + 32 * kGroups, kPieceBytes = kMins + (kWithMin ? 32 * kGroups : 0);
  static constexpr int kFileBlockK = kGroup, kFileCodes = kWithMin ? 4 : 2, kFileBlockBytes = kFileCodes + kGroup / 2;
  using Regs = NibbleRegs;
  using Store = NibbleStore;

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    nibbles_to_half<kWithMin ? 0 : 8>(regs.step(step), a);
  }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int group, int row) { return half_of<kGroups>(piece + kScales, group, row); }
  __device__ static __forceinline__ float minimum(const uint8_t* piece, int group, int row) {
    if constexpr (!kWithMin) return 0;
    return -half_of<kGroups>(piece + kMins, group, row);
  }

  __device__ static int file_number(const uint8_t* block, int i) {
    const uint8_t byte = block[kFileCodes + i % (kGroup / 2)];
    return i < kGroup / 2 ? byte & 15 : byte >> 4;
  }
  __device__ static bool pack_scales(const uint8_t* block, int, uint8_t* piece, int group, int row) {
    const int index = row * kGroups + group;
    reinterpret_cast<__half*>(piece + kScales)[index] = file_half(block);
    if constexpr (kWithMin) reinterpret_cast<__half*>(piece + kMins)[index] = file_half(block + 2);
    return is_finite(file_half(block)) && (!kWithMin || is_finite(file_half(block + 2)));
  }
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    const float product = __fmul_rn(static_cast<float>(kWithMin ? number : number - 8), scale(piece, group, row));
    return kWithMin ? __fadd_rn(product, -minimum(piece, group, row)) : product;
  }
};

/// Three bits: w = scale * (q - 4), or scale * q + m. Two bits of input i of a group of g in byte i % (g / 4), bit pair i / (g / 4);
/// behind them the third in byte i % (g / 8), bit i / (g / 8).
template <int kGroup, bool kWithMin>
struct FileInt3 {
  using Layout = Int4<kGroup, kWithMin>;
  static constexpr int kFileBlockK = kGroup, kFileBlockBytes = Layout::kFileCodes + 3 * kGroup / 8;
  __device__ static int file_number(const uint8_t* block, int i) {
    const uint8_t *low = block + Layout::kFileCodes, *high = low + kGroup / 4;
    const int code = (low[i % (kGroup / 4)] >> (i / (kGroup / 4) * 2) & 3) | (high[i % (kGroup / 8)] >> (i / (kGroup / 8)) & 1) << 2;
    return kWithMin ? code : code + 4;  // q - 4 is (q + 4) - 8
  }
  __device__ static bool pack_scales(const uint8_t* block, int first, uint8_t* piece, int group, int row) {
    return Layout::pack_scales(block, first, piece, group, row);
  }
};

}  // namespace quintet::cuda
