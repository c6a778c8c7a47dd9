// Codes of the project's own formats in and out of their blocks, and the scalar decoder.
#include "quant/integer_format.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "quant/blocks.h"
#include "quant/codecs.h"
#include "quant/row_kernels.h"

namespace quintet {
namespace {

using enum WeightFormat;

struct Member {
  WeightFormat format;
  IntegerFormat shape;
};
constexpr std::array kFamily = {
    Member{int3_g32, {3, 32, false}},     Member{int3_g64, {3, 64, false}},
    Member{int3_g128, {3, 128, false}},   Member{int3_g32_asym, {3, 32, true}},
    Member{int3_g64_asym, {3, 64, true}}, Member{int3_g128_asym, {3, 128, true}},
    Member{q4_0, {4, 32, false}},         Member{int4_g64, {4, 64, false}},
    Member{int4_g128, {4, 128, false}},   Member{q4_1, {4, 32, true}},
    Member{int4_g64_asym, {4, 64, true}}, Member{int4_g128_asym, {4, 128, true}},
    Member{q8_0, {8, 32, false}},         Member{int8_g64, {8, 64, false}},
    Member{int8_g128, {8, 128, false}},   Member{int8_g32_asym, {8, 32, true}},
    Member{int8_g64_asym, {8, 64, true}}, Member{int8_g128_asym, {8, 128, true}},
};

constexpr int kMaxGroup = 128;

}  // namespace

std::optional<IntegerFormat> integer_format(WeightFormat format) {
  for (const Member& member : kFamily)
    if (member.format == format) return member.shape;
  return std::nullopt;
}

std::optional<WeightFormat> weight_format_of(const IntegerFormat& format) {
  for (const Member& member : kFamily)
    if (member.shape.bits == format.bits && member.shape.group == format.group && member.shape.minimum == format.minimum)
      return member.format;
  return std::nullopt;
}

void unpack_codes(const IntegerFormat& format, const uint8_t* block, uint8_t* codes) {
  const uint8_t* q = block + format.codes_at();
  const int half = format.group / 2, quarter = format.group / 4, eighth = format.group / 8;
  if (format.bits == 4) {
    for (int i = 0; i < half; ++i) {
      codes[i] = q[i] & 15;
      codes[i + half] = q[i] >> 4;
    }
  } else if (format.bits == 8) {
    const uint8_t sign = format.minimum ? 0 : 0x80;
    for (int i = 0; i < format.group; ++i) codes[i] = q[i] ^ sign;
  } else {
    for (int part = 0; part < 4; ++part)
      for (int i = 0; i < quarter; ++i) codes[part * quarter + i] = q[i] >> (2 * part) & 3;
    for (int part = 0; part < 8; ++part)
      for (int i = 0; i < eighth; ++i)
        codes[part * eighth + i] |= static_cast<uint8_t>((q[quarter + i] >> part & 1) << 2);
  }
}

void pack_codes(const IntegerFormat& format, const uint8_t* codes, uint8_t* block) {
  uint8_t* q = block + format.codes_at();
  const int half = format.group / 2, quarter = format.group / 4, eighth = format.group / 8;
  if (format.bits == 4) {
    for (int i = 0; i < half; ++i) q[i] = static_cast<uint8_t>(codes[i] | codes[i + half] << 4);
  } else if (format.bits == 8) {
    const uint8_t sign = format.minimum ? 0 : 0x80;
    for (int i = 0; i < format.group; ++i) q[i] = codes[i] ^ sign;
  } else {
    std::memset(q, 0, static_cast<size_t>(quarter + eighth));
    for (int part = 0; part < 4; ++part)
      for (int i = 0; i < quarter; ++i)
        q[i] |= static_cast<uint8_t>((codes[part * quarter + i] & 3) << (2 * part));
    for (int part = 0; part < 8; ++part)
      for (int i = 0; i < eighth; ++i)
        q[quarter + i] |= static_cast<uint8_t>((codes[part * eighth + i] >> 2) << part);
  }
}

void decode_integer_blocks(const IntegerFormat& format, const uint8_t* in, size_t blocks, float* out) {
  QUINTET_CHECK(format.group <= kMaxGroup, "groups of {}", format.group);
  const RowKernels& kernels = row_kernels();
  uint8_t codes[kMaxGroup];
  for (size_t block = 0; block < blocks; ++block, in += format.block_bytes(), out += format.group) {
    unpack_codes(format, in, codes);
    const IntegerRange range{.scale = load_f16(in), .minimum = format.minimum ? load_f16(in + 2) : 0};
    kernels.decode(format, codes, 1, &range, out);
  }
}

}  // namespace quintet
