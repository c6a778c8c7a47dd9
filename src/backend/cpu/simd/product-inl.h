// Products of a tile of 16 outputs with a group of rows of activations. One rule for every number of rows, so
// that a row has the same bits alone and among many: blocks of 32 inputs ascending; within a block the exact
// integer sum of each scale group; acc = fma(float(sum) * activation scale, weight scale, acc), then acc =
// fma(minimum, activation sum, acc).

namespace quintet::cpu::QUINTET_TARGET {
namespace {

template <Layout kLayout>
void unpack_panel_as(const uint8_t* tile, int first_block, int blocks, Panel* panel) {
  using T = Tile<kLayout>;
  constexpr LayoutInfo info = layout_info(kLayout);
  constexpr int kUnitBlocks = info.unit_k / kBlock, kGroups = kBlock / info.scale_every;
  for (int i = 0; i < blocks; ++i) {
    const int block = first_block + i;
    const uint8_t* unit = tile + static_cast<size_t>(block / kUnitBlocks) * info.unit_bytes;
    const int in_unit = block % kUnitBlocks;
    int16_t* codes = panel->codes + static_cast<size_t>(i) * kPairs * 32;
    for_pairs([&]<int P>() { store_i16(T::template codes<P>(unit, in_unit), codes + P * 32); });
    for (int g = 0; g < kGroups; ++g) {
      store(T::scale(unit, in_unit * kGroups + g), panel->scale + (i * kGroups + g) * 16);
      if constexpr (info.minimum)
        store(T::minimum(unit, in_unit * kGroups + g), panel->minimum + (i * kGroups + g) * 16);
    }
  }
}

void unpack_panel(Layout layout, const uint8_t* tile, int first_block, int blocks, Panel* panel) {
  visit_layout(layout, [&]<Layout L>() { unpack_panel_as<L>(tile, first_block, blocks, panel); });
}

/// One block's contribution for kRows rows, whatever gives the codes and scales.
template <int kRows, int kScaleEvery, bool kMinimum, class Source>
HWY_INLINE void block_product(const Source& source, const RowGroup& x, int block, F* acc) {
  constexpr int kGroups = kBlock / kScaleEvery, kGroupPairs = kPairs / kGroups;
  // Few rows: several integer accumulators for each, so that one's latency does not bound the loop. Sums are
  // exact.
  constexpr int kChains = kRows == 1 ? 4 : kRows == 2 ? 2 : 1;
  const int32_t* pairs = x.pairs + static_cast<size_t>(block) * kPairs * kRows;
  const float* scale = x.scale + static_cast<size_t>(block) * kRows;
  I sum[kRows][kChains];
  for_pairs([&]<int P>() {
    constexpr int kGroup = P / kGroupPairs;
    if constexpr (P % kGroupPairs == 0)
      for (int r = 0; r < kRows; ++r)
        for (int c = 0; c < kChains; ++c) sum[r][c] = set_i32(0);
    const S w = source.template codes<P>();
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r)
      sum[r][P % kChains] = dot_pairs(sum[r][P % kChains], w, set_i32(pairs[P * kRows + r]));
    if constexpr (P % kGroupPairs == kGroupPairs - 1) {
      const F d = source.scale(kGroup);
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) {
        I s = sum[r][0];
        for (int c = 1; c < kChains; ++c) s = add_i32(s, sum[r][c]);
        acc[r] = fma(mul(to_float(s), set(scale[r])), d, acc[r]);
      }
      if constexpr (kMinimum) {
        const F m = source.minimum(kGroup);
        const float* sums = kGroups == 1 ? x.sum + static_cast<size_t>(block) * kRows
                                         : x.sum16 + (static_cast<size_t>(block) * kGroups + kGroup) * kRows;
#pragma GCC unroll 16
        for (int r = 0; r < kRows; ++r) acc[r] = fma(m, set(sums[r]), acc[r]);
      }
    }
  });
}

template <Layout kLayout>
struct TileSource {
  const uint8_t* unit;
  int block;
  static constexpr int kGroups = kBlock / layout_info(kLayout).scale_every;
  template <int P>
  HWY_INLINE S codes() const {
    return Tile<kLayout>::template codes<P>(unit, block);
  }
  HWY_INLINE F scale(int g) const { return Tile<kLayout>::scale(unit, block * kGroups + g); }
  HWY_INLINE F minimum(int g) const { return Tile<kLayout>::minimum(unit, block * kGroups + g); }
};

/// How far ahead of the products weights are asked for: the hardware's own prefetch stops at pages of 4 KiB.
/// 1 to 2 KiB measured 5 % slower.
constexpr int kPrefetchBytes = 4096;

template <Layout kLayout, int kRows>
void product_direct(const TileProduct& p) {
  constexpr LayoutInfo info = layout_info(kLayout);
  constexpr int kUnitBlocks = info.unit_k / kBlock;
  constexpr int kBlockBytes = info.unit_bytes / kUnitBlocks;
  F acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = load(p.acc + r * 16);
  int block = p.first;
  const uint8_t* unit = p.tile + static_cast<size_t>(block / kUnitBlocks) * info.unit_bytes;
  int in_unit = block % kUnitBlocks;
  for (; block < p.first + p.count; ++block) {
#pragma GCC unroll 16
    for (int line = 0; line < kBlockBytes; line += 64)
      __builtin_prefetch(unit + in_unit * kBlockBytes + line + kPrefetchBytes);
    block_product<kRows, info.scale_every, info.minimum>(TileSource<kLayout>{unit, in_unit}, p.x, block, acc);
    if (++in_unit == kUnitBlocks) {
      in_unit = 0;
      unit += info.unit_bytes;
    }
  }
  for (int r = 0; r < kRows; ++r) store(acc[r], p.acc + r * 16);
}

template <int kScaleEvery>
struct PanelSource {
  const int16_t* code;
  const float* scales;
  const float* minima;
  template <int P>
  HWY_INLINE S codes() const {
    return load_i16(code + P * 32);
  }
  HWY_INLINE F scale(int g) const { return load(scales + g * 16); }
  HWY_INLINE F minimum(int g) const { return load(minima + g * 16); }
};

template <int kScaleEvery, bool kMinimum, int kRows>
void product_panel(const TileProduct& p) {
  constexpr int kGroups = kBlock / kScaleEvery;
  F acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = load(p.acc + r * 16);
  for (int i = 0; i < p.count; ++i) {
    const PanelSource<kScaleEvery> source{p.panel->codes + static_cast<size_t>(i) * kPairs * 32,
                                          p.panel->scale + i * kGroups * 16,
                                          p.panel->minimum + i * kGroups * 16};
    block_product<kRows, kScaleEvery, kMinimum>(source, p.x, p.first + i, acc);
  }
  for (int r = 0; r < kRows; ++r) store(acc[r], p.acc + r * 16);
}

/// Float weights: inputs ascending into one accumulator.
template <Layout kLayout, int kRows>
void product_float(const TileProduct& p) {
  F acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = load(p.acc + r * 16);
  const float* x = p.x.values + static_cast<size_t>(p.first) * kRows;
  const uint8_t* w = p.tile + static_cast<size_t>(p.first) * layout_info(kLayout).unit_bytes;
  for (int k = 0; k < p.count; ++k, x += kRows, w += layout_info(kLayout).unit_bytes) {
    F weight;
    if constexpr (kLayout == Layout::f32) weight = load(reinterpret_cast<const float*>(w));
    if constexpr (kLayout == Layout::f16) weight = load_f16(reinterpret_cast<const uint16_t*>(w));
    if constexpr (kLayout == Layout::bf16) weight = load_bf16(reinterpret_cast<const uint16_t*>(w));
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) acc[r] = fma(weight, set(x[r]), acc[r]);
  }
  for (int r = 0; r < kRows; ++r) store(acc[r], p.acc + r * 16);
}

/// Values under scales: each weight is rounded to what the scalar codec gives, then as for float weights.
template <Layout kLayout, int kRows>
void product_scaled(const TileProduct& p) {
  constexpr LayoutInfo info = layout_info(kLayout);
  F acc[kRows];
  for (int r = 0; r < kRows; ++r) acc[r] = load(p.acc + r * 16);
  const float* x = p.x.values + static_cast<size_t>(p.first) * kRows;
  const uint8_t* unit = p.tile + static_cast<size_t>(p.first / info.unit_k) * info.unit_bytes;
  for (int k = 0; k < p.count; k += info.unit_k, unit += info.unit_bytes) {
    const F scale = load(reinterpret_cast<const float*>(unit + 512));
    const auto add = [&](F weight) HWY_ATTR {
#pragma GCC unroll 16
      for (int r = 0; r < kRows; ++r) acc[r] = fma(weight, set(x[r]), acc[r]);
      x += kRows;
    };
    if constexpr (kLayout == Layout::nf4) {
      for (int pair = 0; pair < info.unit_k / 2; ++pair) {
        add(mul(scale, look_up_nibbles<false>(unit + pair * 16, kNf4Values)));
        add(mul(scale, look_up_nibbles<true>(unit + pair * 16, kNf4Values)));
      }
    } else {
      const F exact = set(256.0f);
      for (int i = 0; i < info.unit_k; ++i) add(mul(scale, mul(load_f8_small(unit + i * 16), exact)));
    }
  }
  for (int r = 0; r < kRows; ++r) store(acc[r], p.acc + r * 16);
}

#if HWY_TARGET == HWY_AVX3
constexpr int kGroupSizes[] = {12, 8, 4, 2, 1, 0};
#define GROUP_SIZES(X) X(12) X(8) X(4) X(2) X(1)
#define DIRECT_SIZES(X) X(4) X(2) X(1)
constexpr int kDirectRows = 4;
#else
constexpr int kGroupSizes[] = {4, 2, 1, 0};  // 16 registers: two accumulators a row
#define GROUP_SIZES(X) X(4) X(2) X(1)
#define DIRECT_SIZES(X) X(1)
constexpr int kDirectRows = 1;
#endif

void product(const TileProduct& p) {
#define FLOAT_CASE(N) \
  case N: return product_float<L, N>(p);
  const auto of_float = [&]<Layout L>() {
    switch (p.x.rows) { GROUP_SIZES(FLOAT_CASE) }
  };
  if (p.layout == Layout::f32) return of_float.template operator()<Layout::f32>();
  if (p.layout == Layout::f16) return of_float.template operator()<Layout::f16>();
  if (p.layout == Layout::bf16) return of_float.template operator()<Layout::bf16>();
#define SCALED_CASE(N) \
  case N: return product_scaled<L, N>(p);
  const auto of_scaled = [&]<Layout L>() {
    switch (p.x.rows) { GROUP_SIZES(SCALED_CASE) }
  };
  if (p.layout == Layout::nf4) return of_scaled.template operator()<Layout::nf4>();
  if (p.layout == Layout::f8) return of_scaled.template operator()<Layout::f8>();
  if (!p.panel) {
#define DIRECT_CASE(N) \
  case N: return product_direct<L, N>(p);
    visit_layout(p.layout, [&]<Layout L>() {
      switch (p.x.rows) { DIRECT_SIZES(DIRECT_CASE) }
    });
    return;
  }
#define PANEL_CASE(N) \
  case N: return product_panel<kEvery, kMin, N>(p);
  const auto of_panel = [&]<int kEvery, bool kMin>() {
    switch (p.x.rows) { GROUP_SIZES(PANEL_CASE) }
  };
  const LayoutInfo info = layout_info(p.layout);
  if (info.scale_every == 32)
    return info.minimum ? of_panel.template operator()<32, true>()
                        : of_panel.template operator()<32, false>();
  return info.minimum ? of_panel.template operator()<16, true>() : of_panel.template operator()<16, false>();
}

}  // namespace
}  // namespace quintet::cpu::QUINTET_TARGET
