// Attention of a few query vectors over a split of cached positions (Dao et al., FlashAttention; Milakov and
// Gimelshein, online softmax). One rule for every block of queries: q . k over dimensions ascending; tiles of
// 64 positions that start at multiples of 64, each one step of the online softmax; V added by position
// ascending. Masked positions add nothing.

namespace quintet::cpu::QUINTET_TARGET {
namespace {

#if HWY_TARGET == HWY_AVX3
constexpr int kMaxQueries = 12;
#define QUERY_COUNTS(X) X(1) X(2) X(3) X(4) X(6) X(8) X(12)
#else
constexpr int kMaxQueries = 4;
#define QUERY_COUNTS(X) X(1) X(2) X(3) X(4)
#endif

constexpr float kMinusInfinity = -__builtin_inff();

/// Scores of kGroups groups of 16 positions, from group `group` of the block on. Where kAhead, asks the
/// caches for the next tile's keys meanwhile: pages lie apart, so the hardware does not foresee them.
template <int kQueries, int kGroups, bool kAhead>
HWY_INLINE void score_groups(const AttendBlock& a, int group, int in_tile, bool masked) {
  F acc[kQueries][kGroups];
#pragma GCC unroll 16
  for (int t = 0; t < kQueries; ++t)
    for (int g = 0; g < kGroups; ++g) acc[t][g] = set(0);
  const float* q = a.q;
  for (int d = 0; d < a.head_dim; ++d, q += kMaxQueries) {
    if (kAhead && d % 2 == 0)
#pragma GCC unroll 4
      for (int g = 0; g < kGroups; ++g) __builtin_prefetch(a.k_groups[group + kGroups + g] + d * 16);
#pragma GCC unroll 4
    for (int g = 0; g < kGroups; ++g) {
      const F k = load_f16(a.k_groups[group + g] + d * 16);
#pragma GCC unroll 16
      for (int t = 0; t < kQueries; ++t) acc[t][g] = fma(k, set(q[t]), acc[t][g]);
    }
  }
#pragma GCC unroll 16
  for (int t = 0; t < kQueries; ++t)
    for (int g = 0; g < kGroups; ++g) {
      F score = mul(acc[t][g], set(a.scale));
      if (masked)
        score = select_range(a.begin + (group + g) * 16, a.first[t], a.last[t], score, set(kMinusInfinity));
      store(score, a.scores + t * kAttendTile + (in_tile + g) * 16);
    }
}

/// out[t][16 c ...] = out * correction + sum of p V for kColumns vectors of 16 columns. Where kAhead, asks
/// for the next tile's values meanwhile.
template <int kQueries, int kColumns, bool kAhead>
HWY_INLINE void add_values(const AttendBlock& a, int column, int32_t from, int32_t to,
                           const float* correction, int32_t tile) {
  F acc[kQueries][kColumns];
#pragma GCC unroll 16
  for (int t = 0; t < kQueries; ++t)
    for (int c = 0; c < kColumns; ++c)
      acc[t][c] = mul(load(a.out + t * a.padded_dim + (column + c) * 16), set(correction[t]));
  for (int32_t pos = from; pos < to; ++pos) {
    const int32_t group = (pos - a.begin) / 16;
    const int32_t in_group = ((pos - a.begin) % 16) * a.padded_dim + column * 16;
    const uint16_t* row = a.v_groups[group] + in_group;
    if (kAhead)
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; c += 2)
        __builtin_prefetch(a.v_groups[group + kAttendTile / 16] + in_group + c * 16);
    const float* p = a.scores + (pos - tile);
    F v[kColumns];
    for (int c = 0; c < kColumns; ++c) v[c] = load_f16(row + c * 16);
#pragma GCC unroll 16
    for (int t = 0; t < kQueries; ++t)
      for (int c = 0; c < kColumns; ++c) acc[t][c] = fma(set(p[t * kAttendTile]), v[c], acc[t][c]);
  }
#pragma GCC unroll 16
  for (int t = 0; t < kQueries; ++t)
    for (int c = 0; c < kColumns; ++c) store(acc[t][c], a.out + t * a.padded_dim + (column + c) * 16);
}

/// One step of the online softmax: scores become weights, the running maxima and totals move on. Lane t of
/// `largest` and `total` belongs to query t.
template <int kQueries>
HWY_INLINE void soften_tile(const AttendBlock& a, int32_t tile, bool masked, F& largest, F& total,
                            float* correction) {
  alignas(64) float maxima[16] = {}, sums[16] = {};
  for (int t = 0; t < kQueries; ++t) {
    const float* row = a.scores + t * kAttendTile;
    maxima[t] = max_lanes(max(max(load(row), load(row + 16)), max(load(row + 32), load(row + 48))));
  }
  const F before = largest;
  largest = max(before, load(maxima));
  // Nothing seen before, or still nothing: there is nothing to correct, and no difference of infinities may
  // get through.
  const F factor = zero_where(before, kMinusInfinity, exp(sub(before, largest)));
  alignas(64) float shift[16];
  store(zero_where(largest, kMinusInfinity, largest), shift);
  for (int t = 0; t < kQueries; ++t) {
    float* row = a.scores + t * kAttendTile;
    F p[4];
#pragma GCC unroll 4
    for (int g = 0; g < 4; ++g) {
      p[g] = exp(sub(load(row + g * 16), set(shift[t])));
      if (masked) p[g] = select_range(tile + g * 16, a.first[t], a.last[t], p[g], set(0));
      store(p[g], row + g * 16);
    }
    sums[t] = sum_lanes(add(add(p[0], p[1]), add(p[2], p[3])));
  }
  total = add(mul(total, factor), load(sums));
  store(factor, correction);
}

template <int kQueries>
void attend_as(const AttendBlock& a) {
  int32_t first = a.first[0], last = a.last[0];          // what any query sees
  int32_t all_first = a.first[0], all_last = a.last[0];  // what all of them see
  for (int t = 0; t < a.vectors; ++t) {
    first = a.first[t] < first ? a.first[t] : first;
    last = a.last[t] > last ? a.last[t] : last;
    all_first = a.first[t] > all_first ? a.first[t] : all_first;
    all_last = a.last[t] < all_last ? a.last[t] : all_last;
  }
  F largest = set(kMinusInfinity), total = set(0);
  for (int t = 0; t < kQueries; ++t)
    for (int d = 0; d < a.padded_dim; d += 16) store(set(0), a.out + t * a.padded_dim + d);
  if (first < a.begin) first = a.begin;
  if (last >= a.end) last = a.end - 1;
  for (int32_t tile = first / kAttendTile * kAttendTile; tile <= last; tile += kAttendTile) {
    const int32_t from = first > tile ? first : tile;
    const int32_t to = last + 1 < tile + kAttendTile ? last + 1 : tile + kAttendTile;
    const int group = (tile - a.begin) / 16;
    const int low = (from - tile) / 16, high = (to - tile + 15) / 16;  // groups of the tile that are read
    const bool masked = all_first > tile || all_last < tile + kAttendTile - 1;
    constexpr bool kFew = kQueries <= 4 && kParts == 1;
    const bool ahead = kFew && low == 0 && high == 4 && group + 8 <= a.groups;
    if (kFew && low == 0 && high == 4) {
      // Few queries: four chains each hide the latency of fma.
      if (ahead)
        score_groups<kQueries, 4, true>(a, group, 0, masked);
      else
        score_groups<kQueries, 4, false>(a, group, 0, masked);
    } else {
      for (int g = 0; g < 4; ++g) {
        if (g >= low && g < high) {
          score_groups<kQueries, 1, false>(a, group + g, g, masked);
          continue;
        }
        for (int t = 0; t < kQueries; ++t) store(set(kMinusInfinity), a.scores + t * kAttendTile + g * 16);
      }
    }
    alignas(64) float correction[16];
    soften_tile<kQueries>(a, tile, masked, largest, total, correction);
    constexpr int kColumns = kParts > 1 ? 1 : kQueries > 6 ? 2 : 4;
    int column = 0;
    for (; column + kColumns <= a.padded_dim / 16; column += kColumns)
      if (kFew && ahead)
        add_values<kQueries, kColumns, kFew>(a, column, from, to, correction, tile);
      else
        add_values<kQueries, kColumns, false>(a, column, from, to, correction, tile);
    for (; column < a.padded_dim / 16; ++column)
      add_values<kQueries, 1, false>(a, column, from, to, correction, tile);
  }
  store(largest, a.max);
  store(total, a.total);
}

void attend(const AttendBlock& a) {
#define QUERY_CASE(N) \
  if (a.vectors <= N) return attend_as<N>(a);
  QUERY_COUNTS(QUERY_CASE)
}

/// Adds the partial results of the next split to the running ones.
void merge(int queries, int padded, const float* part_max, const float* part_total, const float* part_out,
           float* largest, float* total, float* out) {
  const F before = load(largest), next = load(part_max);
  const F both = max(before, next);
  // A side that has seen nothing counts for nothing.
  const F old_factor = zero_where(before, kMinusInfinity, exp(sub(before, both)));
  const F new_factor = zero_where(next, kMinusInfinity, exp(sub(next, both)));
  store(both, largest);
  store(add(mul(load(total), old_factor), mul(load(part_total), new_factor)), total);
  alignas(64) float old_factors[16], new_factors[16];
  store(old_factor, old_factors);
  store(new_factor, new_factors);
  for (int t = 0; t < queries; ++t)
    for (int d = 0; d < padded; d += 16, out += 16, part_out += 16)
      store(fma(load(part_out), set(new_factors[t]), mul(load(out), set(old_factors[t]))), out);
}

}  // namespace
}  // namespace quintet::cpu::QUINTET_TARGET
