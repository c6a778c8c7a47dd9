// Byte layouts of the compressed blocks of GGUF files. All fields are bytes or byte arrays, little-endian, so
// that a block may lie at any address. Multi-byte fields are read with load_u16 and load_f16.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/half.h"

namespace quintet {

inline constexpr int kSmallBlockWeights = 32;   ///< of Q4_0 to Q8_0 and IQ4_NL
inline constexpr int kSuperBlockWeights = 256;  ///< of the k-quants and the other i-quants

inline uint16_t load_u16(const uint8_t* p) { return static_cast<uint16_t>(p[0] | p[1] << 8); }
inline uint32_t load_u32(const uint8_t* p) {
  return load_u16(p) | static_cast<uint32_t>(load_u16(p + 2)) << 16;
}
inline float load_f16(const uint8_t* p) { return f16_to_f32(load_u16(p)); }
inline float load_f32(const uint8_t* p) { return std::bit_cast<float>(load_u32(p)); }

/// Weight i (of 32) is d * (q - 8); byte i holds q of weight i in its low half and of weight i + 16 in its
/// high half.
struct BlockQ4_0 {
  uint8_t d[2], q[16];
};
/// d * q + m.
struct BlockQ4_1 {
  uint8_t d[2], m[2], q[16];
};
/// d * (q - 16); the fifth bit of weight i is bit i of `high`.
struct BlockQ5_0 {
  uint8_t d[2], high[4], q[16];
};
/// d * q + m.
struct BlockQ5_1 {
  uint8_t d[2], m[2], high[4], q[16];
};
/// d * q, q signed.
struct BlockQ8_0 {
  uint8_t d[2], q[32];
};

/// 16 groups of 16: d * scale * q - dmin * min; scale and min are the low and high half of scales[group].
/// Each 32 bytes of q hold 128 weights, two bits a plane: plane p (bits 2p, 2p + 1) of byte i is weight 32 p
/// + i.
struct BlockQ2K {
  uint8_t scales[16], q[64], d[2], dmin[2];
};
/// 16 groups of 16: d * (scale - 32) * (q - 4), the third bit of q from `high`: bit b of byte i is weight 32
/// b + i. scales: 6 bits each, the low four of groups 0..7 and 8..15 in halves of bytes 0..7, the high two in
/// planes of 8..11.
struct BlockQ3K {
  uint8_t high[32], q[64], scales[12], d[2];
};
/// 8 groups of 32: d * scale * q - dmin * min, both 6 bits (see unpack_scale_min). Each 32 bytes of q hold 64
/// weights.
struct BlockQ4K {
  uint8_t d[2], dmin[2], scales[12], q[128];
};
/// The same with a fifth bit: bit g of high[i] belongs to weight i of group g.
struct BlockQ5K {
  uint8_t d[2], dmin[2], scales[12], high[32], q[128];
};
/// 16 groups of 16: d * scale * (q - 32), scale signed. Each 64 bytes of `low` hold the low halves of 128
/// weights, each 32 bytes of `high` two bits of them in planes.
struct BlockQ6K {
  uint8_t low[128], high[64], scales[16], d[2];
};

/// d * kIq4Values[q]; nibbles as Q4_0.
struct BlockIq4Nl {
  uint8_t d[2], q[16];
};
/// 8 groups of 32, each laid out as IQ4_NL: d * (scale - 32) * kIq4Values[q]; scale: four bits in scales_low,
/// two above in scales_high.
struct BlockIq4Xs {
  uint8_t d[2], scales_high[2], scales_low[4], q[128];
};
/// 8 groups of 32, each 4 grid indices of a byte, then 32 bits: four 7-bit sign sets and a 4-bit scale on
/// top.
struct BlockIq2Xxs {
  uint8_t d[2], q[64];
};
/// 32 runs of 8, each 16 bits: 9 of grid index, 7 of signs; a 4-bit scale for each 16 weights.
struct BlockIq2Xs {
  uint8_t d[2], q[64], scales[8];
};
/// 32 runs of 8: index 8 bits in q and two in `high`, one byte of signs; a 4-bit scale for each 16 weights.
struct BlockIq2S {
  uint8_t d[2], q[32], signs[32], high[8], scales[8];
};
/// 64 runs of 4: index a byte; for each 32 weights 32 bits of signs and scale as in IQ2_XXS.
struct BlockIq3Xxs {
  uint8_t d[2], q[64], signs_scales[32];
};
/// 64 runs of 4: index 8 bits in q and one in `high`, one bit of sign a weight; a 4-bit scale for each 32
/// weights.
struct BlockIq3S {
  uint8_t d[2], q[64], high[8], signs[32], scales[4];
};

inline constexpr int kNf4BlockWeights = 64;

/// d * kNf4Values[q]; byte i holds q of weight 2 i in its high half and of weight 2 i + 1 in its low half.
struct BlockNf4 {
  uint8_t d[2], q[32];
};
/// row scale * d * kNf4Values[q], d unsigned.
struct BlockNf4Dq {
  uint8_t d, q[32];
};
/// row scale * q, q floats E4M3 (tensor/float8.h).
struct BlockFp8 {
  uint8_t q[32];
};
/// row scale * q, q signed.
struct BlockInt8 {
  uint8_t q[32];
};

static_assert(sizeof(BlockNf4) == 34 && sizeof(BlockNf4Dq) == 33 && sizeof(BlockFp8) == 32 &&
              sizeof(BlockInt8) == 32);
static_assert(sizeof(BlockQ4_0) == 18 && sizeof(BlockQ4_1) == 20 &&
              sizeof(BlockQ5_0) == 22 && sizeof(BlockQ5_1) == 24 && sizeof(BlockQ8_0) == 34);
static_assert(sizeof(BlockQ2K) == 84 && sizeof(BlockQ3K) == 110 && sizeof(BlockQ4K) == 144 &&
              sizeof(BlockQ5K) == 176 && sizeof(BlockQ6K) == 210);
static_assert(sizeof(BlockIq4Nl) == 18 && sizeof(BlockIq4Xs) == 136 && sizeof(BlockIq2Xxs) == 66 &&
              sizeof(BlockIq2Xs) == 74 && sizeof(BlockIq2S) == 82 && sizeof(BlockIq3Xxs) == 98 &&
              sizeof(BlockIq3S) == 110);

/// The 6-bit scale and minimum of group 0..7 of a Q4_K or Q5_K block: groups 0..3 lie in the low six bits of
/// bytes 0..3 (scales) and 4..7 (minima); groups 4..7 have their low four bits in bytes 8..11 and the upper
/// two above those six.
struct ScaleMin {
  uint8_t scale, min;
};
inline ScaleMin unpack_scale_min(const uint8_t* scales, int group) {
  if (group < 4)
    return {static_cast<uint8_t>(scales[group] & 63), static_cast<uint8_t>(scales[group + 4] & 63)};
  const int i = group - 4;
  return {static_cast<uint8_t>((scales[8 + i] & 15) | ((scales[i] >> 2) & 0x30)),
          static_cast<uint8_t>((scales[8 + i] >> 4) | ((scales[4 + i] >> 2) & 0x30))};
}

/// The 6-bit scale of group 0..15 of a Q3_K block, 0..63 (32 is subtracted by the decoder).
inline int unpack_q3_k_scale(const uint8_t* scales, int group) {
  const int low = (scales[group % 8] >> (group / 8 * 4)) & 15;
  const int high = (scales[8 + group % 4] >> (group / 4 * 2)) & 3;
  return low | high << 4;
}

/// The 16 levels of IQ4_NL and IQ4_XS.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

/// The 16 levels of NF4: quantiles of the normal distribution, scaled to [-1, 1] (Dettmers et al., "QLoRA", 2023,
/// appendix E).
inline constexpr float kNf4Values[16] = {
    -1.0f,
    -0.6961928009986877f,
    -0.5250730514526367f,
    -0.39491748809814453f,
    -0.28444138169288635f,
    -0.18477343022823334f,
    -0.09105003625154495f,
    0.0f,
    0.07958029955625534f,
    0.16093020141124725f,
    0.24611230194568634f,
    0.33791524171829224f,
    0.44070982933044434f,
    0.5626170039176941f,
    0.7229568362236023f,
    1.0f};

/// Eight signs (bit 1: negative) of a 7-bit set of IQ2_XXS, IQ2_XS and IQ3_XXS: the eighth makes their number
/// even.
inline uint8_t even_signs(uint32_t seven) {
  return static_cast<uint8_t>(seven | static_cast<uint32_t>(__builtin_parity(seven)) << 7);
}

}  // namespace quintet
