// Operations over rows: look-up, norms, gates, sampling, and how products are cut into tiles for the threads.
#include "backend/cpu/cpu_ops.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"

namespace quintet::cpu {
namespace {

/// Rows that pass through a weight together, which bounds the scratch. Smaller pieces, which would stay in
/// the L2 cache, measured no faster (64 to 240 rows: 0 to 5 % slower), since each must unpack the weights
/// anew.
constexpr int64_t kRowsAtOnce = 512;

/// Up to so many rows, each thread packs the activations for itself: cheaper than to wait for each other.
constexpr int64_t kOwnRows = 2;

/// A weight that is written out in FP16 goes through scratch of this size in runs of tiles: beyond the caches, as a whole one is.
constexpr int64_t kDenseBytes = int64_t{64} << 20;
int64_t dense_tiles(int64_t k) { return std::max<int64_t>(kDenseBytes / tile_bytes(Layout::f16, k), 1); }

/// Of the largest weight, or of a run of it.
size_t dense_halves(const StepLimits& limits) {
  const int64_t outputs = (std::max(limits.max_n, limits.vocabulary) + kTileRows - 1) / kTileRows * kTileRows;
  const int64_t halves = std::min(kDenseBytes / int64_t{sizeof(uint16_t)}, outputs * limits.max_k);
  return static_cast<size_t>(std::max<int64_t>(halves, kTileRows * int64_t{limits.max_k}));
}

void check_f32(const ConstMatrixView& view) {
  QUINTET_CHECK(view.type == DType::f32, "activations of type {}; the cpu backend takes f32",
                dtype_name(view.type));
}

template <class T>
void grow(std::vector<T>& v, size_t size) {
  if (v.size() < size) v.resize(size);
}

const float* vector_of(const Weight* weight, int64_t size) {
  if (!weight || weight->empty()) return nullptr;
  const CpuWeight& vector = unwrap(*weight);
  QUINTET_CHECK(static_cast<int64_t>(vector.vector.size()) == size, "a vector of {}, not {}",
                vector.vector.size(), size);
  return vector.vector.data();
}

}  // namespace

const CpuWeight& unwrap(const Weight& weight) {
  QUINTET_CHECK(weight.packed);
  return static_cast<const CpuWeight&>(*weight.packed);
}

void CpuOps::reserve(const StepLimits& limits) {
  while (static_cast<int>(scratch_.size()) < pool_.threads())
    scratch_.push_back(std::make_unique<ThreadScratch>());
  const auto rows = static_cast<size_t>(std::min<int64_t>(std::max(limits.rows, 1), kRowsAtOnce));
  const auto k = static_cast<size_t>(limits.max_k);
  groups_.reserve(rows);
  for (auto& scratch : scratch_) {
    grow(scratch->acc, 2 * rows * kTileRows);
    grow(scratch->work, 2 * k);
    if (limits.vocabulary > 0 && !scratch->sampler)
      scratch->sampler = std::make_unique<RowSampler>(limits.vocabulary);
  }
  grow(packed_.pairs, rows * k / 2);
  grow(packed_.scale, rows * k / kBlock);
  grow(packed_.sum, rows * k / kBlock);
  if (!limits.unfused) return;
  grow(dense_halves_, dense_halves(limits));
  grow(packed_.values, rows * k);
}

uint64_t CpuOps::unfused_bytes(const StepLimits& limits) {
  if (!limits.unfused) return 0;
  const auto values = static_cast<uint64_t>(std::min<int64_t>(std::max(limits.rows, 1), kRowsAtOnce) * limits.max_k);
  return dense_halves(limits) * sizeof(dense_halves_[0]) + values * sizeof(packed_.values[0]);
}

// --- products
// ------------------------------------------------------------------------------------------------------

void CpuOps::size_packed(Packed& packed, const CpuWeight& weight, int64_t rows) {
  const auto elements = static_cast<size_t>(rows * weight.k);
  if (weight.reads_codes) {
    grow(packed.pairs, elements / 2);
    grow(packed.scale, elements / kBlock);
    grow(packed.sum, elements / kBlock);
  }
  if (weight.reads_sum16) grow(packed.sum16, elements / 16);
  if (weight.reads_values) grow(packed.values, elements);
}

void CpuOps::pack_rows(const Product& p, int64_t row_begin, Range range, Packed& packed,
                       ThreadScratch& scratch) {
  const int64_t k = p.weight->k;
  const float* norm = vector_of(p.norm.weight, k);
  for (const Group& group : groups_)
    for (int64_t row = std::max<int64_t>(range.begin, group.begin);
         row < std::min<int64_t>(range.end, group.begin + group.rows); ++row) {
      const int64_t source = p.row_index ? p.row_index[row_begin + row] : row_begin + row;
      kernels_.pack_row(
          {.x = p.x.row<float>(source),
           .k = k,
           .norm = norm,
           .eps = p.norm.eps,
           .in_perm = p.weight->in_perm.empty() ? p.in_perm : p.weight->in_perm.data(),
           .index = static_cast<int>(row - group.begin),
           .rows = group.rows,
           .work = scratch.work.data(),
           .pairs = p.weight->reads_codes ? packed.pairs.data() + group.begin * k / 2 : nullptr,
           .scale = packed.scale.data() + group.begin * k / kBlock,
           .sum = packed.sum.data() + group.begin * k / kBlock,
           .sum16 = p.weight->reads_sum16 ? packed.sum16.data() + group.begin * k / 16 : nullptr,
           .values = p.weight->reads_values ? packed.values.data() + group.begin * k : nullptr});
    }
}

void CpuOps::tile_product(const Segment& segment, int64_t tile, int64_t k, std::span<const Group> groups,
                          int64_t rows, const Packed& packed, float* acc, ThreadScratch& scratch) {
  std::memset(acc, 0, static_cast<size_t>(rows) * kTileRows * sizeof(float));
  const LayoutInfo info = layout_info(segment.layout);
  const uint8_t* data = segment.data + tile * tile_bytes(segment.layout, k);
  const auto run = [&](const Panel* panel, int first, int count) {
    for (const Group& group : groups) {
      const int64_t at = group.begin;
      kernels_.product({.layout = segment.layout,
                        .tile = data,
                        .panel = panel,
                        .first = first,
                        .count = count,
                        .x = {.rows = group.rows,
                              .pairs = packed.pairs.data() + at * k / 2,
                              .scale = packed.scale.data() + at * k / kBlock,
                              .sum = packed.sum.data() + at * k / kBlock,
                              .sum16 = packed.sum16.data() + at * k / 16,
                              .values = packed.values.data() + at * k},
                        .acc = acc + at * kTileRows});
    }
  };
  const auto blocks = static_cast<int>(info.integer ? k / kBlock : k);
  if (!info.integer || rows <= kernels_.direct_rows) {
    run(nullptr, 0, blocks);
  } else {
    for (int first = 0; first < blocks; first += kPanelBlocks) {
      const int count = std::min(kPanelBlocks, blocks - first);
      kernels_.unpack_panel(segment.layout, data, first, count, &scratch.panel);
      run(&scratch.panel, first, count);
    }
  }
  add_outliers(segment.outliers_of(tile), k, groups, packed, acc);
}

/// A thousandth of the weights: one by one, after all blocks, in the same order whatever the number of rows.
void CpuOps::add_outliers(std::span<const TileOutlier> outliers, int64_t k, std::span<const Group> groups,
                          const Packed& packed, float* acc) {
  for (const TileOutlier& outlier : outliers)
    for (const Group& group : groups) {
      const float* x = packed.values.data() + group.begin * k + int64_t{outlier.column} * group.rows;
      float* out = acc + int64_t{group.begin} * kTileRows + outlier.row;
      for (int r = 0; r < group.rows; ++r) out[r * kTileRows] += outlier.value * x[r];
    }
}

void CpuOps::write_tile(const Product& p, int64_t row_begin, int64_t rows, const Segment& segment,
                        int64_t tile, const float* acc) {
  const int64_t column = segment.first_row + tile * kTileRows;
  const auto count = std::min<int64_t>(kTileRows, segment.n - tile * kTileRows);
  float bias[kTileRows] = {};
  if (p.bias) std::copy_n(p.bias + column, count, bias);
  const bool adds = p.output == Output::add;
  for (int64_t row = 0; row < rows; ++row, acc += kTileRows) {
    float* out = p.out.row<float>(row_begin + row) + column;
    if (count == kTileRows) {  // of constant length, so that the compiler takes whole vectors
      if (adds)
        for (int i = 0; i < kTileRows; ++i) out[i] += acc[i] + bias[i];
      else
        for (int i = 0; i < kTileRows; ++i) out[i] = acc[i] + bias[i];
    } else {
      for (int64_t i = 0; i < count; ++i) out[i] = (adds ? out[i] : 0) + (acc[i] + bias[i]);
    }
  }
}

void CpuOps::product(const Product& p) {
  check_f32(p.x);
  check_f32(p.out);
  QUINTET_CHECK(!p.weight->segments.empty(), "a weight that was not prepared for products");
  QUINTET_CHECK(p.x.cols == p.weight->k, "{} inputs for a weight of {}", p.x.cols, p.weight->k);
  if (scratch_.empty()) reserve({});
  for (int64_t begin = 0; begin < p.rows; begin += kRowsAtOnce)
    product_rows(p, begin, std::min(kRowsAtOnce, p.rows - begin));
}

void CpuOps::product_rows(const Product& p, int64_t row_begin, int64_t rows) {
  const CpuWeight& weight = *p.weight;
  const int64_t k = weight.k;
  groups_.clear();
  for (int begin = 0; begin < rows;) {
    const int* size = kernels_.group_sizes;
    while (*size > rows - begin) ++size;
    groups_.push_back({begin, *size});
    begin += *size;
  }
  const bool own = rows <= kOwnRows;
  for (auto& scratch : scratch_) {
    grow(scratch->acc, static_cast<size_t>(2 * rows * kTileRows));
    grow(scratch->work, static_cast<size_t>(2 * k));
    if (own) size_packed(scratch->packed, weight, rows);
  }
  if (!own) {
    size_packed(packed_, weight, rows);
    pool_.each_range(rows, [&](int thread, Range range) {
      pack_rows(p, row_begin, range, packed_, *scratch_[static_cast<size_t>(thread)]);
    });
  }
  int64_t tiles = 0;
  for (const Segment& segment : weight.segments) tiles += segment.tiles;
  if (p.output == Output::gate) tiles = weight.segments[0].tiles;

  ++products_;
  pool_.each_range(tiles, [&](int thread, Range range) {
    ThreadScratch& scratch = *scratch_[static_cast<size_t>(thread)];
    if (own && scratch.packed_for != products_) {
      pack_rows(p, row_begin, {0, rows}, scratch.packed, scratch);
      scratch.packed_for = products_;
    }
    product_tiles(p, row_begin, rows, own ? scratch.packed : packed_, range, scratch);
  });

  if (!p.post_norm.weight) return;
  const float* norm = vector_of(p.post_norm.weight, p.out.cols);
  pool_.each(rows, [&](int, int64_t row) {
    float* values = p.out.row<float>(row_begin + row);
    kernels_.norm_row(values, p.out.cols, norm, p.post_norm.eps, values);
    kernels_.add(values, p.out.cols, p.residual.row<float>(row_begin + row));
  });
}

/// `rows` rows from `row_begin` on, packed in groups_, times a range of tiles.
void CpuOps::product_tiles(const Product& p, int64_t row_begin, int64_t rows, const Packed& packed,
                           Range range, ThreadScratch& scratch) {
  const CpuWeight& weight = *p.weight;
  float* acc = scratch.acc.data();
  if (p.output == Output::gate) {
    const Segment& gate = weight.segments[0];
    const Segment& up = weight.segments[1];
    float* up_acc = acc + rows * kTileRows;
    for (int64_t tile = range.begin; tile < range.end; ++tile) {
      tile_product(gate, tile, weight.k, groups_, rows, packed, acc, scratch);
      tile_product(up, tile, weight.k, groups_, rows, packed, up_acc, scratch);
      kernels_.gate(p.gate, acc, up_acc, rows * kTileRows, acc);
      write_tile(p, row_begin, rows, gate, tile, acc);
    }
    return;
  }
  int64_t before = 0;
  for (const Segment& segment : weight.segments) {
    const int64_t begin = std::max(range.begin, before), end = std::min(range.end, before + segment.tiles);
    for (int64_t tile = begin - before; tile < end - before; ++tile) {
      tile_product(segment, tile, weight.k, groups_, rows, packed, acc, scratch);
      write_tile(p, row_begin, rows, segment, tile, acc);
    }
    before += segment.tiles;
  }
}

void CpuOps::linear(const LinearArgs& args) {
  const CpuWeight& weight = unwrap(*args.w);
  const Product p = {.x = args.x,
                     .rows = args.x.rows,
                     .norm = args.norm,
                     .in_perm = args.in_perm,
                     .weight = &weight,
                     .bias = vector_of(args.bias, args.out.cols),
                     .output = args.add_to_out ? Output::add : Output::store,
                     .out = args.out};
  if (args.dequantize_first && dequantized_bytes(*args.w) > 0)
    dequantized_product(p);
  else
    product(p);
}

uint64_t CpuOps::dequantized_bytes(const Weight& weight) const {
  const std::vector<Segment>& segments = unwrap(weight).segments;
  if (std::ranges::all_of(segments, [](const Segment& segment) { return is_dense(segment.layout); })) return 0;
  return static_cast<uint64_t>((weight.n + kTileRows - 1) / kTileRows * tile_bytes(Layout::f16, weight.k));
}

void CpuOps::dequantized_product(const Product& p) {
  if (scratch_.empty()) reserve({});
  const CpuWeight& weight = *p.weight;
  const int64_t n = weight.segments.back().first_row + weight.segments.back().n, run = dense_tiles(weight.k) * kTileRows;
  Product dense = p;
  dense.weight = &dense_;
  for (int64_t first = 0; first < n; first += run) {
    dequantize(weight, first, std::min(run, n - first));
    product(dense);
  }
}

void CpuOps::dequantize(const CpuWeight& weight, int64_t first, int64_t rows) {
  const int64_t k = weight.k, tiles = (rows + kTileRows - 1) / kTileRows;
  grow(dense_halves_, static_cast<size_t>(tiles * kTileRows * k));
  for (auto& scratch : scratch_) grow(scratch->work, static_cast<size_t>(k));
  pool_.each(tiles, [&](int thread, int64_t tile) {
    float* values = scratch_[static_cast<size_t>(thread)]->work.data();
    uint16_t* out = dense_halves_.data() + tile * kTileRows * k;  // [k][16]
    if ((tile + 1) * kTileRows > rows) std::fill_n(out, kTileRows * k, uint16_t{0});  // rows that do not exist
    for (int64_t row = tile * kTileRows; row < std::min(rows, (tile + 1) * kTileRows); ++row) {
      unpack_row(weight, first + row, values);
      for (int64_t i = 0; i < k; ++i) out[i * kTileRows + row % kTileRows] = f32_to_f16(values[i]);
    }
  });
  dense_.k = k;
  dense_.reads_values = true;
  dense_.segments.resize(1);
  dense_.segments[0] = {.layout = Layout::f16, .format = WeightFormat::f16, .n = rows, .tiles = tiles, .first_row = first,
                        .data = reinterpret_cast<uint8_t*>(dense_halves_.data())};
}

void CpuOps::attn_in(const StepView&, const AttnInArgs& args) {
  product({.x = args.x,
           .rows = args.x.rows,
           .norm = args.norm,
           .weight = &unwrap(*args.w),
           .bias = vector_of(args.bias, args.qkv.cols),
           .out = args.qkv});
}

void CpuOps::attn_out(const StepView&, const ProjectArgs& args) {
  const float* bias = vector_of(args.bias, args.residual.cols);
  if (args.post_norm.weight)
    product({.x = args.x,
             .rows = args.x.rows,
             .weight = &unwrap(*args.w),
             .bias = bias,
             .out = args.scratch,
             .post_norm = args.post_norm,
             .residual = args.residual});
  else
    product({.x = args.x,
             .rows = args.x.rows,
             .weight = &unwrap(*args.w),
             .bias = bias,
             .output = Output::add,
             .out = args.residual});
}

void CpuOps::mlp_in(const StepView& step, const MlpInArgs& args) {
  const CpuWeight& weight = unwrap(*args.w);
  if (weight.segments.size() != 2 || weight.segments[0].n != weight.segments[1].n)
    return Ops::mlp_in(step, args);
  product({.x = args.x,
           .rows = args.x.rows,
           .norm = args.norm,
           .weight = &weight,
           .output = Output::gate,
           .gate = args.activation == Activation::silu ? GateKind::silu : GateKind::gelu_tanh,
           .out = args.out});
}

void CpuOps::head(const StepView& step, const HeadArgs& args) {
  product({.x = args.x,
           .rows = step.logit_rows,
           .row_index = step.logit_row,
           .norm = args.norm,
           .weight = &unwrap(*args.w),
           .out = args.logits});
}

// --- rows
// ------------------------------------------------------------------------------------------------------------

TokenId CpuOps::token_of(const StepView& step, int64_t row) const {
  if (step.token[row] >= 0) return step.token[row];
  const int32_t from = step.prev ? step.prev[row] : -1;
  const bool known = from >= 0 && static_cast<size_t>(from) < sampled_.size();
  return known ? sampled_[static_cast<size_t>(from)] : 0;  // padding rows may name nothing
}

void CpuOps::embed(const StepView& step, const EmbedArgs& args) {
  const CpuWeight& table = unwrap(*args.table);
  check_f32(args.out);
  pool_.each(step.rows, [&](int, int64_t row) {
    const TokenId token = token_of(step, row);
    QUINTET_CHECK(token < args.table->n, "token {} of a vocabulary of {}", token, args.table->n);
    float* out = args.out.row<float>(row);
    unpack_row(table, token, out);
    if (args.scale != 1)
      for (int64_t i = 0; i < args.out.cols; ++i) out[i] *= args.scale;
  });
}

void CpuOps::rms_norm(ConstMatrixView x, const NormArgs& norm, MatrixView out) {
  check_f32(x);
  check_f32(out);
  const float* weight = vector_of(norm.weight, x.cols);
  QUINTET_CHECK(weight);
  pool_.each(x.rows, [&](int, int64_t row) {
    kernels_.norm_row(x.row<float>(row), x.cols, weight, norm.eps, out.row<float>(row));
  });
}

void CpuOps::gate(const GateArgs& args) {
  check_f32(args.gate_up);
  check_f32(args.out);
  const GateKind kind = args.activation == Activation::silu ? GateKind::silu : GateKind::gelu_tanh;
  pool_.each(args.out.rows, [&](int, int64_t row) {
    const float* gate = args.gate_up.row<float>(row);
    kernels_.gate(kind, gate, gate + args.out.cols, args.out.cols, args.out.row<float>(row));
  });
}

void CpuOps::add(ConstMatrixView x, MatrixView out) {
  check_f32(x);
  check_f32(out);
  pool_.each(x.rows, [&](int, int64_t row) { kernels_.add(x.row<float>(row), x.cols, out.row<float>(row)); });
}

void CpuOps::gather(const StepView& step, ConstMatrixView x, MatrixView out) {
  check_f32(x);
  check_f32(out);
  for (int32_t i = 0; i < step.logit_rows; ++i)
    std::memcpy(out.row<float>(i), x.row<float>(step.logit_row[i]),
                static_cast<size_t>(x.cols) * sizeof(float));
}

void CpuOps::sample(const StepView& step, const SampleArgs& args) {
  check_f32(args.logits);
  if (scratch_.empty()) reserve({});
  const auto vocabulary = static_cast<int32_t>(args.logits.cols);
  pool_.each(step.logit_rows, [&](int thread, int64_t row) {
    auto& sampler = scratch_[static_cast<size_t>(thread)]->sampler;
    if (!sampler || sampler->vocabulary() != vocabulary) sampler = std::make_unique<RowSampler>(vocabulary);
    args.out[row] = sampler->sample(step, static_cast<int32_t>(row),
                                    {args.logits.row<float>(row), static_cast<size_t>(vocabulary)},
                                    args.alternatives ? args.alternatives + row * kAlternatives : nullptr,
                                    step.token && step.logit_row ? token_of(step, step.logit_row[row]) : -1);
  });
  sampled_.resize(static_cast<size_t>(step.logit_rows));
  for (int32_t i = 0; i < step.logit_rows; ++i) sampled_[static_cast<size_t>(i)] = args.out[i].token;
}

}  // namespace quintet::cpu
