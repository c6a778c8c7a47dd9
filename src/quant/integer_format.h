// The project's own family of formats: 3, 4 or 8-bit integers in groups along K, each group under an FP16
// scale and, where asymmetric, an FP16 minimum.
//
// A block is one group: scale d, minimum m (asymmetric), codes. A weight is d * (q - 2^(bits - 1)), or d * q
// + m where asymmetric. Codes of 4 bits: weight i (of g) is the low (i < g / 2) or high half of byte i % (g /
// 2). Of 3 bits: two bits of weight i in byte i % (g / 4), bit pair i / (g / 4); behind them the third in
// byte i % (g / 8), bit i / (g / 8). Of 8 bits: bytes; symmetric ones signed, so q - 128 itself. Q4_0, Q4_1
// and Q8_0 of GGUF are the family's members of groups of 32.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "quant/format.h"

namespace quintet {

/// One member of the family.
struct IntegerFormat {
  int bits = 4;          ///< 3, 4 or 8
  int group = 128;       ///< weights under one scale: 32, 64 or 128
  bool minimum = false;  ///< asymmetric
  /// Asymmetric ones: the minimum is minus a whole number of steps, 1 to max_code(), as the zero points of GPTQ's and AWQ's
  /// files are. A rule for who chooses ranges, no other format.
  bool whole_zero = false;

  bool operator==(const IntegerFormat&) const = default;
  constexpr int code_offset() const {
    return minimum ? 0 : 1 << (bits - 1);
  }  ///< code of the value 0 where symmetric
  constexpr int max_code() const { return (1 << bits) - 1; }
  constexpr int codes_at() const { return minimum ? 4 : 2; }  ///< byte of a block where the codes begin
  constexpr int block_bytes() const { return codes_at() + group * bits / 8; }
};

/// The member that a weight format is; nothing for all other formats.
std::optional<IntegerFormat> integer_format(WeightFormat format);
/// The weight format of a member; nothing where the family has no such member.
std::optional<WeightFormat> weight_format_of(const IntegerFormat& format);

/// The codes of one block, 0 to max_code(), and back. codes [group].
void unpack_codes(const IntegerFormat& format, const uint8_t* block, uint8_t* codes);
void pack_codes(const IntegerFormat& format, const uint8_t* codes, uint8_t* block);

}  // namespace quintet
