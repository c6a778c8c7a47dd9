// Ranges, codes and errors of rows on whatever vectors the target has. Included once a target, which
// QUINTET_TARGET names.
#define HWY_COMPILE_ONLY_STATIC 1
#include <array>
#include <cmath>
#include <cstring>

#include "hwy/highway.h"
#include "quant/row_kernels.h"
#include "tensor/half.h"

namespace quintet::QUINTET_TARGET {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

constexpr size_t kLanes = 16;  // groups that are searched side by side, whatever the target's width
constexpr size_t kMostGroup = 128;
using D = hn::CappedTag<float, kLanes>;
using V = hn::Vec<D>;
using U = hn::RebindToUnsigned<D>;
constexpr size_t kWidth = hn::MaxLanes(D());
static_assert(kLanes % kWidth == 0 && 32 % kWidth == 0);

HWY_INLINE V set(float x) { return hn::Set(D(), x); }

/// To the nearest whole number: what is added pushes the fraction out of the mantissa.
HWY_INLINE V nearest(V x) { return hn::Sub(hn::Add(x, set(kRoundingShift)), set(kRoundingShift)); }

void decode_f16(const uint8_t* in, size_t count, float* out) {
  const hn::Rebind<uint16_t, D> halves;
  const hn::Repartition<uint8_t, decltype(halves)> bytes;
  const U wide;
  size_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const auto bits = hn::PromoteTo(wide, hn::BitCast(halves, hn::LoadU(bytes, in + 2 * i)));
    const auto magnitude = hn::ShiftLeft<13>(hn::And(bits, hn::Set(wide, 0x7FFFu)));
    // The mantissa of a subnormal half stands behind a 1 that is then taken away again.
    const V one = hn::BitCast(D(), hn::Set(wide, 113u << 23));
    const V subnormal = hn::Sub(hn::BitCast(D(), hn::Add(magnitude, hn::Set(wide, 113u << 23))), one);
    const auto normal =
        hn::Add(magnitude, hn::IfThenElse(hn::Lt(magnitude, hn::Set(wide, 31u << 23)),
                                          hn::Set(wide, 112u << 23), hn::Set(wide, 224u << 23)));
    const auto value =
        hn::IfThenElse(hn::Lt(magnitude, hn::Set(wide, 1u << 23)), hn::BitCast(wide, subnormal), normal);
    const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(wide, 0x8000u)));
    hn::StoreU(hn::BitCast(D(), hn::Or(value, sign)), D(), out + i);
  }
  for (; i < count; ++i) out[i] = f16_to_f32(static_cast<uint16_t>(in[2 * i] | in[2 * i + 1] << 8));
}

bool all_within(const float* values, size_t count, float most) {
  auto within = hn::Eq(set(0), set(0));
  size_t i = 0;
  for (; i + kWidth <= count; i += kWidth)
    within = hn::And(within, hn::Le(hn::Abs(hn::LoadU(D(), values + i)), set(most)));
  bool all = hn::AllTrue(D(), within);
  for (; i < count; ++i) all &= std::abs(values[i]) <= most;
  return all;
}

/// Lanes whose weight takes part in its group.
HWY_INLINE auto kept_lanes(const uint8_t* kept) {
  const hn::Rebind<uint8_t, D> bytes;
  const hn::RebindToSigned<D> wide;
  return hn::RebindMask(D(), hn::Ne(hn::PromoteTo(wide, hn::LoadU(bytes, kept)), hn::Zero(wide)));
}

Extent extent_of_group(const float* values, const uint8_t* kept, size_t count) {
  V low = set(INFINITY), high = set(-INFINITY);
  for (size_t i = 0; i < count; i += kWidth) {
    const V v = hn::LoadU(D(), values + i);
    if (kept) {
      const auto mask = kept_lanes(kept + i);
      low = hn::Min(low, hn::IfThenElse(mask, v, set(INFINITY)));
      high = hn::Max(high, hn::IfThenElse(mask, v, set(-INFINITY)));
    } else {
      low = hn::Min(low, v);
      high = hn::Max(high, v);
    }
  }
  Extent extent{hn::GetLane(hn::MinOfLanes(D(), low)), hn::GetLane(hn::MaxOfLanes(D(), high))};
  if (extent.low > extent.high) return {};
  if (extent.low == 0 && extent.high == 0)  // the first zero's sign is the scale's
    for (size_t i = 0; i < count; ++i)
      if (!kept || kept[i]) return {values[i], values[i]};
  return extent;
}

void extents(const RowGroups& row, Extent* extents) {
  const auto group = static_cast<size_t>(row.format.group);
  for (size_t g = 0; g < row.groups; ++g)
    extents[g] = extent_of_group(row.values + g * group, row.kept ? row.kept + g * group : nullptr, group);
}

/// f16_to_f32(f32_to_f16(x)) of numbers.
HWY_INLINE V as_half(V x) {
  const U wide;
  const auto bits = hn::BitCast(wide, x), sign = hn::And(bits, hn::Set(wide, 0x80000000u)),
             magnitude = hn::Xor(bits, sign);
  const V half = set(0.5f);
  const auto subnormal = hn::BitCast(wide, hn::Sub(hn::Add(hn::BitCast(D(), magnitude), half), half));
  const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(wide, 1));
  const auto rounded =
      hn::AndNot(hn::Set(wide, 0x1FFFu), hn::Add(hn::Add(magnitude, hn::Set(wide, 0xFFFu)), odd));
  auto made = hn::IfThenElse(hn::Lt(magnitude, hn::Set(wide, 0x38800000u)), subnormal, rounded);
  made = hn::IfThenElse(hn::Gt(magnitude, hn::Set(wide, 0x477FEFFFu)), hn::Set(wide, 0x7F800000u), made);
  return hn::BitCast(D(), hn::Or(made, sign));
}

/// kLanes groups, one a lane: value i of group g lies at [i][g].
struct Lanes {
  alignas(64) float x[kMostGroup][kLanes];
  alignas(64) float weight[kMostGroup][kLanes];
  alignas(64) std::array<float, kLanes> low{}, high{};
};

void gather(const RowGroups& row, const Extent* extents, size_t first, Lanes& lanes) {
  const auto group = static_cast<size_t>(row.format.group);
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const size_t g = std::min(first + lane, row.groups - 1), begin = g * group;
    lanes.low[lane] = extents[g].low;
    lanes.high[lane] = extents[g].high;
    for (size_t i = 0; i < group; ++i) lanes.x[i][lane] = row.values[begin + i];
    for (size_t i = 0; i < group; ++i)
      lanes.weight[i][lane] = row.kept && !row.kept[begin + i] ? 0.0f
                              : row.weights                    ? row.weights[begin + i]
                                                               : 1.0f;
  }
}

struct Ranges {
  V scale, minimum;
};

/// range_of() of kWidth groups.
HWY_INLINE Ranges ranges_of(const IntegerFormat& format, const Lanes& lanes, size_t first, float factor) {
  const V low = hn::Load(D(), lanes.low.data() + first), high = hn::Load(D(), lanes.high.data() + first);
  if (format.whole_zero && format.minimum) {
    alignas(64) std::array<float, kLanes> scale{}, minimum{};
    for (size_t i = 0; i < kWidth; ++i) {
      const IntegerRange range = range_of(format, {lanes.low[first + i], lanes.high[first + i]}, factor);
      scale[i] = range.scale, minimum[i] = range.minimum;
    }
    return {hn::Load(D(), scale.data()), hn::Load(D(), minimum.data())};
  }
  if (!format.minimum) {
    const V below = hn::Neg(low), largest = hn::IfThenElse(hn::Lt(below, high), high, below);
    return {as_half(hn::Div(hn::Mul(largest, set(factor)), set(static_cast<float>(format.max_code() / 2)))),
            hn::Zero(D())};
  }
  const V middle = hn::Div(hn::Add(low, high), set(2)),
          half = hn::Mul(hn::Div(hn::Sub(high, low), set(2)), set(factor));
  return {as_half(hn::Div(hn::Mul(set(2), half), set(static_cast<float>(format.max_code())))),
          as_half(hn::Sub(middle, half))};
}

HWY_INLINE void search_lanes(const IntegerFormat& format, const Lanes& lanes, size_t first,
                             IntegerRange* ranges) {
  const auto group = static_cast<size_t>(format.group);
  const auto offset = static_cast<float>(format.code_offset());
  const V low = set(-offset), high = set(static_cast<float>(format.max_code()) - offset);
  Ranges best = ranges_of(format, lanes, first, 1);
  V least = set(INFINITY);
  auto alive = hn::Eq(set(0), set(0));
  for (int i = 0; i < kRangeFactors; ++i) {
    const Ranges range = ranges_of(format, lanes, first, range_factor(i));
    alive = hn::And(alive, hn::Ne(range.scale, set(0)));
    if (hn::AllFalse(D(), alive)) break;
    const V inverse = hn::Div(set(1), range.scale);
    V sum = hn::Zero(D());
    for (size_t j = 0; j < group; ++j) {
      const V x = hn::Load(D(), lanes.x[j] + first);
      const V steps = hn::Min(hn::Max(hn::Mul(hn::Sub(x, range.minimum), inverse), low), high);
      const V error = hn::Sub(x, hn::Add(hn::Mul(range.scale, nearest(steps)), range.minimum));
      sum = hn::Add(sum, hn::Mul(hn::Mul(hn::Load(D(), lanes.weight[j] + first), error), error));
    }
    const auto better = hn::And(alive, hn::Lt(sum, least));
    least = hn::IfThenElse(better, sum, least);
    best = {hn::IfThenElse(better, range.scale, best.scale),
            hn::IfThenElse(better, range.minimum, best.minimum)};
  }
  alignas(64) std::array<float, kLanes> scale, minimum;
  hn::Store(best.scale, D(), scale.data());
  hn::Store(best.minimum, D(), minimum.data());
  for (size_t i = 0; i < kWidth; ++i) ranges[i] = {scale[i], minimum[i]};
}

void search(const RowGroups& row, const Extent* extents, IntegerRange* ranges) {
  Lanes lanes;
  for (size_t first = 0; first < row.groups; first += kLanes) {
    gather(row, extents, first, lanes);
    std::array<IntegerRange, kLanes> found;
    for (size_t lane = 0; lane < kLanes; lane += kWidth)
      search_lanes(row.format, lanes, lane, found.data() + lane);
    std::copy_n(found.begin(), std::min(kLanes, row.groups - first), ranges + first);
  }
}

void round(const RowGroups& row, const IntegerRange* ranges, uint8_t* codes) {
  const auto group = static_cast<size_t>(row.format.group);
  const hn::Rebind<uint8_t, D> bytes;
  const hn::RebindToSigned<D> wide;
  const auto offset = hn::Set(wide, row.format.code_offset()), most = hn::Set(wide, row.format.max_code());
  for (size_t g = 0; g < row.groups; ++g) {
    const float* values = row.values + g * group;
    uint8_t* out = codes + g * group;
    if (ranges[g].scale == 0) {
      std::memset(out, row.format.code_offset(), group);
      continue;
    }
    const V scale = set(ranges[g].scale), minimum = set(ranges[g].minimum);
    for (size_t i = 0; i < group; i += kWidth) {
      const V steps = hn::Div(hn::Sub(hn::LoadU(D(), values + i), minimum), scale);
      const V rounded = nearest(hn::Min(hn::Max(steps, set(-300)), set(300)));
      const auto code = hn::Min(hn::Max(hn::Add(hn::ConvertTo(wide, rounded), offset), hn::Zero(wide)), most);
      hn::StoreU(hn::DemoteTo(bytes, code), bytes, out + i);
    }
  }
}

void decode(const IntegerFormat& format, const uint8_t* codes, size_t groups, const IntegerRange* ranges,
            float* values) {
  const auto group = static_cast<size_t>(format.group);
  const hn::Rebind<uint8_t, D> bytes;
  const hn::RebindToSigned<D> wide;
  const auto offset = hn::Set(wide, format.code_offset());
  for (size_t g = 0; g < groups; ++g) {
    const V scale = set(ranges[g].scale), minimum = set(ranges[g].minimum);
    for (size_t i = g * group; i < (g + 1) * group; i += kWidth) {
      const auto code = hn::PromoteTo(wide, hn::LoadU(bytes, codes + i));
      const V scaled = hn::Mul(scale, hn::ConvertTo(D(), hn::Sub(code, offset)));
      hn::StoreU(format.minimum ? hn::Add(scaled, minimum) : scaled, D(), values + i);
    }
  }
}

void errors(const float* weights, const float* decoded, const float* moments, size_t count, double* lost,
            double* had) {
  constexpr size_t kSums = 8;
  using Wide = hn::CappedTag<double, kSums>;
  const Wide wide;
  const hn::Rebind<float, Wide> narrow;
  constexpr size_t kWide = hn::MaxLanes(Wide()), kVectors = kSums / kWide;
  hn::Vec<Wide> lost_sums[kVectors], had_sums[kVectors];
  for (size_t v = 0; v < kVectors; ++v) lost_sums[v] = had_sums[v] = hn::Zero(wide);
  size_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = i + v * kWide;
      const auto weight = hn::PromoteTo(wide, hn::LoadU(narrow, weights + at));
      const auto error = hn::Sub(weight, hn::PromoteTo(wide, hn::LoadU(narrow, decoded + at)));
      const auto moment = moments ? hn::PromoteTo(wide, hn::LoadU(narrow, moments + at)) : hn::Set(wide, 1.0);
      lost_sums[v] = hn::Add(lost_sums[v], hn::Mul(hn::Mul(moment, error), error));
      had_sums[v] = hn::Add(had_sums[v], hn::Mul(hn::Mul(moment, weight), weight));
    }
  alignas(64) std::array<double, kSums> all_lost, all_had;
  for (size_t v = 0; v < kVectors; ++v) {
    hn::Store(lost_sums[v], wide, all_lost.data() + v * kWide);
    hn::Store(had_sums[v], wide, all_had.data() + v * kWide);
  }
  for (; i < count; ++i) {
    const double moment = moments ? moments[i] : 1.0, weight = weights[i], error = weight - decoded[i];
    all_lost[0] += moment * error * error;
    all_had[0] += moment * weight * weight;
  }
  *lost = *had = 0;
  for (size_t sum = 0; sum < kSums; ++sum) *lost += all_lost[sum], *had += all_had[sum];
}

}  // namespace

const RowKernels& kernels() {
  static constexpr RowKernels table = {.decode_f16 = decode_f16,
                                       .all_within = all_within,
                                       .extents = extents,
                                       .search = search,
                                       .round = round,
                                       .decode = decode,
                                       .errors = errors};
  return table;
}

}  // namespace quintet::QUINTET_TARGET
