// Four-bit formats with one scale a group, and perhaps a minimum: the project's INT4, GGUF's Q4_0 and Q4_1 (groups of 32), and
// the project's three-bit integers, which take four bits here.
#pragma once

#include "backend/cuda/formats/format.cuh"

namespace quintet::cuda {

/// w = scale * (q - 8), or scale * q + m, groups of 32, 64 or 128. File block: half scale, half m, then codes: input i of a
/// group of g in the low (i < g / 2) or high nibble of byte i % (g / 2).
///
/// Products take w / unit rounded once to FP16, by one operation: nibbles lie at bits 2 to 5 (rows 0 to 7 of a piece) and 6 to 9
/// (rows 8 to 15) of a half, where they are the subnormal numbers q 2^-22 and q 2^-18, and meet scale and m in one fused
/// multiply-add. The piece keeps scale 2^22 / unit, of the upper rows scale 2^18 / unit, and m 2^22 / unit. So no sums of groups have to
/// be scaled: of prompts that took a fifth of the time, and the power for it slowed the rest (docs/performance.md).
template <int kGroup, bool kWithMin>
struct Int4 {
  static constexpr int kPieceK = 128, kGroupSteps = 0, kScaleK = kGroup, kGroups = kPieceK / kGroup;
  static constexpr bool kHasMin = false;
  static constexpr float kUnit = 64;  ///< scales below 1 fit a half then, and of those above 2^-11 nothing is lost
  static constexpr int kScales = 1024, kMins = kScales + 32 * kGroups, kPieceBytes = kMins + (kWithMin ? 32 * kGroups : 0);
  static constexpr int kFileBlockK = kGroup, kFileCodes = kWithMin ? 4 : 2, kFileBlockBytes = kFileCodes + kGroup / 2;
  using Store = RotatedNibbleStore;

  struct Regs : NibbleRegs {
    HalvesOf<2 * kGroups> scale, minimum;  ///< of rows g and g + 8
    __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
      NibbleRegs::load(piece, lane);
      scale.load(piece + kScales, lane / 4);
      if (kWithMin) minimum.load(piece + kMins, lane / 4);
    }
    /// m / unit of a row's group; without one, -8 scale / unit.
    __device__ __forceinline__ half2 offset(int upper, int group) const {
      if (kWithMin) return __hmul2(minimum.both(upper * kGroups + group), __half2half2(__ushort_as_half(0x0004)));  // by 2^-22
      return __hmul2(scale.both(upper * kGroups + group), __half2half2(__ushort_as_half(upper ? 0x8200 : 0x8020)));  // by -8 x 2^-18 or -8 x 2^-22
    }
  };
  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    constexpr uint32_t kNumbers[2] = {0x003c003c, 0x03c003c0};
    const int group = step * 16 / kGroup;
    const uint32_t v = regs.step(step), next = __funnelshift_r(v, v, 8);
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = half2_fma((i < 2 ? v : next) & kNumbers[i % 2], regs.scale.both(i % 2 * kGroups + group), regs.offset(i % 2, group));
  }
  __device__ static __forceinline__ float scale(const uint8_t*, int, int) { return 1; }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  __device__ static int file_number(const uint8_t* block, int i) {
    const uint8_t byte = block[kFileCodes + i % (kGroup / 2)];
    return i < kGroup / 2 ? byte & 15 : byte >> 4;
  }
  __device__ static PackFault pack_scales(const uint8_t* block, int, uint8_t* piece, int group, int row, float unit) {
    const auto put = [&](int at, __half value, float factor) {
      const __half packed = __float2half_rn(__half2float(value) * (factor / unit));
      reinterpret_cast<__half*>(piece + at)[place(row, group)] = packed;
      return !is_finite(value) ? PackFault::not_finite : is_finite(packed) ? PackFault::none : PackFault::out_of_range;
    };
    const PackFault of_scale = put(kScales, file_half(block), scale_factor(row));
    if constexpr (!kWithMin) return of_scale;
    const PackFault of_minimum = put(kMins, file_half(block + 2), 0x1p22f);
    return of_minimum > of_scale ? of_minimum : of_scale;
  }
  /// w / unit.
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    const float scale = half_at(piece + kScales, place(row, group)) / scale_factor(row), product = __fmul_rn(static_cast<float>(kWithMin ? number : number - 8), scale);
    return kWithMin ? __fadd_rn(product, half_at(piece + kMins, place(row, group)) * 0x1p-22f) : product;
  }

 private:
  /// Of a row's group among scales and minima: rows g and g + 8, which a lane needs, lie together.
  __device__ static constexpr int place(int row, int group) { return (row % 8 * 2 + row / 8) * kGroups + group; }
  __device__ static constexpr float scale_factor(int row) { return row < 8 ? 0x1p22f : 0x1p18f; }
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
  __device__ static PackFault pack_scales(const uint8_t* block, int first, uint8_t* piece, int group, int row, float unit) {
    return Layout::pack_scales(block, first, piece, group, row, unit);
  }
};

}  // namespace quintet::cuda
