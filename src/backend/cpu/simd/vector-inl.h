// Logical vectors of 16 floats, 16 int32 and 32 int16, over however many registers the target needs: the one
// layer that kernels are written on. Included once a target, inside no namespace, with QUINTET_TARGET naming
// the target's own.
//
// Highway does the work. The one hand-written instruction is dpwssd: Highway 1.0.3 has none, and maddwd + add
// take two of the slots that bound every product (measured on Zen 4: 3.6 against 1.8 G vectors/s and core).
#include <cstring>

#include "hwy/highway.h"

#if defined(__AVX512VNNI__)
#include <immintrin.h>
#endif

namespace quintet::cpu::QUINTET_TARGET {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using DF = hn::CappedTag<float, 16>;
using DI = hn::Repartition<int32_t, DF>;
using DS = hn::Repartition<int16_t, DF>;
using DU = hn::Repartition<uint16_t, DF>;
using DB = hn::Rebind<int8_t, DS>;
using DH = hn::Rebind<hwy::float16_t, DF>;
using DBF = hn::Rebind<hwy::bfloat16_t, DF>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
constexpr int kParts = 16 / kLanes;

#define EACH _Pragma("GCC unroll 4") for (int i = 0; i < kParts; ++i)

struct F {
  hn::Vec<DF> v[kParts];
};  ///< 16 float
struct I {
  hn::Vec<DI> v[kParts];
};  ///< 16 int32
struct S {
  hn::Vec<DS> v[kParts];
};  ///< 32 int16

HWY_INLINE F load(const float* p) {
  F r;
  EACH r.v[i] = hn::LoadU(DF(), p + i * kLanes);
  return r;
}
HWY_INLINE void store(F a, float* p) { EACH hn::StoreU(a.v[i], DF(), p + i * kLanes); }
HWY_INLINE F set(float x) {
  F r;
  EACH r.v[i] = hn::Set(DF(), x);
  return r;
}
HWY_INLINE F add(F a, F b) {
  EACH a.v[i] = hn::Add(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE F sub(F a, F b) {
  EACH a.v[i] = hn::Sub(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE F mul(F a, F b) {
  EACH a.v[i] = hn::Mul(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE F div(F a, F b) {
  EACH a.v[i] = hn::Div(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE F max(F a, F b) {
  EACH a.v[i] = hn::Max(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE F min(F a, F b) {
  EACH a.v[i] = hn::Min(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE F abs(F a) {
  EACH a.v[i] = hn::Abs(a.v[i]);
  return a;
}
/// a * b + c, in one rounding where the target has the instruction.
HWY_INLINE F fma(F a, F b, F c) {
  EACH c.v[i] = hn::MulAdd(a.v[i], b.v[i], c.v[i]);
  return c;
}
/// c - a * b
HWY_INLINE F fnma(F a, F b, F c) {
  EACH c.v[i] = hn::NegMulAdd(a.v[i], b.v[i], c.v[i]);
  return c;
}

HWY_INLINE I load_i32(const int32_t* p) {
  I r;
  EACH r.v[i] = hn::LoadU(DI(), p + i * kLanes);
  return r;
}
HWY_INLINE void store_i32(I a, int32_t* p) { EACH hn::StoreU(a.v[i], DI(), p + i * kLanes); }
HWY_INLINE I set_i32(int32_t x) {
  I r;
  EACH r.v[i] = hn::Set(DI(), x);
  return r;
}
HWY_INLINE I add_i32(I a, I b) {
  EACH a.v[i] = hn::Add(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE I max_i32(I a, I b) {
  EACH a.v[i] = hn::Max(a.v[i], b.v[i]);
  return a;
}
/// The bits of |a|: as integers they are ordered as the magnitudes are, Inf and NaN last.
HWY_INLINE I magnitude_bits(F a) {
  I r;
  EACH r.v[i] = hn::BitCast(DI(), hn::Abs(a.v[i]));
  return r;
}
HWY_INLINE F to_float(I a) {
  F r;
  EACH r.v[i] = hn::ConvertTo(DF(), a.v[i]);
  return r;
}
/// To the nearest integer, ties to even.
HWY_INLINE I to_nearest(F a) {
  I r;
  EACH r.v[i] = hn::NearestInt(a.v[i]);
  return r;
}

HWY_INLINE S load_i16(const void* p) {
  S r;
  EACH r.v[i] = hn::LoadU(DS(), static_cast<const int16_t*>(p) + i * 2 * kLanes);
  return r;
}
HWY_INLINE void store_i16(S a, int16_t* p) { EACH hn::StoreU(a.v[i], DS(), p + i * 2 * kLanes); }
HWY_INLINE S set_i16(int16_t x) {
  S r;
  EACH r.v[i] = hn::Set(DS(), x);
  return r;
}
HWY_INLINE S sub_i16(S a, S b) {
  EACH a.v[i] = hn::Sub(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE S and_i16(S a, S b) {
  EACH a.v[i] = hn::And(a.v[i], b.v[i]);
  return a;
}
HWY_INLINE S or_i16(S a, S b) {
  EACH a.v[i] = hn::Or(a.v[i], b.v[i]);
  return a;
}
/// Logical shifts of 16-bit lanes.
template <int kBits>
HWY_INLINE S shift_right(S a) {
  if constexpr (kBits > 0) EACH a.v[i] = hn::BitCast(DS(), hn::ShiftRight<kBits>(hn::BitCast(DU(), a.v[i])));
  return a;
}
template <int kBits>
HWY_INLINE S shift_left(S a) {
  if constexpr (kBits > 0) EACH a.v[i] = hn::ShiftLeft<kBits>(a.v[i]);
  return a;
}
HWY_INLINE S load_i8(const uint8_t* p) {
  S r;
  EACH r.v[i] = hn::PromoteTo(DS(), hn::LoadU(DB(), reinterpret_cast<const int8_t*>(p) + i * 2 * kLanes));
  return r;
}

/// The same of bytes without a sign.
HWY_INLINE S load_u8(const uint8_t* p) {
  S r;
  EACH r.v[i] = hn::PromoteTo(DS(), hn::LoadU(hn::Rebind<uint8_t, DS>(), p + i * 2 * kLanes));
  return r;
}

/// acc[lane] += w[2 lane] * x[2 lane] + w[2 lane + 1] * x[2 lane + 1], x holding a pair of int16 in each
/// int32.
HWY_INLINE I dot_pairs(I acc, S w, I x) {
#if defined(__AVX512VNNI__)
  acc.v[0].raw = _mm512_dpwssd_epi32(acc.v[0].raw, w.v[0].raw, x.v[0].raw);
#elif HWY_TARGET == HWY_AVX2
  hn::Vec<DI> unused;
  EACH acc.v[i] = hn::ReorderWidenMulAccumulate(DI(), w.v[i], hn::BitCast(DS(), x.v[i]), acc.v[i], unused);
#else
  EACH {
    const auto w32 = hn::BitCast(DI(), w.v[i]);
    const auto low =
        hn::Mul(hn::ShiftRight<16>(hn::ShiftLeft<16>(w32)), hn::ShiftRight<16>(hn::ShiftLeft<16>(x.v[i])));
    const auto high = hn::Mul(hn::ShiftRight<16>(w32), hn::ShiftRight<16>(x.v[i]));
    acc.v[i] = hn::Add(acc.v[i], hn::Add(low, high));
  }
#endif
  return acc;
}

HWY_INLINE F load_f16(const uint16_t* p) {
  F r;
  EACH r.v[i] = hn::PromoteTo(DF(), hn::LoadU(DH(), reinterpret_cast<const hwy::float16_t*>(p) + i * kLanes));
  return r;
}
HWY_INLINE void store_f16(F a, uint16_t* p) {
  EACH hn::StoreU(hn::DemoteTo(DH(), a.v[i]), DH(), reinterpret_cast<hwy::float16_t*>(p) + i * kLanes);
}
HWY_INLINE F load_bf16(const uint16_t* p) {
  F r;
  EACH r.v[i] =
      hn::PromoteTo(DF(), hn::LoadU(DBF(), reinterpret_cast<const hwy::bfloat16_t*>(p) + i * kLanes));
  return r;
}
/// 16 unsigned, or signed, bytes.
HWY_INLINE F load_u8_as_float(const uint8_t* p) {
  using D8 = hn::Rebind<uint8_t, DF>;
  F r;
  EACH r.v[i] = hn::ConvertTo(DF(), hn::PromoteTo(DI(), hn::LoadU(D8(), p + i * kLanes)));
  return r;
}
HWY_INLINE F load_i8_as_float(const uint8_t* p) {
  using D8 = hn::Rebind<int8_t, DF>;
  F r;
  EACH r.v[i] = hn::ConvertTo(
      DF(), hn::PromoteTo(DI(), hn::LoadU(D8(), reinterpret_cast<const int8_t*>(p) + i * kLanes)));
  return r;
}

/// 16 floats E4M3, 2^8 times too small: as halves their bits are these.
HWY_INLINE F load_f8_small(const uint8_t* p) {
  using DU16 = hn::Rebind<uint16_t, DF>;
  using D8 = hn::Rebind<uint8_t, DF>;
  F r;
  EACH {
    const auto wide = hn::PromoteTo(DU16(), hn::LoadU(D8(), p + i * kLanes));
    const auto sign = hn::ShiftLeft<8>(hn::And(wide, hn::Set(DU16(), 0x80)));
    const auto rest = hn::ShiftLeft<7>(hn::And(wide, hn::Set(DU16(), 0x7F)));
    r.v[i] = hn::PromoteTo(DF(), hn::BitCast(DH(), hn::Or(sign, rest)));
  }
  return r;
}

/// table[nibble] of 16 bytes' halves: the low ones, or (kHigh) the high ones.
template <bool kHigh>
HWY_INLINE F look_up_nibbles(const uint8_t* p, const float* table) {
  using D8 = hn::Rebind<uint8_t, DF>;
  F r;
  EACH {
    const auto wide = hn::PromoteTo(DI(), hn::LoadU(D8(), p + i * kLanes));
    const auto index = kHigh ? hn::ShiftRight<4>(wide) : hn::And(wide, hn::Set(DI(), 15));
    if constexpr (kLanes == 16) {
      r.v[i] = hn::TableLookupLanes(hn::LoadU(DF(), table), hn::IndicesFromVec(DF(), index));
    } else if constexpr (kLanes == 8) {
      const auto within = hn::IndicesFromVec(DF(), hn::And(index, hn::Set(DI(), 7)));
      const auto low = hn::TableLookupLanes(hn::LoadU(DF(), table), within);
      const auto high = hn::TableLookupLanes(hn::LoadU(DF(), table + 8), within);
      r.v[i] = hn::IfThenElse(hn::RebindMask(DF(), hn::Gt(index, hn::Set(DI(), 7))), high, low);
    } else {
      r.v[i] = hn::GatherIndex(DF(), table, index);
    }
  }
  return r;
}

/// `value` in the lanes where a is not `what`, else 0.
HWY_INLINE F zero_where(F a, float what, F value) {
  EACH value.v[i] = hn::IfThenZeroElse(hn::Eq(a.v[i], hn::Set(DF(), what)), value.v[i]);
  return value;
}

/// `yes` in the lanes where first <= base + lane <= last, else `no`.
HWY_INLINE F select_range(int32_t base, int32_t first, int32_t last, F yes, F no) {
  EACH {
    const auto lane = hn::Iota(DI(), base + i * kLanes);
    const auto out = hn::Or(hn::Lt(lane, hn::Set(DI(), first)), hn::Gt(lane, hn::Set(DI(), last)));
    yes.v[i] = hn::IfThenElse(hn::RebindMask(DF(), out), no.v[i], yes.v[i]);
  }
  return yes;
}

/// The 16 lanes (of registers with the tag D) folded to 4 by `op`: lane l with l + 8, then with l + 4.
template <class D, class V, class Op>
HWY_INLINE auto fold_to_four(V a, Op op) {
  if constexpr (kParts == 1) {
    const hn::Half<D> half;
    const hn::Half<hn::Half<D>> quarter;
    const auto eight = op(hn::LowerHalf(half, a.v[0]), hn::UpperHalf(half, a.v[0]));
    return op(hn::LowerHalf(quarter, eight), hn::UpperHalf(quarter, eight));
  } else if constexpr (kParts == 2) {
    const hn::Half<D> half;
    const auto eight = op(a.v[0], a.v[1]);
    return op(hn::LowerHalf(half, eight), hn::UpperHalf(half, eight));
  } else {
    return op(op(a.v[0], a.v[2]), op(a.v[1], a.v[3]));
  }
}
/// A tree over the 16 lanes that is the same for every target: lane l meets l + 8, then + 4, + 2, + 1.
template <class D, class V, class Op>
HWY_INLINE auto reduce_lanes(V a, Op op) {
  auto four = fold_to_four<D>(a, op);
  four = op(four, hn::Shuffle1032(four));
  return hn::GetLane(op(four, hn::Shuffle2301(four)));
}
HWY_INLINE float sum_lanes(F a) {
  return reduce_lanes<DF>(a, [](auto x, auto y) { return hn::Add(x, y); });
}
HWY_INLINE float max_lanes(F a) {
  return reduce_lanes<DF>(a, [](auto x, auto y) { return hn::Max(x, y); });
}
HWY_INLINE int32_t sum_lanes_i32(I a) {
  return reduce_lanes<DI>(a, [](auto x, auto y) { return hn::Add(x, y); });
}
HWY_INLINE int32_t max_lanes_i32(I a) {
  return reduce_lanes<DI>(a, [](auto x, auto y) { return hn::Max(x, y); });
}

/// e^x to about 1 ulp for x in [-87, 88], clamped outside; NaN for NaN.
HWY_INLINE F exp(F x) {
  const F limited = min(max(x, set(-87.0f)), set(88.0f));
  // n = round(x / ln 2) by adding 1.5 * 2^23, whose low mantissa bits then hold n.
  const F magic = set(12582912.0f);
  const F shifted = fma(limited, set(1.44269504f), magic);
  const F n = sub(shifted, magic);
  F r = fnma(n, set(0.693359375f), limited);  // ln 2 in two parts (Cody and Waite)
  r = fnma(n, set(-2.12194440e-4f), r);
  F p = set(1.9875691500e-4f);  // minimax polynomial on [-ln 2 / 2, ln 2 / 2] (Moshier, Cephes expf)
  p = fma(p, r, set(1.3981999507e-3f));
  p = fma(p, r, set(8.3334519073e-3f));
  p = fma(p, r, set(4.1665795894e-2f));
  p = fma(p, r, set(1.6666665459e-1f));
  p = fma(p, r, set(5.0000001201e-1f));
  p = fma(mul(p, r), r, add(r, set(1.0f)));
  EACH {
    const auto exponent = hn::ShiftLeft<23>(hn::BitCast(DI(), shifted.v[i]));
    const auto scaled = hn::BitCast(DF(), hn::Add(hn::BitCast(DI(), p.v[i]), exponent));
    p.v[i] = hn::IfThenElse(hn::Eq(x.v[i], x.v[i]), scaled, x.v[i]);
  }
  return p;
}

}  // namespace
}  // namespace quintet::cpu::QUINTET_TARGET
