// Packing and unpacking of single rows, written for exactness; simd/formats-inl.h reads the same records with
// vectors.
#include "backend/cpu/pack_formats.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "quant/blocks.h"
#include "quant/integer_format.h"
#include "tensor/float8.h"

namespace quintet::cpu {
namespace {

uint16_t get_u16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}
void put_u16(uint8_t* p, uint32_t v) {
  const auto narrow = static_cast<uint16_t>(v);
  std::memcpy(p, &narrow, 2);
}
float get_f32(const uint8_t* p) {
  float v;
  std::memcpy(&v, p, 4);
  return v;
}
float half_at(const uint8_t* p) { return f16_to_f32(get_u16(p)); }
bool finite_half(uint32_t bits) { return (bits & 0x7C00u) != 0x7C00u; }

/// The layout that holds the project's integers: nibbles or bytes, with or without a minimum.
Layout integer_layout(const IntegerFormat& format) {
  if (format.bits == 8) return format.minimum ? Layout::q8_1 : Layout::q8_0;
  return format.minimum ? Layout::q4_1 : Layout::q4_0;
}

// --- records: the codes of one row of a block of 32 inputs
// ---------------------------------------------------------

/// Where the 16-bit lane (row, parity) of vector z lies.
size_t lane(int z, int row, int parity) {
  return static_cast<size_t>(z) * 64 + static_cast<size_t>(row) * 4 + static_cast<size_t>(parity) * 2;
}

uint64_t get_u64(const uint8_t* p) {
  uint64_t v;
  std::memcpy(&v, p, 8);
  return v;
}

// Fields of kBits bits at bits 0, 16, 32 and 48, side by side: four codes of one parity among eight.
template <int kBits>
uint32_t gather(uint64_t v) {
  v |= v >> (16 - kBits);
  constexpr uint32_t kPair = (1u << (2 * kBits)) - 1;
  return (static_cast<uint32_t>(v) & kPair) |
         (static_cast<uint32_t>(v >> (32 - 2 * kBits)) & (kPair << (2 * kBits)));
}

// Eight codes at a time in a word (little endian): one by one they cost four times as long, and loading waits
// for this.
void put_nibbles(uint8_t* record, int row, const uint8_t* codes) {
  for (int z = 0; z < 4; ++z) {
    const uint64_t c = get_u64(codes + 8 * z);
    for (int h = 0; h < 2; ++h)
      put_u16(record + lane(z, row, h), gather<4>(c >> (8 * h) & 0x000F000F000F000Full));
  }
}
/// Bits `bit` and `bit` + 1 of the codes.
void put_two_bits(uint8_t* record, int row, const uint8_t* codes, int bit) {
  for (int z = 0; z < 2; ++z) {
    const uint64_t c0 = get_u64(codes + 16 * z) >> bit, c1 = get_u64(codes + 16 * z + 8) >> bit;
    constexpr uint64_t kMask = 0x0003000300030003ull;
    for (int h = 0; h < 2; ++h)
      put_u16(record + lane(z, row, h), gather<2>(c0 >> (8 * h) & kMask) | gather<2>(c1 >> (8 * h) & kMask)
                                                                               << 8);
  }
}
/// Bit `bit` of the codes.
void put_bits(uint8_t* record, int row, const uint8_t* codes, int bit) {
  for (int h = 0; h < 2; ++h) {
    uint32_t v = 0;
    for (int q = 0; q < 4; ++q)
      v |= gather<1>(get_u64(codes + 8 * q) >> (bit + 8 * h) & 0x0001000100010001ull) << (4 * q);
    put_u16(record + lane(0, row, h), v);
  }
}
void put_bytes(uint8_t* record, int row, const int8_t* codes) {
  for (int p = 0; p < kPairs; ++p) std::memcpy(record + p * 32 + row * 2, codes + 2 * p, 2);
}

uint32_t nibble_at(const uint8_t* record, int row, int k) {
  const int p = k / 2;
  return get_u16(record + lane(p / 4, row, k % 2)) >> (4 * (p % 4)) & 15u;
}
uint32_t two_bits_at(const uint8_t* record, int row, int k) {
  const int p = k / 2;
  return get_u16(record + lane(p / 8, row, k % 2)) >> (2 * (p % 8)) & 3u;
}
uint32_t bit_at(const uint8_t* record, int row, int k) {
  return get_u16(record + lane(0, row, k % 2)) >> (k / 2) & 1u;
}
int byte_at(const uint8_t* record, int row, int k) {
  return static_cast<int8_t>(record[k / 2 * 32 + row * 2 + k % 2]);
}

// --- source blocks
// ---------------------------------------------------------------------------------------------------

static_assert(std::endian::native == std::endian::little, "codes are gathered from words of bytes");

/// Codes of the 32-weight formats: low nibbles are the first 16 weights, high nibbles the others.
void split_nibbles(const uint8_t* qs, uint8_t* codes) {
  for (int i = 0; i < 16; ++i) {
    codes[i] = qs[i] & 15;
    codes[i + 16] = qs[i] >> 4;
  }
}
/// Bit i of `mask` belongs to weight i: even and odd bits go to the two lanes.
void put_mask(uint8_t* record, int row, uint32_t mask) {
  for (int h = 0; h < 2; ++h) {
    uint32_t v = mask >> h & 0x55555555u;
    v = (v | v >> 1) & 0x33333333u;
    v = (v | v >> 2) & 0x0F0F0F0Fu;
    v = (v | v >> 4) & 0x00FF00FFu;
    put_u16(record + lane(0, row, h), v | v >> 8);
  }
}

/// The eight 6-bit scales and minima in 12 bytes of q4_k and q5_k.
void k_scales(const uint8_t* s, int j, uint8_t& scale, uint8_t& minimum) {
  if (j < 4) {
    scale = s[j] & 63;
    minimum = s[j + 4] & 63;
  } else {
    scale = static_cast<uint8_t>((s[j + 4] & 15) | (s[j - 4] >> 6) << 4);
    minimum = static_cast<uint8_t>((s[j + 4] >> 4) | (s[j] >> 6) << 4);
  }
}

bool pack_q2_k(const uint8_t* s, uint8_t* unit, int row) {  // scales[16], qs[64], d, dmin
  uint8_t codes[32];
  for (int b = 0; b < 8; ++b) {
    for (int i = 0; i < 32; ++i) codes[i] = s[16 + b / 4 * 32 + i] >> (2 * (b % 4)) & 3;
    put_two_bits(unit + b * 128, row, codes, 0);
  }
  const int d = 8 * 128;
  put_u16(unit + d + row * 2, get_u16(s + 80));
  put_u16(unit + d + 32 + row * 2, get_u16(s + 82));
  for (int g = 0; g < 16; ++g) unit[d + 64 + g * 16 + row] = s[g];
  return finite_half(get_u16(s + 80)) && finite_half(get_u16(s + 82));
}

bool pack_q3_k(const uint8_t* s, uint8_t* unit, int row) {  // hmask[32], qs[64], scales[12], d
  uint8_t codes[32];
  for (int b = 0; b < 8; ++b) {
    for (int i = 0; i < 32; ++i)
      codes[i] = static_cast<uint8_t>((s[32 + b / 4 * 32 + i] >> (2 * (b % 4)) & 3) | (s[i] >> b & 1) << 2);
    put_two_bits(unit + b * 192, row, codes, 0);
    put_bits(unit + b * 192 + 128, row, codes, 2);
  }
  const int d = 8 * 192;
  const uint8_t* scales = s + 96;
  put_u16(unit + d + row * 2, get_u16(s + 108));
  for (int g = 0; g < 16; ++g) {
    const int low = g < 8 ? scales[g] & 15 : scales[g - 8] >> 4;
    const int high = scales[8 + g % 4] >> (2 * (g / 4)) & 3;
    unit[d + 32 + g * 16 + row] = static_cast<uint8_t>((low | high << 4) - 32);
  }
  return finite_half(get_u16(s + 108));
}

bool pack_q45_k(const uint8_t* s, uint8_t* unit, int row,
                bool fifth) {  // d, dmin, scales[12], (qh[32]), qs[128]
  uint8_t codes[32];
  const uint8_t* qs = s + (fifth ? 48 : 16);
  const int record = fifth ? 320 : 256;
  for (int b = 0; b < 8; ++b) {
    for (int i = 0; i < 32; ++i) codes[i] = qs[b / 2 * 32 + i] >> (4 * (b % 2)) & 15;
    put_nibbles(unit + b * record, row, codes);
    if (fifth) {
      for (int i = 0; i < 32; ++i) codes[i] = s[16 + i] >> b & 1;
      put_bits(unit + b * record + 256, row, codes, 0);
    }
  }
  const int d = 8 * record;
  put_u16(unit + d + row * 2, get_u16(s));
  put_u16(unit + d + 32 + row * 2, get_u16(s + 2));
  for (int g = 0; g < 8; ++g)
    k_scales(s + 4, g, unit[d + 64 + g * 32 + row], unit[d + 64 + g * 32 + 16 + row]);
  return finite_half(get_u16(s)) && finite_half(get_u16(s + 2));
}

bool pack_q6_k(const uint8_t* s, uint8_t* unit, int row) {  // ql[128], qh[64], scales[16], d
  uint8_t codes[32];
  for (int b = 0; b < 8; ++b) {
    const int n = b / 4, quarter = b % 4;
    for (int i = 0; i < 32; ++i) {
      const int low = s[64 * n + 32 * (quarter % 2) + i] >> (4 * (quarter / 2)) & 15;
      codes[i] = static_cast<uint8_t>(low | (s[128 + 32 * n + i] >> (2 * quarter) & 3) << 4);
    }
    put_nibbles(unit + b * 384, row, codes);
    put_two_bits(unit + b * 384 + 256, row, codes, 4);
  }
  const int d = 8 * 384;
  put_u16(unit + d + row * 2, get_u16(s + 208));
  for (int g = 0; g < 16; ++g) unit[d + 32 + g * 16 + row] = s[192 + g];
  return finite_half(get_u16(s + 208));
}

void put_i8_scale(uint8_t* unit, int group, int row, float scale) {
  std::memcpy(unit + 512 + group * 64 + row * 4, &scale, 4);
}

bool pack_iq4_xs(const uint8_t* s, uint8_t* units, int row) {  // d, scales_h, scales_l[4], qs[128]
  constexpr int kUnitBytes = layout_info(Layout::i8).unit_bytes;
  const uint32_t high = get_u16(s + 2);
  for (int b = 0; b < 8; ++b, units += kUnitBytes) {
    uint8_t index[32];
    split_nibbles(s + 8 + b * 16, index);
    int8_t codes[32];
    for (int i = 0; i < 32; ++i) codes[i] = kIq4Values[index[i]];
    put_bytes(units, row, codes);
    const int scale =
        static_cast<int>((s[4 + b / 2] >> (4 * (b % 2)) & 15u) | (high >> (2 * b) & 3u) << 4) - 32;
    for (int g = 0; g < 2; ++g) put_i8_scale(units, g, row, half_at(s) * static_cast<float>(scale));
  }
  return finite_half(get_u16(s));
}

/// The grid formats (iq2_*, iq3_*): a half, then indices and signs. Their weights are d / 8 times an integer,
/// which the codec itself gives when d is 8; each 16 of those are a common divisor times an int8. Every
/// product here has at most 24 significant bits, so any such factors unpack to the codec's own bits.
bool pack_grid(WeightFormat format, const uint8_t* s, uint8_t* units, int row) {
  constexpr int kUnitBytes = layout_info(Layout::i8).unit_bytes;
  const FormatInfo& info = format_info(format);
  uint8_t block[256];
  QUINTET_CHECK(info.block_weights == 256 && info.block_bytes <= 256);
  std::memcpy(block, s, static_cast<size_t>(info.block_bytes));
  put_u16(block, f32_to_f16(8.0f));
  float grid[256];
  info.decode(block, 1, grid);
  const float unit_scale = half_at(s) / 8;
  for (int b = 0; b < 8; ++b, units += kUnitBytes) {
    int8_t codes[32];
    for (int g = 0; g < 2; ++g) {
      int divisor = 0;
      for (int i = 0; i < 16; ++i) divisor = std::gcd(divisor, static_cast<int>(grid[b * 32 + g * 16 + i]));
      if (divisor == 0) divisor = 1;
      for (int i = 0; i < 16; ++i) {
        const int code = static_cast<int>(grid[b * 32 + g * 16 + i]) / divisor;
        QUINTET_CHECK(code >= -127 && code <= 127, "{} of {}", code, info.name);
        codes[g * 16 + i] = static_cast<int8_t>(code);
      }
      put_i8_scale(units, g, row, unit_scale * static_cast<float>(divisor));
    }
    put_bytes(units, row, codes);
  }
  return finite_half(get_u16(s));
}

/// A group of the project's integers: its scale (and minimum) repeated for each 32 inputs. Codes of 3 bits lie in 4,
/// shifted so that the layout's own offset gives the same integer.
bool pack_integers(const IntegerFormat& format, const uint8_t* s, uint8_t* units, int row) {
  const Layout layout = integer_layout(format);
  const int unit_bytes = layout_info(layout).unit_bytes, halves_at = format.bits == 8 ? 512 : 256;
  uint8_t codes[128];
  unpack_codes(format, s, codes);
  const int shift = layout == Layout::q4_0 ? 8 - format.code_offset() : layout == Layout::q8_0 ? -128 : 0;
  for (int i = 0; i < format.group; ++i) codes[i] = static_cast<uint8_t>(codes[i] + shift);
  for (int b = 0; b < format.group / 32; ++b, units += unit_bytes) {
    if (format.bits == 8)
      put_bytes(units, row, reinterpret_cast<const int8_t*>(codes + 32 * b));
    else
      put_nibbles(units, row, codes + 32 * b);
    put_u16(units + halves_at + row * 2, get_u16(s));
    if (format.minimum) put_u16(units + halves_at + 32 + row * 2, get_u16(s + 2));
  }
  return finite_half(get_u16(s)) && (!format.minimum || finite_half(get_u16(s + 2)));
}

// NF4: byte `row` of pair p holds the index of input 2 p in its low half, of 2 p + 1 in its high half; 32 pairs, then a
// float a row. E4M3 and bytes under a scale of the row: that scale behind each 32 inputs, so that nothing but the tile is
// read.
bool pack_nf4(const uint8_t* q, float scale, uint8_t* unit, int row) {
  for (int p = 0; p < 32; ++p)
    unit[p * kTileRows + row] = static_cast<uint8_t>(q[p] >> 4 | (q[p] & 15) << 4);
  std::memcpy(unit + 512 + row * 4, &scale, 4);
  return scale - scale == 0;
}

bool pack_fp8(const uint8_t* q, float scale, uint8_t* unit, int row) {
  bool finite = scale - scale == 0;
  for (int i = 0; i < kBlock; ++i) {
    unit[i * kTileRows + row] = q[i];
    finite = finite && !f8_is_nan(q[i]);
  }
  std::memcpy(unit + 512 + row * 4, &scale, 4);
  return finite;
}

bool pack_int8(const uint8_t* q, float scale, uint8_t* unit, int row) {
  put_bytes(unit, row, reinterpret_cast<const int8_t*>(q));
  std::memcpy(unit + 512 + row * 4, &scale, 4);
  return scale - scale == 0;
}

bool pack_32(WeightFormat format, const uint8_t* s, uint8_t* unit, int row) {
  uint8_t codes[32];
  const auto put_halves = [&](int at, int count) {
    bool finite = true;
    for (int i = 0; i < count; ++i) {
      put_u16(unit + at + i * 32 + row * 2, get_u16(s + 2 * i));
      finite = finite && finite_half(get_u16(s + 2 * i));
    }
    return finite;
  };
  switch (format) {
    case WeightFormat::q4_0:
    case WeightFormat::q4_1: {
      const int halves = format == WeightFormat::q4_1 ? 2 : 1;
      split_nibbles(s + 2 * halves, codes);
      put_nibbles(unit, row, codes);
      return put_halves(256, halves);
    }
    case WeightFormat::q5_0:
    case WeightFormat::q5_1: {
      const int halves = format == WeightFormat::q5_1 ? 2 : 1;
      split_nibbles(s + 2 * halves + 4, codes);
      put_nibbles(unit, row, codes);
      uint32_t fifth;
      std::memcpy(&fifth, s + 2 * halves, 4);
      put_mask(unit + 256, row, fifth);
      return put_halves(320, halves);
    }
    case WeightFormat::q8_0: {
      put_bytes(unit, row, reinterpret_cast<const int8_t*>(s + 2));
      return put_halves(512, 1);
    }
    case WeightFormat::iq4_nl: {
      split_nibbles(s + 2, codes);
      int8_t values[32];
      for (int i = 0; i < 32; ++i) values[i] = kIq4Values[codes[i]];
      put_bytes(unit, row, values);
      return put_halves(512, 1);
    }
    default: break;
  }
  QUINTET_CHECK(false, "format {} has no block of 32", format_info(format).name);
  return false;
}

}  // namespace

Layout layout_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::f32: return Layout::f32;
    case WeightFormat::f16: return Layout::f16;
    case WeightFormat::bf16: return Layout::bf16;
    case WeightFormat::q4_0: return Layout::q4_0;
    case WeightFormat::q4_1: return Layout::q4_1;
    case WeightFormat::q5_0: return Layout::q5_0;
    case WeightFormat::q5_1: return Layout::q5_1;
    case WeightFormat::q8_0: return Layout::q8_0;
    case WeightFormat::iq4_nl: return Layout::q8_0;  // its values are int8 under one half
    case WeightFormat::q2_k: return Layout::q2_k;
    case WeightFormat::q3_k: return Layout::q3_k;
    case WeightFormat::q4_k: return Layout::q4_k;
    case WeightFormat::q5_k: return Layout::q5_k;
    case WeightFormat::q6_k: return Layout::q6_k;
    case WeightFormat::iq4_xs:
    case WeightFormat::iq2_xxs:
    case WeightFormat::iq2_xs:
    case WeightFormat::iq2_s:
    case WeightFormat::iq3_xxs:
    case WeightFormat::iq3_s: return Layout::i8;
    case WeightFormat::nf4:
    case WeightFormat::nf4_dq: return Layout::nf4;
    case WeightFormat::fp8: return Layout::f8;
    case WeightFormat::int8: return Layout::w8;
    default: break;
  }
  if (const auto integers = integer_format(format)) return integer_layout(*integers);
  QUINTET_CHECK(false, "weight format {} has no packed layout", static_cast<int>(format));
  return Layout::f32;
}

int pack_step(WeightFormat format) {
  const int block = format_info(format).block_weights;
  return block > 1 ? block : 1;
}

bool pack_float_tile(WeightFormat format, const uint8_t* const* rows, int count, int64_t k, uint8_t* tile) {
  const bool wide = format == WeightFormat::f32;
  const uint32_t special = wide                          ? 0x7F800000u
                           : format == WeightFormat::f16 ? 0x7C00u
                                                         : 0x7F80u;  // exponent of Inf, NaN
  uint32_t bad = 0;
  constexpr int64_t kStretch = 64;  // so that the lines written to stay in the L1 cache from row to row
  for (int64_t begin = 0; begin < k; begin += kStretch) {
    const int64_t end = std::min(k, begin + kStretch);
    for (int row = 0; row < count; ++row)
      for (int64_t i = begin; i < end; ++i) {
        uint32_t bits = 0;
        if (wide) {
          std::memcpy(&bits, rows[row] + 4 * i, 4);
          std::memcpy(tile + (i * kTileRows + row) * 4, &bits, 4);
        } else {
          bits = get_u16(rows[row] + 2 * i);
          put_u16(tile + (i * kTileRows + row) * 2, bits);
        }
        bad |= static_cast<uint32_t>((bits & special) == special);
      }
  }
  return bad == 0;
}

bool pack_unit_row(WeightFormat format, const uint8_t* source, float row_scale, uint8_t* units, int row) {
  switch (format) {
    case WeightFormat::q2_k: return pack_q2_k(source, units, row);
    case WeightFormat::q3_k: return pack_q3_k(source, units, row);
    case WeightFormat::q4_k: return pack_q45_k(source, units, row, false);
    case WeightFormat::q5_k: return pack_q45_k(source, units, row, true);
    case WeightFormat::q6_k: return pack_q6_k(source, units, row);
    case WeightFormat::iq4_xs: return pack_iq4_xs(source, units, row);
    case WeightFormat::iq2_xxs:
    case WeightFormat::iq2_xs:
    case WeightFormat::iq2_s:
    case WeightFormat::iq3_xxs:
    case WeightFormat::iq3_s: return pack_grid(format, source, units, row);
    case WeightFormat::q4_0:
    case WeightFormat::q4_1:
    case WeightFormat::q5_0:
    case WeightFormat::q5_1:
    case WeightFormat::q8_0:
    case WeightFormat::iq4_nl: return pack_32(format, source, units, row);
    case WeightFormat::nf4: return pack_nf4(source + 2, half_at(source), units, row);
    case WeightFormat::nf4_dq: return pack_nf4(source + 1, row_scale * static_cast<float>(source[0]), units, row);
    case WeightFormat::fp8: return pack_fp8(source, row_scale, units, row);
    case WeightFormat::int8: return pack_int8(source, row_scale, units, row);
    default: return pack_integers(*integer_format(format), source, units, row);
  }
}

bool blocks_finite(WeightFormat format, const uint8_t* source, int64_t count) {
  if (format == WeightFormat::f32 || format == WeightFormat::bf16) {
    const int step = format == WeightFormat::f32 ? 4 : 2;
    for (int64_t i = 0; i < count; ++i)
      if ((get_u16(source + i * step + step - 2) & 0x7F80u) == 0x7F80u) return false;
    return true;
  }
  if (format == WeightFormat::nf4_dq || format == WeightFormat::int8) return true;
  if (format == WeightFormat::fp8)
    return std::none_of(source, source + count * kBlock, [](uint8_t bits) { return f8_is_nan(bits); });
  int first = 0, second = -1;  // where a block keeps its halves
  switch (format) {
    case WeightFormat::q5_1:
    case WeightFormat::q4_k:
    case WeightFormat::q5_k: second = 2; break;
    case WeightFormat::q2_k:
      first = 80;
      second = 82;
      break;
    case WeightFormat::q3_k: first = 108; break;
    case WeightFormat::q6_k: first = 208; break;
    default: break;
  }
  if (const auto integers = integer_format(format); integers && integers->minimum) second = 2;
  const int step = format_info(format).block_bytes;
  for (int64_t i = 0; i < count; ++i, source += step) {
    if (!finite_half(get_u16(source + first))) return false;
    if (second >= 0 && !finite_half(get_u16(source + second))) return false;
  }
  return true;
}

void unpack_unit_row(Layout layout, const uint8_t* u, int row, float* out) {
  const auto half = [&](int at) { return half_at(u + at + row * 2); };
  switch (layout) {
    case Layout::f32: out[0] = get_f32(u + row * 4); return;
    case Layout::f16: out[0] = half(0); return;
    case Layout::bf16: out[0] = bf16_to_f32(get_u16(u + row * 2)); return;
    case Layout::q4_0:
      for (int k = 0; k < 32; ++k)
        out[k] = half(256) * static_cast<float>(static_cast<int>(nibble_at(u, row, k)) - 8);
      return;
    case Layout::q4_1:
      for (int k = 0; k < 32; ++k) out[k] = half(256) * static_cast<float>(nibble_at(u, row, k)) + half(288);
      return;
    case Layout::q5_0:
      for (int k = 0; k < 32; ++k)
        out[k] = half(320) * static_cast<float>(
                                 static_cast<int>(nibble_at(u, row, k) | bit_at(u + 256, row, k) << 4) - 16);
      return;
    case Layout::q5_1:
      for (int k = 0; k < 32; ++k)
        out[k] =
            half(320) * static_cast<float>(nibble_at(u, row, k) | bit_at(u + 256, row, k) << 4) + half(352);
      return;
    case Layout::q8_0:
      for (int k = 0; k < 32; ++k) out[k] = half(512) * static_cast<float>(byte_at(u, row, k));
      return;
    case Layout::q8_1:
      for (int k = 0; k < 32; ++k)
        out[k] = half(512) * static_cast<float>(static_cast<uint8_t>(byte_at(u, row, k))) + half(544);
      return;
    case Layout::i8:
      for (int k = 0; k < 32; ++k)
        out[k] = get_f32(u + 512 + k / 16 * 64 + row * 4) * static_cast<float>(byte_at(u, row, k));
      return;
    case Layout::w8:
      for (int k = 0; k < 32; ++k) out[k] = get_f32(u + 512 + row * 4) * static_cast<float>(byte_at(u, row, k));
      return;
    case Layout::nf4:
      for (int k = 0; k < 64; ++k)
        out[k] = get_f32(u + 512 + row * 4) * kNf4Values[u[k / 2 * kTileRows + row] >> (4 * (k % 2)) & 15];
      return;
    case Layout::f8:
      for (int k = 0; k < 32; ++k) out[k] = get_f32(u + 512 + row * 4) * f8_to_f32(u[k * kTileRows + row]);
      return;
    case Layout::q2_k:
      for (int k = 0; k < 256; ++k) {
        const uint32_t scales = u[1024 + 64 + k / 16 * 16 + row];
        out[k] = half(1024) * static_cast<float>(scales & 15u) *
                     static_cast<float>(two_bits_at(u + k / 32 * 128, row, k % 32)) -
                 half(1024 + 32) * static_cast<float>(scales >> 4);
      }
      return;
    case Layout::q3_k:
      for (int k = 0; k < 256; ++k) {
        const uint8_t* block = u + k / 32 * 192;
        const auto code =
            static_cast<int>(two_bits_at(block, row, k % 32) | bit_at(block + 128, row, k % 32) << 2) - 4;
        out[k] = half(1536) * static_cast<float>(static_cast<int8_t>(u[1536 + 32 + k / 16 * 16 + row])) *
                 static_cast<float>(code);
      }
      return;
    case Layout::q4_k:
    case Layout::q5_k: {
      const int record = layout == Layout::q5_k ? 320 : 256, d = 8 * record;
      for (int k = 0; k < 256; ++k) {
        const uint8_t* block = u + k / 32 * record;
        uint32_t code = nibble_at(block, row, k % 32);
        if (layout == Layout::q5_k) code |= bit_at(block + 256, row, k % 32) << 4;
        const uint8_t* scales = u + d + 64 + k / 32 * 32 + row;
        out[k] = half(d) * static_cast<float>(scales[0]) * static_cast<float>(code) -
                 half(d + 32) * static_cast<float>(scales[16]);
      }
      return;
    }
    case Layout::q6_k:
      for (int k = 0; k < 256; ++k) {
        const uint8_t* block = u + k / 32 * 384;
        const auto code =
            static_cast<int>(nibble_at(block, row, k % 32) | two_bits_at(block + 256, row, k % 32) << 4) - 32;
        out[k] = half(3072) * static_cast<float>(static_cast<int8_t>(u[3072 + 32 + k / 16 * 16 + row])) *
                 static_cast<float>(code);
      }
      return;
    case Layout::count_: return;
  }
}

}  // namespace quintet::cpu
