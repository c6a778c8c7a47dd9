// What the bytes of a packed tile are, per layout: how a vector of 16 rows' codes and scales comes out of
// them.
//
// Codes: for each pair of inputs p of a block of 32, one vector of 16 rows x 2 inputs. Four-bit codes: 16-bit
// lane (row, input parity) of vector z holds the codes of pairs 4 z to 4 z + 3, lowest first. One-bit planes:
// bit p of the lane belongs to pair p. Two-bit planes: vector z holds pairs 8 z to 8 z + 7. Bytes: 32 for
// each pair.

namespace quintet::cpu::QUINTET_TARGET {
namespace {

template <int kPair>
HWY_INLINE S nibble(const uint8_t* p) {
  return and_i16(shift_right<4 * (kPair % 4)>(load_i16(p + kPair / 4 * 64)), set_i16(15));
}
template <int kPair>
HWY_INLINE S two_bits(const uint8_t* p) {
  return and_i16(shift_right<2 * (kPair % 8)>(load_i16(p + kPair / 8 * 64)), set_i16(3));
}
/// Bit kPair of each lane, moved to bit kTo.
template <int kPair, int kTo>
HWY_INLINE S one_bit(const uint8_t* p) {
  const S v = load_i16(p);
  if constexpr (kPair >= kTo)
    return and_i16(shift_right<kPair - kTo>(v), set_i16(1 << kTo));
  else
    return and_i16(shift_left<kTo - kPair>(v), set_i16(1 << kTo));
}

// Each layout: unit_k inputs a unit; codes<pair>(unit, block) of block `block` of the unit, scale(unit,
// group) of its scale groups, minimum(unit, group) where it has one.
template <Layout>
struct Tile;

template <>
struct Tile<Layout::q4_0> {
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int) {
    return sub_i16(nibble<P>(u), set_i16(8));
  }
  static HWY_INLINE F scale(const uint8_t* u, int) {
    return load_f16(reinterpret_cast<const uint16_t*>(u + 256));
  }
};
template <>
struct Tile<Layout::q4_1> {
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int) {
    return nibble<P>(u);
  }
  static HWY_INLINE F scale(const uint8_t* u, int) {
    return load_f16(reinterpret_cast<const uint16_t*>(u + 256));
  }
  static HWY_INLINE F minimum(const uint8_t* u, int) {
    return load_f16(reinterpret_cast<const uint16_t*>(u + 288));
  }
};
template <>
struct Tile<Layout::q5_0> {
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int) {
    return sub_i16(or_i16(nibble<P>(u), one_bit<P, 4>(u + 256)), set_i16(16));
  }
  static HWY_INLINE F scale(const uint8_t* u, int) {
    return load_f16(reinterpret_cast<const uint16_t*>(u + 320));
  }
};
template <>
struct Tile<Layout::q5_1> {
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int) {
    return or_i16(nibble<P>(u), one_bit<P, 4>(u + 256));
  }
  static HWY_INLINE F scale(const uint8_t* u, int) {
    return load_f16(reinterpret_cast<const uint16_t*>(u + 320));
  }
  static HWY_INLINE F minimum(const uint8_t* u, int) {
    return load_f16(reinterpret_cast<const uint16_t*>(u + 352));
  }
};
template <>
struct Tile<Layout::q8_0> {
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int) {
    return load_i8(u + P * 32);
  }
  static HWY_INLINE F scale(const uint8_t* u, int) {
    return load_f16(reinterpret_cast<const uint16_t*>(u + 512));
  }
};
template <>
struct Tile<Layout::q8_1> {
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int) {
    return load_u8(u + P * 32);
  }
  static HWY_INLINE F scale(const uint8_t* u, int) {
    return load_f16(reinterpret_cast<const uint16_t*>(u + 512));
  }
  static HWY_INLINE F minimum(const uint8_t* u, int) {
    return load_f16(reinterpret_cast<const uint16_t*>(u + 544));
  }
};
template <>
struct Tile<Layout::i8> {
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int) {
    return load_i8(u + P * 32);
  }
  static HWY_INLINE F scale(const uint8_t* u, int g) {
    return load(reinterpret_cast<const float*>(u + 512 + g * 64));
  }
};

template <>
struct Tile<Layout::w8> {
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int) {
    return load_i8(u + P * 32);
  }
  static HWY_INLINE F scale(const uint8_t* u, int) { return load(reinterpret_cast<const float*>(u + 512)); }
};

// Products of the super-block's half and a 4, 6 or 8-bit scale are exact in float.
template <>
struct Tile<Layout::q2_k> {  // 8 x 128 codes, d, dmin, 16 x 16 scales: low nibble scale, high minimum
  static constexpr int kD = 8 * 128;
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int b) {
    return two_bits<P>(u + b * 128);
  }
  static HWY_INLINE F half(const uint8_t* p) { return load_f16(reinterpret_cast<const uint16_t*>(p)); }
  static HWY_INLINE F scale(const uint8_t* u, int g) {
    return mul(half(u + kD), load_u8_as_float(u + kD + 64 + g * 16, 0));
  }
  static HWY_INLINE F minimum(const uint8_t* u, int g) {
    return mul(half(u + kD + 32), sub(set(0), load_u8_as_float(u + kD + 64 + g * 16, 4)));
  }
  /// The nibble at `shift` of 16 bytes.
  static HWY_INLINE F load_u8_as_float(const uint8_t* p, int shift) {
    using D8 = hn::Rebind<uint8_t, DF>;
    F r;
    EACH {
      const auto wide = hn::PromoteTo(DI(), hn::LoadU(D8(), p + i * kLanes));
      r.v[i] = hn::ConvertTo(DF(), shift ? hn::ShiftRight<4>(wide) : hn::And(wide, hn::Set(DI(), 15)));
    }
    return r;
  }
};
template <>
struct Tile<Layout::q3_k> {  // 8 x (128 + 64) codes, d, 16 x 16 signed scales
  static constexpr int kD = 8 * 192;
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int b) {
    return sub_i16(or_i16(two_bits<P>(u + b * 192), one_bit<P, 2>(u + b * 192 + 128)), set_i16(4));
  }
  static HWY_INLINE F scale(const uint8_t* u, int g) {
    return mul(load_f16(reinterpret_cast<const uint16_t*>(u + kD)), load_i8_as_float(u + kD + 32 + g * 16));
  }
};
template <>
struct Tile<Layout::q4_k> {  // 8 x 256 codes, d, dmin, 8 x (16 scales, 16 minima)
  static constexpr int kD = 8 * 256;
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int b) {
    return nibble<P>(u + b * 256);
  }
  static HWY_INLINE F scale(const uint8_t* u, int g) {
    return mul(load_f16(reinterpret_cast<const uint16_t*>(u + kD)), load_u8_as_float(u + kD + 64 + g * 32));
  }
  static HWY_INLINE F minimum(const uint8_t* u, int g) {
    return mul(load_f16(reinterpret_cast<const uint16_t*>(u + kD + 32)),
               sub(set(0), load_u8_as_float(u + kD + 64 + g * 32 + 16)));
  }
};
template <>
struct Tile<Layout::q5_k> {  // 8 x (256 + 64) codes, d, dmin, 8 x (16 scales, 16 minima)
  static constexpr int kD = 8 * 320;
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int b) {
    return or_i16(nibble<P>(u + b * 320), one_bit<P, 4>(u + b * 320 + 256));
  }
  static HWY_INLINE F scale(const uint8_t* u, int g) {
    return mul(load_f16(reinterpret_cast<const uint16_t*>(u + kD)), load_u8_as_float(u + kD + 64 + g * 32));
  }
  static HWY_INLINE F minimum(const uint8_t* u, int g) {
    return mul(load_f16(reinterpret_cast<const uint16_t*>(u + kD + 32)),
               sub(set(0), load_u8_as_float(u + kD + 64 + g * 32 + 16)));
  }
};
template <>
struct Tile<Layout::q6_k> {  // 8 x (256 + 128) codes, d, 16 x 16 signed scales
  static constexpr int kD = 8 * 384;
  template <int P>
  static HWY_INLINE S codes(const uint8_t* u, int b) {
    return sub_i16(or_i16(nibble<P>(u + b * 384), shift_left<4>(two_bits<P>(u + b * 384 + 256))),
                   set_i16(32));
  }
  static HWY_INLINE F scale(const uint8_t* u, int g) {
    return mul(load_f16(reinterpret_cast<const uint16_t*>(u + kD)), load_i8_as_float(u + kD + 32 + g * 16));
  }
};

/// Calls visit(Tile<layout>{}) for an integer layout: the one place where the runtime value becomes a type.
template <class Visit>
HWY_INLINE void visit_layout(Layout layout, Visit&& visit) {
  switch (layout) {
    case Layout::q4_0: return visit.template operator()<Layout::q4_0>();
    case Layout::q4_1: return visit.template operator()<Layout::q4_1>();
    case Layout::q5_0: return visit.template operator()<Layout::q5_0>();
    case Layout::q5_1: return visit.template operator()<Layout::q5_1>();
    case Layout::q8_0: return visit.template operator()<Layout::q8_0>();
    case Layout::q8_1: return visit.template operator()<Layout::q8_1>();
    case Layout::q2_k: return visit.template operator()<Layout::q2_k>();
    case Layout::q3_k: return visit.template operator()<Layout::q3_k>();
    case Layout::q4_k: return visit.template operator()<Layout::q4_k>();
    case Layout::q5_k: return visit.template operator()<Layout::q5_k>();
    case Layout::q6_k: return visit.template operator()<Layout::q6_k>();
    case Layout::i8: return visit.template operator()<Layout::i8>();
    case Layout::w8: return visit.template operator()<Layout::w8>();
    default: return;
  }
}

/// body.operator()<0>() ... <15>(): the pairs of a block.
template <class Body>
HWY_INLINE void for_pairs(Body&& body) {
  body.template operator()<0>();
  body.template operator()<1>();
  body.template operator()<2>();
  body.template operator()<3>();
  body.template operator()<4>();
  body.template operator()<5>();
  body.template operator()<6>();
  body.template operator()<7>();
  body.template operator()<8>();
  body.template operator()<9>();
  body.template operator()<10>();
  body.template operator()<11>();
  body.template operator()<12>();
  body.template operator()<13>();
  body.template operator()<14>();
  body.template operator()<15>();
}

}  // namespace
}  // namespace quintet::cpu::QUINTET_TARGET
