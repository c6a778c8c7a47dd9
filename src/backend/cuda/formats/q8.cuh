// Formats whose numbers take a byte: the project's INT8 and GGUF's Q8_0, integers and E4M3 floats under a scale a row, and
// what others are unfolded to at load (unfolded.cuh).
#pragma once

#include "backend/cuda/formats/format.cuh"

namespace quintet::cuda {

/// Bytes of a piece of 128 inputs, two k16 steps in each of a lane's four 16-byte words.
struct ByteRegs {
  uint4 v[4];
  __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] = reinterpret_cast<const uint4*>(piece)[i * 32 + lane];
  }
  /// The bytes of registers 0 and 1, and those of 2 and 3.
  __device__ __forceinline__ uint2 step(int s) const {
    const uint4& q = v[s / 2];
    return s % 2 ? make_uint2(q.z, q.w) : make_uint2(q.x, q.y);
  }
  /// Of bytes that are numbers plus kOffset. A byte b under the exponent of 1024 is 1024 + b: one byte permutation for two
  /// numbers, then exact subtraction.
  template <int kOffset>
  __device__ __forceinline__ void fragment(int s, uint32_t (&a)[4]) const {
    const uint2 q = step(s);
    constexpr uint32_t kExponent = 0x64646464;
    const half2 offset = __half2half2(__float2half_rn(1024.f + kOffset));
    const uint32_t zero = *reinterpret_cast<const uint32_t*>(&offset);
    a[0] = half2_sub(__byte_perm(q.x, kExponent, 0x4140), zero);
    a[1] = half2_sub(__byte_perm(q.x, kExponent, 0x4342), zero);
    a[2] = half2_sub(__byte_perm(q.y, kExponent, 0x4140), zero);
    a[3] = half2_sub(__byte_perm(q.y, kExponent, 0x4342), zero);
  }
};

/// Numbers plus kOffset, 0 to 255.
template <int kOffset>
struct ByteStore {
  /// Number index: bit 0 k's lowest bit, bit 1 row + 8, bit 2 k + 8: registers 0..3, two numbers each.
  __device__ static size_t at(int lane, int step, int index) {
    return (step / 2 * 32 + lane) * 16 + step % 2 * 8 + ((index >> 1) & 3) * 2 + (index & 1);
  }
  __device__ static void put(uint8_t* piece, int lane, int step, int index, int number) {
    piece[at(lane, step, index)] = static_cast<uint8_t>(number + kOffset);
  }
  __device__ static int get(const uint8_t* piece, int lane, int step, int index) { return piece[at(lane, step, index)] - kOffset; }
};

/// w = scale * q with q in [-128, 127], or scale * q + m with q in [0, 255], groups of 32.
template <bool kWithMin>
struct Int8 {
  static constexpr int kPieceK = 128, kGroupSteps = 2, kScales = 2048, kMins = kScales + 128, kPieceBytes = kMins + (kWithMin ? 128 : 0);
  static constexpr bool kHasMin = kWithMin;
  static constexpr int kOffset = kWithMin ? 0 : 128;
  using Regs = ByteRegs;
  using Store = ByteStore<kOffset>;

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) { regs.template fragment<kOffset>(step, a); }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int group, int row) { return half_of_four(piece + kScales, group, row); }
  __device__ static __forceinline__ float minimum(const uint8_t* piece, int group, int row) {
    if constexpr (!kWithMin) return 0;
    return -half_of_four(piece + kMins, group, row);
  }
  __device__ static float value(int number, const uint8_t* piece, int group, int row) {
    const float product = __fmul_rn(static_cast<float>(number), scale(piece, group, row));
    return kWithMin ? __fadd_rn(product, -minimum(piece, group, row)) : product;
  }
};

/// Groups of 32, 64 or 128; larger ones are written down for each 32. File block: half scale, half m, then bytes, signed where there
/// is no m.
template <int kGroup, bool kWithMin>
struct FileInt8 {
  using Layout = Int8<kWithMin>;
  static constexpr int kFileBlockK = kGroup, kFileCodes = kWithMin ? 4 : 2, kFileBlockBytes = kFileCodes + kGroup;
  __device__ static int file_number(const uint8_t* block, int i) {
    const uint8_t byte = block[kFileCodes + i];
    return kWithMin ? byte : static_cast<int8_t>(byte);
  }
  __device__ static bool pack_scales(const uint8_t* block, int, uint8_t* piece, int group, int row) {
    for (int i = 0; i < kGroup / 32; ++i) {
      const int index = row * 4 + group * (kGroup / 32) + i;
      reinterpret_cast<__half*>(piece + Layout::kScales)[index] = file_half(block);
      if constexpr (kWithMin) reinterpret_cast<__half*>(piece + Layout::kMins)[index] = file_half(block + 2);
    }
    return is_finite(file_half(block)) && (!kWithMin || is_finite(file_half(block + 2)));
  }
};

/// Bytes under an FP32 scale a row, which every piece holds: w = scale * q, q an integer from -128 to 127 or an E4M3 float. File
/// block: 32 bytes.
template <bool kFloat>
struct RowScaled {
  static constexpr int kPieceK = 128, kGroupSteps = 8, kScales = 2048, kPieceBytes = kScales + 64;
  static constexpr bool kHasMin = false, kRowScaled = true;
  static constexpr int kFileBlockK = 32, kFileBlockBytes = 32;
  using Regs = ByteRegs;
  using Store = ByteStore<kFloat ? 0 : 128>;

  __device__ static __forceinline__ void fragment(const Regs& regs, int step, uint32_t (&a)[4]) {
    if constexpr (!kFloat) {
      regs.template fragment<128>(step, a);
    } else {
      // An E4M3 byte's sign at the top, its other bits one below: a half 2^8 times smaller, subnormal ones too. The stored
      // scales make up for it.
      const uint2 q = regs.step(step);
      const auto halves = [](uint32_t v) { return and_or(v, 0x80008000, v >> 1 & 0x3f803f80); };
      a[0] = halves(__byte_perm(q.x, 0, 0x1404)), a[1] = halves(__byte_perm(q.x, 0, 0x3424));
      a[2] = halves(__byte_perm(q.y, 0, 0x1404)), a[3] = halves(__byte_perm(q.y, 0, 0x3424));
    }
  }
  __device__ static __forceinline__ float scale(const uint8_t* piece, int, int row) { return reinterpret_cast<const float*>(piece + kScales)[row]; }
  __device__ static __forceinline__ float minimum(const uint8_t*, int, int) { return 0; }

  __device__ static int file_number(const uint8_t* block, int i) { return kFloat ? block[i] : static_cast<int8_t>(block[i]); }
  __device__ static bool good_number(int number) { return !kFloat || (number & 0x7f) != 0x7f; }
  __device__ static bool pack_scales(const uint8_t*, int, uint8_t* piece, int, int row, float row_scale) {
    const float stored = kFloat ? row_scale * 256 : row_scale;
    reinterpret_cast<float*>(piece + kScales)[row] = stored;
    return is_finite(stored);
  }
  __device__ static float value(int number, const uint8_t* piece, int, int row) {
    if constexpr (!kFloat) return __fmul_rn(static_cast<float>(number), scale(piece, 0, row));
    const int half = (number & 0x80) << 8 | (number & 0x7f) << 7;
    return __fmul_rn(__half2float(__ushort_as_half(static_cast<unsigned short>(half))), scale(piece, 0, row));
  }
};

}  // namespace quintet::cuda
