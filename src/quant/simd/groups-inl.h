// Scales and codes of groups on whatever vectors the target has. Included once a target, which QUINTET_TARGET
// names.
#define HWY_COMPILE_ONLY_STATIC 1
#include <cmath>

#include "hwy/highway.h"
#include "quant/blocks.h"
#include "quant/group_kernels.h"

namespace quintet::QUINTET_TARGET {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::CappedTag<float, kGroupLanes>;
using V = hn::Vec<D>;
constexpr size_t kWidth = hn::MaxLanes(D());

constexpr int kSteps = 9;  // scales tried to either side of the one that covers the extent

/// How far apart those are, in codes. With more codes a scale that happens to suit a group is found farther
/// off: of steps from 0.05 to 0.5 these lose least on real weights from 2 to 6 bits.
float step_size(int codes) { return 0.05f * std::sqrt(static_cast<float>(codes)); }

HWY_INLINE V set(float x) { return hn::Set(D(), x); }
/// Not hn::MulAdd, which is fused on some targets alone.
HWY_INLINE V add_product(V sum, V a, V b) { return hn::Add(sum, hn::Mul(a, b)); }

/// To the nearest whole number between `low` and `high`: what is added pushes the fraction out of the
/// mantissa.
HWY_INLINE V nearest(V x, V low, V high) {
  const V magic = set(12582912.0f);  // 1.5 * 2^23
  return hn::Sub(hn::Add(hn::Min(hn::Max(x, low), high), magic), magic);
}

/// 1 / x, 0 where x is too small to be a scale in FP16.
HWY_INLINE V inverse_of(V x) {
  const auto nothing = hn::Lt(hn::Abs(x), set(1e-30f));
  return hn::IfThenZeroElse(nothing, hn::Div(set(1), hn::IfThenElse(nothing, set(1), x)));
}

/// kWidth groups of a batch.
struct Lanes {
  const GroupBatch& batch;
  size_t first;
  V x(size_t i) const { return hn::Load(D(), batch.x[i] + first); }
  V weight(size_t i) const { return hn::Load(D(), batch.weight[i] + first); }
};

HWY_INLINE V largest_of(const Lanes& lanes) {
  V top = lanes.x(0), bottom = top;
  for (size_t i = 1; i < lanes.batch.count; ++i)
    top = hn::Max(top, lanes.x(i)), bottom = hn::Min(bottom, lanes.x(i));
  return hn::IfThenElse(hn::Gt(top, hn::Neg(bottom)), top, bottom);
}

/// The scale of the least error among those fitted to the codes that `count` inverses give: s = xq / qq
/// leaves sum x^2 - xq^2 / qq. `otherwise` is the scale where no code that counts is other than 0.
template <class Code, class Inverse>
HWY_INLINE V best_scale(const Lanes& lanes, V otherwise, int count, Code code, Inverse inverse_at) {
  V best = hn::Zero(D()), best_scale = otherwise;
  for (int candidate = 0; candidate < count; ++candidate) {
    const V inverse = inverse_at(candidate);
    V xq = hn::Zero(D()), qq = hn::Zero(D());
    for (size_t i = 0; i < lanes.batch.count; ++i) {
      const V x = lanes.x(i), q = code(hn::Mul(x, inverse)), wq = hn::Mul(lanes.weight(i), q);
      xq = add_product(xq, wq, x);
      qq = add_product(qq, wq, q);
    }
    const V scale = hn::Mul(xq, inverse_of(qq)), gain = hn::Mul(xq, scale);
    const auto better = hn::Gt(gain, best);
    best = hn::IfThenElse(better, gain, best);
    best_scale = hn::IfThenElse(better, scale, best_scale);
  }
  return best_scale;
}

void fit_symmetric(const GroupBatch& batch, int low, int high, float* scales) {
  const float step = step_size(high - low + 1), widest = static_cast<float>(low) - step * kSteps;
  const V lowest = set(static_cast<float>(low)), highest = set(static_cast<float>(high));
  for (size_t first = 0; first < kGroupLanes; first += kWidth) {
    const Lanes lanes{batch, first};
    const V largest = largest_of(lanes), inverse = inverse_of(largest);
    const V scale = best_scale(
        lanes, hn::Div(largest, lowest), 2 * kSteps + 1, [&](V x) { return nearest(x, lowest, highest); },
        [&](int candidate) { return hn::Mul(inverse, set(widest + step * static_cast<float>(candidate))); });
    hn::StoreU(scale, D(), scales + first);
  }
}

/// Sums over a group whose values are counted from its lower end.
struct LineSums {
  V w, y, q, qq, yq, yy;
};

struct LineFit {
  V scale, minimum, error;
};

/// The line with the least error of given codes; its minimum at most `most`.
HWY_INLINE LineFit solve_line(const LineSums& s, V most) {
  const V determinant = hn::Sub(hn::Mul(s.w, s.qq), hn::Mul(s.q, s.q));
  const auto flat = hn::Le(determinant, hn::Mul(set(1e-6f), hn::Mul(s.w, s.qq)));
  const V over = hn::Div(set(1), hn::IfThenElse(flat, set(1), determinant));
  const V free_minimum = hn::Mul(hn::Sub(hn::Mul(s.qq, s.y), hn::Mul(s.q, s.yq)), over);
  const V minimum = hn::Min(free_minimum, most);
  // The best scale under the minimum, whether that is its own best or the most that is allowed.
  const V scale = hn::Mul(hn::Sub(s.yq, hn::Mul(minimum, s.q)), inverse_of(s.qq));
  V error = hn::Sub(s.yy, hn::Mul(set(2), hn::Add(hn::Mul(scale, s.yq), hn::Mul(minimum, s.y))));
  error = add_product(error, hn::Mul(scale, scale), s.qq);
  error = add_product(error, hn::Mul(set(2), hn::Mul(scale, minimum)), s.q);
  error = add_product(error, hn::Mul(minimum, minimum), s.w);
  const auto none = hn::Or(flat, hn::Le(scale, hn::Zero(D())));
  return {scale, minimum, hn::IfThenElse(none, set(INFINITY), error)};
}

HWY_INLINE LineFit best_line(const Lanes& lanes, V low, V range, V most, int high) {
  const V highest = set(static_cast<float>(high)), inverse_range = inverse_of(range);
  LineSums sums{};
  sums.w = sums.y = sums.yy = hn::Zero(D());
  for (size_t i = 0; i < lanes.batch.count; ++i) {
    const V w = lanes.weight(i), y = hn::Sub(lanes.x(i), low), wy = hn::Mul(w, y);
    sums.w = hn::Add(sums.w, w);
    sums.y = hn::Add(sums.y, wy);
    sums.yy = add_product(sums.yy, wy, y);
  }
  const float step = step_size(high + 1), narrowest = static_cast<float>(high) - step * kSteps;
  LineFit best{hn::Mul(range, set(1 / static_cast<float>(high))), hn::Zero(D()), set(INFINITY)};
  for (int candidate = 0; candidate <= 2 * kSteps; ++candidate) {
    const V inverse = hn::Mul(inverse_range, set(narrowest + step * static_cast<float>(candidate)));
    sums.q = sums.qq = sums.yq = hn::Zero(D());
    for (size_t i = 0; i < lanes.batch.count; ++i) {
      const V y = hn::Sub(lanes.x(i), low), q = nearest(hn::Mul(y, inverse), hn::Zero(D()), highest);
      const V wq = hn::Mul(lanes.weight(i), q);
      sums.q = hn::Add(sums.q, wq);
      sums.qq = add_product(sums.qq, wq, q);
      sums.yq = add_product(sums.yq, wq, y);
    }
    const LineFit fit = solve_line(sums, most);
    const auto better = hn::Lt(fit.error, best.error);
    best = {hn::IfThenElse(better, fit.scale, best.scale), hn::IfThenElse(better, fit.minimum, best.minimum),
            hn::IfThenElse(better, fit.error, best.error)};
  }
  return best;
}

void fit_line(const GroupBatch& batch, int high, bool negative_minimum, float* scales, float* minima) {
  for (size_t first = 0; first < kGroupLanes; first += kWidth) {
    const Lanes lanes{batch, first};
    V low = lanes.x(0), top = low;
    for (size_t i = 1; i < batch.count; ++i) low = hn::Min(low, lanes.x(i)), top = hn::Max(top, lanes.x(i));
    if (negative_minimum) low = hn::Min(low, hn::Zero(D()));
    const V most = negative_minimum ? hn::Neg(low) : set(INFINITY);
    const LineFit fit = best_line(lanes, low, hn::Sub(top, low), most, high);
    hn::StoreU(fit.scale, D(), scales + first);
    hn::StoreU(hn::Add(fit.minimum, low), D(), minima + first);
  }
}

/// The number, from 0, of the level nearest to x, and (kValue) the level itself instead.
template <bool kValue>
HWY_INLINE V nearest_level(V x) {
  V level = kValue ? set(kIq4Values[0]) : hn::Zero(D());
  for (int i = 1; i < 16; ++i) {
    const float before = kIq4Values[i - 1], here = kIq4Values[i];
    const auto above = hn::Gt(x, set((before + here) / 2));
    level = hn::Add(level, hn::IfThenElseZero(above, set(kValue ? here - before : 1)));
  }
  return level;
}

/// The levels are not alike on both sides of 0, so the largest value is tried at either end.
void fit_levels(const GroupBatch& batch, float* scales) {
  constexpr int kTries = 6;  // to either side of the two, 3 apart
  for (size_t first = 0; first < kGroupLanes; first += kWidth) {
    const Lanes lanes{batch, first};
    const V largest = largest_of(lanes), inverse = inverse_of(largest);
    const V scale = best_scale(
        lanes, hn::Div(largest, set(kIq4Values[0])), 2 * (2 * kTries + 1),
        [&](V x) { return nearest_level<true>(x); },
        [&](int candidate) {
          const float end = kIq4Values[0] + 3.0f * static_cast<float>(candidate / 2 - kTries);
          return hn::Mul(inverse, set(candidate % 2 == 0 ? end : -end));
        });
    hn::StoreU(scale, D(), scales + first);
  }
}

/// Of the codes under a scale and a minimum that is taken off.
template <class Code>
HWY_INLINE V error_of(const Lanes& lanes, V scale, V minimum, Code code) {
  const V inverse = inverse_of(scale);
  V error = hn::Zero(D());
  for (size_t i = 0; i < lanes.batch.count; ++i) {
    const V x = hn::Add(lanes.x(i), minimum), q = code(hn::Mul(x, inverse)),
            off = hn::Sub(x, hn::Mul(scale, q));
    error = add_product(error, hn::Mul(lanes.weight(i), off), off);
  }
  return error;
}

template <class Code>
HWY_INLINE void add_up(const Lanes& lanes, V scale, V minimum, Code code, CodeSums& sums) {
  const V inverse = inverse_of(scale);
  V one = hn::Zero(D()), sx = one, sq = one, sxq = one, sqq = one;
  for (size_t i = 0; i < lanes.batch.count; ++i) {
    const V w = lanes.weight(i), x = lanes.x(i), q = code(hn::Mul(hn::Add(x, minimum), inverse)),
            wq = hn::Mul(w, q);
    one = hn::Add(one, w);
    sx = add_product(sx, w, x);
    sq = hn::Add(sq, wq);
    sxq = add_product(sxq, wq, x);
    sqq = add_product(sqq, wq, q);
  }
  hn::Store(one, D(), sums.one.data() + lanes.first);
  hn::Store(sx, D(), sums.x.data() + lanes.first);
  hn::Store(sq, D(), sums.q.data() + lanes.first);
  hn::Store(sxq, D(), sums.xq.data() + lanes.first);
  hn::Store(sqq, D(), sums.qq.data() + lanes.first);
}

template <class Code>
void settle_lanes(const Lanes& lanes, const SettleRequest& r, WholeScales& wholes, CodeSums& sums,
                  Code code) {
  const V low = set(static_cast<float>(r.size_low)), high = set(static_cast<float>(r.size_high));
  const V d = hn::Load(D(), r.d.data() + lanes.first), dmin = hn::Load(D(), r.dmin.data() + lanes.first);
  const V scale = hn::Load(D(), wholes.scale.data() + lanes.first),
          minimum = hn::Load(D(), wholes.minimum.data() + lanes.first);
  const int reach = r.grid == Grid::line ? 1 : 0;
  V best = set(INFINITY), best_scale = scale, best_minimum = minimum;
  for (const int i : {0, -1, 1})  // where all are alike, it stays as it is
    for (const int j : {0, -reach, reach}) {
      const V s = hn::Min(hn::Max(hn::Add(scale, set(static_cast<float>(i))), low), high);
      const V m = hn::Min(hn::Max(hn::Add(minimum, set(static_cast<float>(j))), hn::Zero(D())), high);
      const V error = error_of(lanes, hn::Mul(d, s), hn::Mul(dmin, m), code);
      const auto better = hn::Lt(error, best);
      best = hn::IfThenElse(better, error, best);
      best_scale = hn::IfThenElse(better, s, best_scale);
      best_minimum = hn::IfThenElse(better, m, best_minimum);
    }
  hn::Store(best_scale, D(), wholes.scale.data() + lanes.first);
  hn::Store(best_minimum, D(), wholes.minimum.data() + lanes.first);
  add_up(lanes, hn::Mul(d, best_scale), hn::Mul(dmin, best_minimum), code, sums);
}

void settle(const GroupBatch& batch, const SettleRequest& request, WholeScales& wholes, CodeSums& sums) {
  const V low = set(static_cast<float>(request.low)), high = set(static_cast<float>(request.high));
  for (size_t first = 0; first < kGroupLanes; first += kWidth) {
    const Lanes lanes{batch, first};
    if (request.grid == Grid::levels)
      settle_lanes(lanes, request, wholes, sums, [](V x) { return nearest_level<true>(x); });
    else
      settle_lanes(lanes, request, wholes, sums, [&](V x) { return nearest(x, low, high); });
  }
}

template <class Code>
HWY_INLINE void round_with(const GroupCodes& args, Code code) {
  const hn::Rebind<uint8_t, D> bytes;
  const hn::Rebind<int32_t, D> integers;
  const float* x = args.x;
  uint8_t* codes = args.codes;
  for (size_t g = 0; g < args.groups; ++g) {
    const V inverse = set(args.inverse[g]), minimum = set(args.minimum ? args.minimum[g] : 0);
    for (size_t i = 0; i < args.count; i += kWidth, x += kWidth, codes += kWidth) {
      const V q = code(hn::Mul(hn::Sub(hn::LoadU(D(), x), minimum), inverse));
      hn::StoreU(hn::DemoteTo(bytes, hn::ConvertTo(integers, q)), bytes, codes);
    }
  }
}

void round(const GroupCodes& args) {
  const V low = set(static_cast<float>(args.low)), high = set(static_cast<float>(args.high));
  round_with(args, [&](V x) { return hn::Sub(nearest(x, low, high), low); });
}

void round_levels(const GroupCodes& args) {
  round_with(args, [](V x) { return nearest_level<false>(x); });
}

}  // namespace

const GroupKernels& kernels() {
  static constexpr GroupKernels table = {.fit_symmetric = fit_symmetric,
                                         .fit_line = fit_line,
                                         .fit_levels = fit_levels,
                                         .settle = settle,
                                         .round = round,
                                         .round_levels = round_levels};
  return table;
}

}  // namespace quintet::QUINTET_TARGET
