// Records and replays decode steps.
#include "backend/cuda/step_graphs.h"

#include <algorithm>
#include <cstring>

namespace quintet::cuda {
namespace {

constexpr int32_t kMostRows = 64;        ///< beyond, a step's products take so long that launches hide behind them
constexpr int32_t kFirstContext = 256;   ///< buckets double from here: one split of attention, two, four, ...
static_assert(kFirstContext == kSplit);
constexpr int32_t kHistoryTokens = 1024, kBiasTokens = 64;  ///< a row: longer ones are issued without a graph

std::vector<int32_t> row_sizes(int32_t most) {
  std::vector<int32_t> sizes;
  for (int32_t rows = 1; rows < std::min(most, kMostRows); rows *= 2) sizes.push_back(rows);
  sizes.push_back(std::min(most, kMostRows));
  return sizes;
}

std::vector<int32_t> context_buckets(int32_t most) {
  std::vector<int32_t> buckets;
  for (int32_t context = kFirstContext; context < most; context *= 2) buckets.push_back(context);
  buckets.push_back(most);
  return buckets;
}

bool is_decode(const StepView& step) {
  if (step.rows != step.seqs || step.rows != step.logit_rows || step.mask) return false;
  for (int32_t i = 0; i < step.rows; ++i)
    if (step.row_begin[i + 1] != i + 1 || step.logit_row[i] != i) return false;
  return true;
}

int32_t longest_context(const StepView& step) { return *std::max_element(step.context, step.context + step.seqs); }

}  // namespace

struct StepGraphs::Layout {
  int32_t rows = 0, context = 0, max_blocks = 0;
  size_t token = 0, prev = 0, pos = 0, seq = 0, kv_slot = 0, row_begin = 0, length = 0, block_refs = 0, logit_row = 0, sample = 0;
  size_t fixed_bytes = 0;  ///< all of the above; what follows is copied where a row has penalties or a bias
  size_t bias_token = 0, bias_value = 0, history = 0, bytes = 0;
};

StepGraphs::Layout StepGraphs::layout(int32_t rows, int32_t context) const {
  Layout out{.rows = rows, .context = context, .max_blocks = (context + block_tokens_ - 1) / block_tokens_};
  size_t used = 0;
  const auto take = [&](int64_t count, size_t size) {
    constexpr size_t kAlignment = 16;
    const size_t at = used;
    used += (static_cast<size_t>(count) * size + kAlignment - 1) / kAlignment * kAlignment;
    return at;
  };
  out.token = take(rows, sizeof(TokenId));
  out.prev = take(rows, sizeof(int32_t));
  out.pos = take(rows, sizeof(int32_t));
  out.seq = take(rows, sizeof(int32_t));
  out.kv_slot = take(rows, sizeof(int64_t));
  out.row_begin = take(rows + 1, sizeof(int32_t));
  out.length = take(rows, sizeof(int32_t));
  out.logit_row = take(rows, sizeof(int32_t));
  out.sample = take(rows, sizeof(SampleParams));
  out.block_refs = take(int64_t{rows} * out.max_blocks, sizeof(BlockRef));
  out.fixed_bytes = used;
  out.bias_token = take(int64_t{rows} * kBiasTokens, sizeof(TokenId));
  out.bias_value = take(int64_t{rows} * kBiasTokens, sizeof(float));
  out.history = take(int64_t{rows} * kHistoryTokens, sizeof(TokenId));
  out.bytes = used;
  return out;
}

StepView StepGraphs::view(const Layout& layout, const uint8_t* base) {
  const auto at = [&]<class T>(const T*& pointer, size_t offset) { pointer = reinterpret_cast<const T*>(base + offset); };
  StepView view{.rows = layout.rows, .seqs = layout.rows, .logit_rows = layout.rows, .max_blocks = layout.max_blocks};
  at(view.token, layout.token);
  at(view.prev, layout.prev);
  at(view.pos, layout.pos);
  at(view.seq, layout.seq);
  at(view.kv_slot, layout.kv_slot);
  at(view.row_begin, layout.row_begin);
  at(view.context, layout.length);
  at(view.block_refs, layout.block_refs);
  at(view.logit_row, layout.logit_row);
  at(view.sample, layout.sample);
  at(view.bias_token, layout.bias_token);
  at(view.bias_value, layout.bias_value);
  at(view.history, layout.history);
  return view;
}

size_t StepGraphs::write(const StepView& step, const Layout& layout, uint8_t* to) {
  const auto array = [&]<class T>(T*& pointer, size_t offset) { pointer = reinterpret_cast<T*>(to + offset); };
  TokenId* token, *bias_token, *history;
  int32_t *prev, *pos, *seq, *row_begin, *length, *logit_row;
  int64_t* kv_slot;
  BlockRef* refs;
  SampleParams* sample;
  float* bias_value;
  array(token, layout.token), array(prev, layout.prev), array(pos, layout.pos), array(seq, layout.seq), array(kv_slot, layout.kv_slot);
  array(row_begin, layout.row_begin), array(length, layout.length), array(refs, layout.block_refs), array(logit_row, layout.logit_row);
  array(sample, layout.sample), array(bias_token, layout.bias_token), array(bias_value, layout.bias_value), array(history, layout.history);
  int32_t history_end = 0, bias_end = 0;
  for (int32_t row = 0; row < layout.rows; ++row) {
    const bool exists = row < step.rows;
    token[row] = exists ? step.token[row] : 0;
    prev[row] = exists && step.prev ? step.prev[row] : 0;
    pos[row] = exists ? step.pos[row] : -1;
    seq[row] = row;
    kv_slot[row] = exists ? step.kv_slot[row] : -1;
    // A padding row is a sequence without rows.
    row_begin[row] = std::min(row, step.rows);
    length[row] = exists ? step.context[row] : 0;
    logit_row[row] = row;
    sample[row] = exists ? step.sample[row] : SampleParams{};
    if (!exists) continue;
    std::copy_n(step.block_refs + int64_t{row} * step.max_blocks, std::min(step.max_blocks, layout.max_blocks), refs + int64_t{row} * layout.max_blocks);
    SampleParams& params = sample[row];
    history_end = std::max(history_end, params.history_end);
    bias_end = std::max(bias_end, params.bias_end);
  }
  row_begin[layout.rows] = step.rows;
  if (history_end == 0 && bias_end == 0) return layout.fixed_bytes;
  std::copy_n(step.bias_token, bias_end, bias_token);
  std::copy_n(step.bias_value, bias_end, bias_value);
  std::copy_n(step.history, history_end, history);
  return layout.history + static_cast<size_t>(history_end) * sizeof(TokenId);
}

Status StepGraphs::upload(const StepView& step, const Layout& layout) {
  Staging& staging = staging_[turn_++ % staging_.size()];
  QUINTET_CUDA(cudaEventSynchronize(staging.copied.get()));
  const size_t bytes = write(step, layout, static_cast<uint8_t*>(staging.memory.get()));
  QUINTET_CUDA(cudaMemcpyAsync(inputs_.get(), staging.memory.get(), bytes, cudaMemcpyHostToDevice, site_.stream));
  QUINTET_CUDA(cudaEventRecord(staging.copied.get(), site_.stream));
  return {};
}

/// Tells the operations what a step of this key looks like at most: launches are sized from it.
static void begin(CudaOps& ops, int32_t rows, int32_t context) {
  std::vector<int32_t> row_begin(static_cast<size_t>(rows) + 1), lengths(static_cast<size_t>(rows), context);
  for (int32_t row = 0; row <= rows; ++row) row_begin[static_cast<size_t>(row)] = row;
  ops.begin_step({.rows = rows, .seqs = rows, .logit_rows = rows, .row_begin = row_begin.data(), .context = lengths.data()});
}

Status StepGraphs::issue_padding(const Layout& layout, const IssueStep& issue) {
  TRY(upload({}, layout));
  begin(ops_, layout.rows, layout.context);
  issue(view(layout, static_cast<const uint8_t*>(inputs_.get())));
  return device_status(ops_.take_error(), "launch");
}

Status StepGraphs::record(const Layout& layout, const IssueStep& issue) {
  begin(ops_, layout.rows, layout.context);
  QUINTET_CUDA(cudaStreamBeginCapture(site_.stream, cudaStreamCaptureModeThreadLocal));
  issue(view(layout, static_cast<const uint8_t*>(inputs_.get())));
  ops_.flush();
  Graph graph;
  const cudaError_t ended = cudaStreamEndCapture(site_.stream, graph.out());
  TRY(device_status(ops_.take_error(), "launch while recording a graph"));
  TRY(device_status(ended, "cudaStreamEndCapture"));
  Recorded recorded{.rows = layout.rows, .context = layout.context};
  QUINTET_CUDA(cudaGraphInstantiate(recorded.graph.out(), graph.get(), 0));
  QUINTET_CUDA(cudaGraphUpload(recorded.graph.get(), site_.stream));
  recorded_.push_back(std::move(recorded));
  return {};
}

Status StepGraphs::prepare(const StepLimits& limits, int32_t block_tokens, const IssueStep& issue) {
  QUINTET_CHECK(recorded_.empty(), "graphs are recorded once");
  block_tokens_ = block_tokens;
  const std::vector<int32_t> sizes = row_sizes(std::min(limits.seqs, limits.logit_rows)), buckets = context_buckets(limits.context);
  const size_t bytes = layout(sizes.back(), buckets.back()).bytes;
  QUINTET_CUDA(cudaMalloc(inputs_.out(), bytes));
  for (Staging& staging : staging_) {
    QUINTET_CUDA(cudaMallocHost(staging.memory.out(), bytes));
    QUINTET_CUDA(cudaEventCreateWithFlags(staging.copied.out(), cudaEventDisableTiming));
  }
  for (const int32_t rows : sizes) {
    // Kernels are loaded and tables made at their first launch, which must not happen while a graph is recorded: once with
    // one split of attention, once with several.
    for (size_t i = 0; i < std::min<size_t>(2, buckets.size()); ++i) TRY(issue_padding(layout(rows, buckets[i]), issue));
    for (const int32_t context : buckets) TRY(record(layout(rows, context), issue));
  }
  QUINTET_CUDA(cudaStreamSynchronize(site_.stream));
  return {};
}

Result<bool> StepGraphs::replay(const StepInputs& inputs) {
  const StepView& step = inputs.view;
  if (recorded_.empty() || step.rows > recorded_.back().rows || !is_decode(step)) return false;
  const int32_t context = longest_context(step);
  const auto found = std::ranges::find_if(recorded_, [&](const Recorded& r) { return r.rows >= step.rows && r.context >= context; });
  if (found == recorded_.end()) return false;
  int64_t history = 0, bias = 0;
  for (int32_t row = 0; row < step.rows; ++row) {
    history = std::max<int64_t>(history, step.sample[row].history_end);
    bias = std::max<int64_t>(bias, step.sample[row].bias_end);
  }
  if (history > int64_t{found->rows} * kHistoryTokens || bias > int64_t{found->rows} * kBiasTokens) return false;
  TRY(upload(step, layout(found->rows, found->context)));
  QUINTET_CUDA(cudaGraphLaunch(found->graph.get(), site_.stream));
  return true;
}

}  // namespace quintet::cuda
