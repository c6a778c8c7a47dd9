// Checks, chooses and launches.
#include "backend/cuda/ops.h"

#include <algorithm>

#include "base/check.h"

namespace quintet::cuda {
namespace {

const CudaWeight& packed(const Weight& weight) { return static_cast<const CudaWeight&>(*weight.packed); }
const float* vector_of(const Weight* weight) { return weight && !weight->empty() ? packed(*weight).vector : nullptr; }
int activation_kind(Activation activation) { return activation == Activation::silu ? 0 : 1; }
PlainMatrix plain(const ConstMatrixView& view) { return {const_cast<void*>(view.data), view.stride, view.type == DType::f16}; }
constexpr float kLog2E = 1.4426950408889634f;

/// Room for the weights that are written out in FP16: the largest one, but at most this much, and runs of it then. More than the scratch
/// that fused products may take (docs/design.md): smaller runs leave multiprocessors idle, which would not be fusion's merit.
constexpr size_t kMostDenseBytes = size_t{1} << 30;
size_t dense_bytes(const StepLimits& limits) {
  const size_t row_bytes = static_cast<size_t>(padded_inputs(limits.max_k)) * sizeof(__half);
  const size_t outputs = static_cast<size_t>(std::max(limits.max_n, limits.vocabulary) + 3 * kUnitOutputs);
  return std::max(kUnitOutputs * row_bytes, std::min(kMostDenseBytes, outputs * row_bytes));
}

int attend_splits(const StepLimits& limits) { return (limits.context + kSplit - 1) / kSplit; }
/// Rows up to which attention may be split.
int split_rows(const StepLimits& limits) { return std::min(limits.rows, std::max(limits.seqs, 64)); }

}  // namespace

template <class Self, class Visit>
void CudaOps::visit_buffers(Self& self, const StepLimits& limits, Visit&& visit) {
  const auto padded_rows = static_cast<size_t>((std::max(limits.rows, limits.logit_rows) + kPromptRows - 1) / kPromptRows * kPromptRows);
  const auto padded_k = static_cast<size_t>(padded_inputs(limits.max_k));
  // Segments of different formats are padded apart: three at most in one weight.
  const auto columns = static_cast<size_t>(limits.max_n + 3 * kUnitOutputs);
  visit(self.act_in_, padded_rows * padded_k);
  visit(self.act_mid_, padded_rows * padded_k);
  visit(self.q_, padded_rows * static_cast<size_t>(limits.max_heads) * static_cast<size_t>(limits.max_head_dim));
  const size_t slice_rows = std::max<size_t>((kSlices + 1) * kMidRows, padded_rows);  // slices stay apart for up to kMidRows rows
  visit(self.partial_, slice_rows * columns);
  visit(self.residual_partial_, slice_rows * static_cast<size_t>(limits.hidden + kUnitOutputs));
  visit(self.input_sums_, padded_rows * padded_k / 16);
  visit(self.shared_sums_, static_cast<size_t>(kSlices) * (static_cast<size_t>(std::max(limits.max_n, limits.vocabulary)) + 3 * kUnitOutputs));
  visit(self.progress_, 1);
  for (auto& buffer : self.other_residual_) visit(buffer, static_cast<size_t>(limits.hidden));
  visit(self.logits_, static_cast<size_t>(limits.logit_rows) * static_cast<size_t>(limits.vocabulary + kUnitOutputs));
  visit(self.own_tokens_, static_cast<size_t>(limits.logit_rows));
  visit(self.counts_, static_cast<size_t>(limits.logit_rows) * static_cast<size_t>(limits.vocabulary));
  if (limits.unfused) visit(self.dense_, dense_bytes(limits));
  visit(self.attend_partial_, static_cast<size_t>(split_rows(limits)) * static_cast<size_t>(limits.max_heads) * static_cast<size_t>(attend_splits(limits)) *
                             static_cast<size_t>(partial_width(limits.max_head_dim)));
  visit(self.merge_from_, static_cast<size_t>(split_rows(limits)) * static_cast<size_t>(limits.max_heads));
}

Result<uint64_t> CudaOps::scratch_bytes(const StepLimits& limits) const {
  const auto is_one_of = [](int found, std::initializer_list<int> allowed) { return std::ranges::find(allowed, found) != allowed.end(); };
  if (!is_one_of(limits.max_head_dim, {64, 96, 128, 256}))
    return bad_input(fmt::format("attention on the GPU: found heads of {}, allowed are 64, 96, 128 and 256", limits.max_head_dim));
  if (limits.hidden % 8 != 0 || limits.hidden > kNormChunk * kNormMaxChunks)
    return bad_input(fmt::format("norms on the GPU: found {} columns, allowed are multiples of 8 up to {}", limits.hidden, kNormChunk * kNormMaxChunks));
  uint64_t bytes = 0;
  visit_buffers(*this, limits, [&](auto* const& pointer, size_t count) { bytes += Arena::padded(count * sizeof(*pointer)); });
  return bytes;
}

Status CudaOps::reserve(const StepLimits& limits, Arena& arena) {
  arena_ = &arena;
  attend_splits_ = attend_splits(limits);
  attend_rows_ = split_rows(limits);
  dense_bytes_ = limits.unfused ? dense_bytes(limits) : 0;
  Status status;
  visit_buffers(*this, limits, [&](auto*& pointer, size_t count) {
    if (!status) return;
    const size_t bytes = count * sizeof(*pointer);
    auto memory = arena.allocate(bytes);
    status = memory ? device_status(cudaMemsetAsync(*memory, 0, bytes, site_.stream), "memset") : Status(memory.error());
    if (status) pointer = static_cast<std::remove_reference_t<decltype(pointer)>>(*memory);
  });
  chain_.use(progress_, shared_sums_);
  return status;
}

int CudaOps::tiles(int rows) const {
  if (rows == 1) return 0;
  if (rows <= table_.rows_of_8) return 8;
  if (rows <= table_.rows_of_16) return 16;
  if (rows <= table_.rows_of_32) return 32;
  return rows <= table_.rows_of_64 ? 64 : kPromptRows;
}

void CudaOps::flush() { check(chain_.flush(site_)); }

const LaunchSite& CudaOps::next_site() {
  flush();
  return site_;
}

void CudaOps::begin_step(const StepView& host) {
  rows_ = host.rows;
  query_tokens_ = context_ = 0;
  for (int s = 0; s < host.seqs; ++s) {
    query_tokens_ = std::max(query_tokens_, host.row_begin[s + 1] - host.row_begin[s]);
    context_ = std::max(context_, host.context[s]);
  }
  all_logits_ = host.logit_rows == host.rows;
  for (int i = 0; all_logits_ && host.logit_row && i < host.logit_rows; ++i) all_logits_ = host.logit_row[i] == i;
  pending_ = {};
  moved_residual_ = nullptr;
}

cudaError_t CudaOps::take_error() {
  flush();
  return std::exchange(error_, cudaSuccess);
}

const float* CudaOps::device_inv_freq(const RopeSpec& rope) {
  const std::span<const float> wanted(rope.inv_freq, static_cast<size_t>(rope.dims / 2));
  for (const RopeTable& table : rope_tables_)
    if (std::ranges::equal(table.host, wanted)) return table.device;
  // Met once a kind of layer, before the first graph is captured.
  auto memory = arena_->allocate(wanted.size_bytes());
  if (!memory) {
    check(cudaErrorMemoryAllocation);
    return nullptr;
  }
  // On the stream of what reads it: the plain copy may return before the device has the bytes, and this stream does not wait for it.
  check(cudaMemcpyAsync(*memory, wanted.data(), wanted.size_bytes(), cudaMemcpyHostToDevice, site_.stream));
  rope_tables_.push_back({.host = {wanted.begin(), wanted.end()}, .device = static_cast<float*>(*memory)});
  return rope_tables_.back().device;
}

void CudaOps::embed(const StepView& step, const EmbedArgs& args) {
  moved_residual_ = nullptr;
  const CudaWeight& table = packed(*args.table);
  const Segment& segment = table.segments[0];
  const bool outliers = table.outliers.begin;  // added before the scale
  check(segment.kernels->embed({.panels = segment.panels, .token = step.token, .prev = step.prev, .sampled = last_sampled_,
                                .out = static_cast<float*>(args.out.data), .scale = outliers ? 1 : args.scale, .unit = segment.unit, .rows = step.rows,
                                .k = static_cast<int>(args.table->k), .pieces = segment.pieces, .vocabulary = static_cast<int>(args.table->n)},
                               next_site()));
  if (outliers)
    check(kernels_.outliers_embed({.token = step.token, .prev = step.prev, .sampled = last_sampled_, .side = table.outliers,
                                   .out = static_cast<float*>(args.out.data), .scale = args.scale, .rows = step.rows,
                                   .k = static_cast<int>(args.table->k), .vocabulary = static_cast<int>(args.table->n)}, next_site()));
}

void CudaOps::norm(ConstMatrixView x, const NormArgs& norm, int rows, const int* row_index, const Weight& next) {
  NormParams params = {.residual = residual(x), .weight = vector_of(norm.weight), .row_index = row_index,
                       .out = act_in_, .layout = layout(next, rows), .eps = norm.eps, .rows = rows, .hidden = static_cast<int>(x.cols)};
  if (pending_.waiting) {
    params.partial = residual_partial_;
    params.partial_bias = pending_.bias;
    params.post_weight = pending_.post_weight;
    params.post_eps = pending_.post_eps;
    params.partial_stride = pending_.stride;
    params.slices = pending_.slices;
    pending_ = {};
  }
  check(kernels_.norm(params, next_site()));
}

bool CudaOps::row_norm(ConstMatrixView x, const NormArgs& norm, RowNorm& fused) {
  const int hidden = static_cast<int>(x.cols);
  if (!norm.weight || pending_.post_weight || hidden > kernels_.norm_columns) return false;
  fused = {.residual = residual(x), .weight = vector_of(norm.weight), .hidden = hidden, .eps = norm.eps};
  if (pending_.waiting) {
    fused.residual_out = other_residual_[fused.residual == other_residual_[0]];
    fused.partial = residual_partial_;
    fused.bias = pending_.bias;
    fused.slice_stride = pending_.stride;
    fused.slices = pending_.slices;
    moved_residual_ = fused.residual_out;
    pending_ = {};
  }
  return true;
}

int CudaOps::slices(const Weight& weight, Epilogue left) {
  if (left != Epilogue::partial) return 1;
  return kSlices + (packed(weight).outliers.begin ? 1 : 0);
}

void CudaOps::add_outliers(const Weight& weight, const __half* x, int rows, float* out, Epilogue epilogue) {
  const CudaWeight& own = packed(weight);
  const bool whole = epilogue == Epilogue::whole;
  check(kernels_.outliers({.x = x, .layout = layout(weight, rows), .columns = other_inputs(x), .side = own.outliers,
                           .out = whole ? out : out + static_cast<size_t>(kSlices) * static_cast<size_t>(rows) * static_cast<size_t>(own.columns), .rows = rows,
                           .n = own.columns, .out_stride = own.columns, .add = whole}, next_site()));
}

void CudaOps::product(const Weight& weight, const __half* x, int rows, void* out, Epilogue epilogue, const RowNorm& fused, ActLayout out_layout, int activation) {
  const CudaWeight& own = packed(weight);
  const ActLayout act = layout(weight, rows);
  if (own.in_perm) {
    __half* permuted = other_inputs(x);
    check(kernels_.permute({.x = x, .out = permuted, .layout = act, .in_perm = own.in_perm, .rows = rows, .k = static_cast<int>(weight.k)}, next_site()));
    x = permuted;
  }
  // What outliers add is formed by the product's kernel where it can. Else, as a slice of its own, it comes first: it is done while that
  // kernel fills its ring.
  const bool joined = rows == 1 ? own.joins_row() : epilogue == Epilogue::partial && !dequantizing_ && own.joins_outliers(act.tiles);
  const bool apart = own.outliers.begin && !joined;
  if (apart && epilogue == Epilogue::partial) add_outliers(weight, x, rows, static_cast<float*>(out), epilogue);
  ProductParams params = {.x = reinterpret_cast<const uint4*>(x), .rows = rows, .out_stride = own.columns, .slice_stride = static_cast<int64_t>(rows) * own.columns,
                          .out_layout = out_layout, .activation = activation, .arriving_lanes = site_.arriving_lanes, .input_sums = input_sums_, .norm = fused,
                          .columns = other_inputs(x), .progress = progress_};
  const OutlierSide side = joined ? own.outliers : OutlierSide{};
  for (const Segment& segment : own.segments) {
    if (!dequantizing_ || segment.kernels->format == WeightFormat::f16) {
      multiply(segment, params, side, epilogue, out);
      continue;
    }
    for (int first = 0; first < segment.n;) {
      const Segment dense = dequantize(segment, first);
      multiply(dense, params, side, epilogue, out);
      first += dense.n;
    }
  }
  if (apart && epilogue == Epilogue::whole) add_outliers(weight, x, rows, static_cast<float*>(out), epilogue);
}

void CudaOps::multiply(const Segment& segment, ProductParams& params, const OutlierSide& outliers, Epilogue epilogue, void* out) {
  void* to = epilogue == Epilogue::gated ? out : static_cast<float*>(out) + segment.first_column;
  const OutlierSide own_side = {.begin = outliers.begin ? outliers.begin + segment.first_column : nullptr, .entries = outliers.entries};
  // Products read weights before they wait for the kernel before them: not where that one writes these weights.
  LaunchSite site = site_;
  site.dependent = !dequantizing_;
  if (params.rows == 1) {
    ChainPhase phase = {.kind = epilogue == Epilogue::gated ? PhaseKind::gated : PhaseKind::whole, .n = segment.n, .pieces = segment.pieces,
                        .activation = static_cast<int16_t>(params.activation), .unit = segment.unit, .weights = segment.panels, .x = params.x, .out = to};
    phase.norm = params.norm;
    if (own_side.begin) phase.outliers = own_side;
    check(chain_.add(*segment.kernels, phase, site));
    if (dequantizing_) check(chain_.flush(site));
  } else {
    flush();
    params.weights = segment.panels;
    params.n = segment.n;
    params.pieces = segment.pieces;
    params.unit = segment.unit;
    params.out = to;
    params.outliers = own_side;
    check(segment.kernels->product(params, tiles(params.rows), epilogue, site));
  }
  params.norm.residual_out = nullptr;  // once is enough
}

Segment CudaOps::dequantize(const Segment& segment, int first) {
  const ProductKernels& halves = *kernels_.product(WeightFormat::f16);
  Segment dense = {.kernels = &halves, .panels = dense_, .pieces = segment.pieces * segment.kernels->piece_k / halves.piece_k, .unit = segment.unit,
                   .first_column = segment.first_column + first};
  const size_t output_bytes = static_cast<size_t>(dense.pieces) * static_cast<size_t>(halves.piece_bytes) / 16;
  dense.n = std::min(segment.n - first, static_cast<int>(dense_bytes_ / output_bytes) / kUnitOutputs * kUnitOutputs);
  const size_t skipped = static_cast<size_t>(first / 16) * static_cast<size_t>(segment.pieces) * static_cast<size_t>(segment.kernels->piece_bytes);
  check(segment.kernels->expand({.panels = segment.panels + skipped, .out = dense_, .outputs = dense.n, .pieces = segment.pieces}, next_site()));
  return dense;
}

void CudaOps::norm_product(ConstMatrixView x, const NormArgs& norm_args, const Weight& weight, int rows, void* out, Epilogue epilogue, ActLayout out_layout, int activation) {
  RowNorm fused;
  if (rows != 1 || !packed(weight).joins_row() || !row_norm(x, norm_args, fused)) norm(x, norm_args, rows, nullptr, weight);
  product(weight, act_in_, rows, out, epilogue, fused, out_layout, activation);
}

void CudaOps::attn_in(const StepView& step, const AttnInArgs& args) {
  const Epilogue left = epilogue(step.rows);
  norm_product(args.x, args.norm, *args.w, step.rows, partial_, left);
  partial_slices_ = slices(*args.w, left);
  partial_stride_ = packed(*args.w).columns;
  qkv_bias_ = vector_of(args.bias);
}

void CudaOps::rope_store_attend(const StepView& step, const RopeStoreAttendArgs& args) {
  const AttentionSpec& a = args.attention;
  const RopeStoreParams turn = {.partial = partial_, .bias = qkv_bias_, .q_norm = vector_of(args.q_norm.weight), .k_norm = vector_of(args.k_norm.weight),
                                .inv_freq = device_inv_freq(a.rope), .pos = step.pos, .kv_slot = step.kv_slot, .q = q_,
                                .pages = static_cast<uint8_t*>(args.kv.base), .page_bytes = args.kv.page.bytes,
                                .eps = args.q_norm.weight ? args.q_norm.eps : args.k_norm.eps, .rope_scale = a.rope.scale, .rows = step.rows,
                                .stride = partial_stride_, .slices = partial_slices_, .heads = a.heads, .kv_heads = a.kv_heads, .dim = a.head_dim, .rope_dims = a.rope.dims,
                                .pairs_style = a.rope.style == RopeStyle::pairs, .page_tokens = args.kv.page.tokens, .layer = a.layer};
  AttendParams params = {.q = q_, .q_stride = int64_t{a.heads} * a.head_dim, .out = act_mid_,
                         .layout = {.tiles = tiles(step.rows), .k_padded = padded_inputs(a.heads * a.head_dim)}};
  // One row a sequence: the attending blocks finish q, K and V themselves. More, and each row would be finished many times.
  // So with many splits, which each would have to, but of the only row.
  const int group = a.heads / a.kv_heads, splits = (context_ + kSplit - 1) / kSplit;
  const bool alone = step.rows == 1 && step.seqs == 1 && splits > 1 && kernels_.attends_alone(a.head_dim, a.heads, a.kv_heads, splits, site_);
  if (query_tokens_ == 1 && table_.fresh_splits > 0 && (alone || (group <= kFreshGroup && splits <= table_.fresh_splits))) {
    params.fresh = true;
    params.turn = turn;
  } else {
    check(kernels_.rope_store(turn, next_site()));
  }
  attend_rows(step, a, args.kv, params);
}

void CudaOps::attend_rows(const StepView& step, const AttentionSpec& a, const KvView& kv, AttendParams params) {
  const int group = a.heads / a.kv_heads, splits = (context_ + kSplit - 1) / kSplit;
  // Splitting pays while a step has few rows; the bits are the same either way.
  const bool split = step.rows <= attend_rows_ && query_tokens_ <= 64 && splits > 1;
  params.pages = static_cast<const uint8_t*>(kv.base);
  params.block_refs = step.block_refs;
  params.row_begin = step.row_begin;
  params.context = step.context;
  params.pos = step.pos;
  params.partial = split ? attend_partial_ : nullptr;
  params.merge_from = merge_from_;
  params.page_bytes = kv.page.bytes;
  params.scale_log2 = a.scale * kLog2E;
  params.heads = a.heads;
  params.kv_heads = a.kv_heads;
  params.page_tokens = kv.page.tokens;
  params.layer = a.layer;
  params.max_blocks = step.max_blocks;
  params.window = a.sliding_window;
  params.splits = splits;
  params.seqs = step.seqs;
  params.arriving_lanes = site_.arriving_lanes;
  // Splits of a block: as many as leave every multiprocessor its blocks.
  params.block_splits = std::max(1, a.kv_heads * step.seqs * splits / (table_.attend_blocks * site_.multiprocessors));
  cudaError_t code = cudaSuccess;
  if (step.rows == 1 && chain_.add(params, a.head_dim, site_, code)) {
    check(code);
    return;
  }
  check(kernels_.attend(params, a.head_dim, query_tokens_ * group, step.seqs, step.rows, next_site()));
}

void CudaOps::project(const ProjectArgs& args) {
  const int rows = static_cast<int>(args.residual.rows);
  const Epilogue left = epilogue(rows);
  product(*args.w, act_mid_, rows, residual_partial_, left);
  pending_ = {.waiting = true, .slices = slices(*args.w, left), .bias = vector_of(args.bias), .post_weight = vector_of(args.post_norm.weight),
              .post_eps = args.post_norm.eps, .stride = packed(*args.w).columns};
}

void CudaOps::attn_out(const StepView&, const ProjectArgs& args) { project(args); }
void CudaOps::mlp_out(const StepView&, const ProjectArgs& args) { project(args); }

void CudaOps::mlp_in(const StepView& step, const MlpInArgs& args) {
  const int n = static_cast<int>(args.out.cols), columns = packed(*args.w).columns, rows = step.rows, activation = activation_kind(args.activation);
  const ActLayout out = {.tiles = tiles(rows), .k_padded = padded_inputs(n)};
  const CudaWeight& weight = packed(*args.w);
  const bool prompt_gates = out.tiles == kPromptRows && kernels_.gates_prompts && !weight.outliers.begin && !weight.in_perm;
  if (rows == 1 ? weight.joins_row() : prompt_gates) {  // the product applies the gate itself
    norm_product(args.x, args.norm, *args.w, rows, act_mid_, Epilogue::gated, out, activation);
    return;
  }
  const Epilogue left = epilogue(rows);
  norm_product(args.x, args.norm, *args.w, rows, partial_, left);
  check(kernels_.gate({.partial = partial_, .out = act_mid_, .layout = out, .slice_stride = static_cast<int64_t>(rows) * columns, .rows = rows, .n = n,
                     .stride = columns, .slices = slices(*args.w, left), .activation = activation}, next_site()));
}

void CudaOps::head(const StepView& step, const HeadArgs& args) {
  const int rows = step.logit_rows, columns = packed(*args.w).columns;
  const bool all = all_logits_ && rows > 0;
  // The last projection's partial sums go into every row; then only the rows that are sampled are normalised.
  if (pending_.waiting && !all) norm(args.x, {}, step.rows, nullptr, *args.w);
  if (rows == 0) return;
  // Padded columns stay behind where there are any: the caller's logits have the vocabulary's width.
  const bool direct = args.logits.stride == columns;
  float* out = direct ? static_cast<float*>(args.logits.data) : logits_;
  if (all) {
    norm_product(args.x, args.norm, *args.w, rows, out, Epilogue::whole);
  } else {
    norm(args.x, args.norm, rows, step.logit_row, *args.w);
    product(*args.w, act_in_, rows, out, Epilogue::whole);
  }
  if (!direct)
    check(cudaMemcpy2DAsync(args.logits.data, static_cast<size_t>(args.logits.stride) * sizeof(float), logits_, static_cast<size_t>(columns) * sizeof(float),
                            static_cast<size_t>(args.logits.cols) * sizeof(float), static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, next_site().stream));
}

void CudaOps::sample(const StepView& step, const SampleArgs& args) {
  const bool counts = step.history && step.token;
  if (counts)
    check(kernels_.row_tokens({.token = step.token, .prev = step.prev, .logit_row = step.logit_row, .sampled = last_sampled_, .out = own_tokens_,
                               .rows = step.logit_rows}, next_site()));
  check(kernels_.sample_rows({.step = {.logits = static_cast<float*>(args.logits.data), .params = step.sample, .history = step.history,
                                     .bias_token = step.bias_token, .bias_value = step.bias_value, .mask = step.mask, .out = args.out,
                                     .rows = step.logit_rows, .vocabulary = static_cast<int>(args.logits.cols),
                                     .stride = static_cast<int>(args.logits.stride)},
                            .own_token = counts ? own_tokens_ : nullptr, .alternatives = args.alternatives, .counts = counts_}, next_site()));
  last_sampled_ = args.out;
}

// --- fine operations ----------------------------------------------------------------------------------------------

void CudaOps::linear(const LinearArgs& args) {
  QUINTET_CHECK(!args.in_perm, "act-order inputs are not packed by this backend");
  const int rows = static_cast<int>(args.x.rows);
  if (args.norm.weight) norm(args.x, args.norm, rows, nullptr, *args.w);
  else check(kernels_.pack_rows({.x = plain(args.x), .out = act_in_, .layout = layout(*args.w, rows), .rows = rows, .columns = static_cast<int>(args.x.cols)}, next_site()));
  // A head has more outputs than partial_ has columns; its whole sums have a place of their own.
  const bool is_head = args.w->role == WeightRole::head || args.w->role == WeightRole::embedding_and_head;
  const Epilogue left = is_head ? Epilogue::whole : epilogue(rows);
  float* sums = is_head ? logits_ : partial_;
  dequantizing_ = args.dequantize_first && dense_bytes_ > 0;
  product(*args.w, act_in_, rows, sums, left);
  dequantizing_ = false;
  const int columns = packed(*args.w).columns;
  // Parts are padded apart: each comes out at its own columns, those of gate and up in turns of 8.
  int64_t first = 0;
  for (const PartPlace& part : packed(*args.w).parts) {
    const Segment& segment = packed(*args.w).segments[static_cast<size_t>(part.segment)];
    PlainMatrix out = plain(args.out);
    out.data = static_cast<std::byte*>(out.data) + first * (out.is_half ? 2 : 4);
    const float* bias = args.bias ? vector_of(args.bias) + first : nullptr;
    check(kernels_.reduce({.partial = sums + segment.first_column + part.first_row, .bias = bias, .place = part.rows, .out = out,
                         .slice_stride = static_cast<int64_t>(rows) * columns, .rows = rows, .columns = part.n, .stride = columns, .slices = slices(*args.w, left), .add = args.add_to_out}, next_site()));
    first += part.n;
  }
}

uint64_t CudaOps::dequantized_bytes(const Weight& weight) const {
  uint64_t bytes = 0;
  for (const Segment& segment : packed(weight).segments)
    if (segment.kernels->format != WeightFormat::f16)
      bytes += static_cast<uint64_t>(segment.n) * static_cast<uint64_t>(padded_inputs(static_cast<int>(weight.k))) * sizeof(__half);
  return bytes;
}

void CudaOps::rms_norm(ConstMatrixView x, const NormArgs& norm, MatrixView out) {
  check(kernels_.norm_plain({.x = plain(x), .out = plain(out), .weight = vector_of(norm.weight), .eps = norm.eps, .rows = static_cast<int>(x.rows),
                           .columns = static_cast<int>(x.cols)}, next_site()));
}

void CudaOps::rope_store(const StepView& step, const RopeStoreArgs& args) {
  const AttentionSpec& a = args.attention;
  check(kernels_.rope_store({.qkv = static_cast<__half*>(args.qkv.data), .q_norm = vector_of(args.q_norm.weight), .k_norm = vector_of(args.k_norm.weight),
                           .inv_freq = device_inv_freq(a.rope), .pos = step.pos, .kv_slot = step.kv_slot, .pages = static_cast<uint8_t*>(args.kv.base),
                           .page_bytes = args.kv.page.bytes, .eps = args.q_norm.weight ? args.q_norm.eps : args.k_norm.eps, .rope_scale = a.rope.scale,
                           .rows = step.rows, .stride = static_cast<int>(args.qkv.stride), .heads = a.heads, .kv_heads = a.kv_heads, .dim = a.head_dim,
                           .rope_dims = a.rope.dims, .pairs_style = a.rope.style == RopeStyle::pairs, .page_tokens = args.kv.page.tokens, .layer = a.layer}, next_site()));
}

void CudaOps::attend(const StepView& step, const AttendArgs& args) {
  attend_rows(step, args.attention, args.kv, {.q = static_cast<const __half*>(args.qkv.data), .q_stride = args.qkv.stride, .out = static_cast<__half*>(args.out.data),
                                              .layout = {.tiles = kPlainTiles, .k_padded = static_cast<int>(args.out.stride)}});
}

void CudaOps::gate(const GateArgs& args) {
  check(kernels_.elements(ElementOp::gate, {.x = plain(args.gate_up), .out = plain(args.out), .rows = static_cast<int>(args.out.rows),
                                          .columns = static_cast<int>(args.out.cols), .activation = activation_kind(args.activation)}, next_site()));
}

void CudaOps::add(ConstMatrixView x, MatrixView out) {
  check(kernels_.elements(ElementOp::add, {.x = plain(x), .out = plain(out), .rows = static_cast<int>(out.rows), .columns = static_cast<int>(out.cols)}, next_site()));
}

void CudaOps::gather(const StepView& step, ConstMatrixView x, MatrixView out) {
  check(kernels_.elements(ElementOp::gather, {.x = plain(x), .out = plain(out), .row_index = step.logit_row, .rows = static_cast<int>(out.rows),
                                            .columns = static_cast<int>(out.cols)}, next_site()));
}

}  // namespace quintet::cuda
