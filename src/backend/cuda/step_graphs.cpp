// Records and replays decode steps and short prompts.
#include "backend/cuda/step_graphs.h"

#include <algorithm>
#include <cstring>

namespace quintet::cuda {
namespace {

constexpr int32_t kMostRows = 64;        ///< beyond, a step's products take so long that launches hide behind them
constexpr int32_t kFirstContext = 256;   ///< buckets grow from here: one split of attention, two, four, ...
static_assert(kFirstContext == kSplit);
/// Rows of prompts are padded to the tiles of the products, which take as long for fewer.
constexpr int32_t kPromptSizes[] = {8, 16, 32, 64, 128, 256};
constexpr int32_t kHistoryTokens = 1024, kBiasTokens = 64;  ///< a row: longer ones are issued without a graph

std::vector<int32_t> row_sizes(int32_t most) {
  std::vector<int32_t> sizes;
  for (int32_t rows = 1; rows < std::min(most, kMostRows); rows *= 2) sizes.push_back(rows);
  sizes.push_back(std::min(most, kMostRows));
  return sizes;
}

std::vector<int32_t> context_buckets(int32_t most, int32_t factor) {
  std::vector<int32_t> buckets;
  for (int64_t context = kFirstContext; context < most; context *= factor) buckets.push_back(static_cast<int32_t>(context));
  buckets.push_back(most);
  return buckets;
}

/// Of prompts: what is launched depends on the context only where attention may be split (CudaOps::attend_rows), and a split that is
/// not there costs a prompt less than a graph more costs the start.
std::vector<int32_t> prompt_buckets(int32_t rows, int32_t most) {
  constexpr int32_t kFactor = 4;
  return rows > kMostRows ? std::vector<int32_t>{most} : context_buckets(most, kFactor);
}

bool is_decode(const StepView& step) {
  if (step.rows != step.seqs || step.rows != step.logit_rows || step.mask) return false;
  for (int32_t i = 0; i < step.rows; ++i)
    if (step.row_begin[i + 1] != i + 1 || step.logit_row[i] != i) return false;
  return true;
}

/// The end of one prompt, of which the last row is sampled.
bool is_prompt(const StepView& step) {
  return step.rows > 1 && step.seqs == 1 && step.logit_rows == 1 && step.logit_row[0] == step.rows - 1 && !step.mask;
}

int32_t longest_context(const StepView& step) { return *std::max_element(step.context, step.context + step.seqs); }

}  // namespace

struct StepGraphs::Layout {
  Key key;
  int32_t max_blocks = 0;
  size_t token = 0, prev = 0, pos = 0, seq = 0, kv_slot = 0, row_begin = 0, length = 0, block_refs = 0, logit_row = 0, sample = 0;
  size_t fixed_bytes = 0;  ///< all of the above; what follows is copied where a row has penalties or a bias
  size_t bias_token = 0, bias_value = 0, history = 0, bytes = 0;
};

StepGraphs::Layout StepGraphs::layout(const Key& key) const {
  const int32_t rows = key.rows, seqs = key.seqs, logit_rows = key.seqs;
  Layout out{.key = key, .max_blocks = (key.context + block_tokens_ - 1) / block_tokens_};
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
  out.row_begin = take(seqs + 1, sizeof(int32_t));
  out.length = take(seqs, sizeof(int32_t));
  out.logit_row = take(logit_rows, sizeof(int32_t));
  out.sample = take(logit_rows, sizeof(SampleParams));
  out.block_refs = take(int64_t{seqs} * out.max_blocks, sizeof(BlockRef));
  out.fixed_bytes = used;
  out.bias_token = take(int64_t{logit_rows} * kBiasTokens, sizeof(TokenId));
  out.bias_value = take(int64_t{logit_rows} * kBiasTokens, sizeof(float));
  out.history = take(int64_t{logit_rows} * kHistoryTokens, sizeof(TokenId));
  out.bytes = used;
  return out;
}

StepView StepGraphs::view(const Layout& layout, const uint8_t* base) {
  const auto at = [&]<class T>(const T*& pointer, size_t offset) { pointer = reinterpret_cast<const T*>(base + offset); };
  StepView view{.rows = layout.key.rows, .seqs = layout.key.seqs, .logit_rows = layout.key.seqs, .max_blocks = layout.max_blocks};
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
  const Key& key = layout.key;
  for (int32_t row = 0; row < key.rows; ++row) {
    const bool exists = row < step.rows;
    token[row] = exists ? step.token[row] : 0;
    prev[row] = exists && step.prev ? step.prev[row] : 0;
    pos[row] = exists ? step.pos[row] : -1;
    seq[row] = std::min(row, key.seqs - 1);
    kv_slot[row] = exists ? step.kv_slot[row] : -1;
  }
  // Padding rows of decode steps are sequences without rows; those of a prompt lie behind its last row.
  int32_t history_end = 0, bias_end = 0;
  for (int32_t i = 0; i < key.seqs; ++i) {
    const bool exists = i < step.seqs;
    row_begin[i] = exists ? step.row_begin[i] : step.rows;
    length[i] = exists ? step.context[i] : 0;
    logit_row[i] = exists ? step.logit_row[i] : i;
    sample[i] = exists ? step.sample[i] : SampleParams{};
    if (!exists) continue;
    std::copy_n(step.block_refs + int64_t{i} * step.max_blocks, std::min(step.max_blocks, layout.max_blocks), refs + int64_t{i} * layout.max_blocks);
    history_end = std::max(history_end, sample[i].history_end);
    bias_end = std::max(bias_end, sample[i].bias_end);
  }
  row_begin[key.seqs] = step.rows;
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
void StepGraphs::begin(const Key& key) {
  std::vector<int32_t> row_begin(static_cast<size_t>(key.seqs) + 1), lengths(static_cast<size_t>(key.seqs), key.context);
  for (int32_t i = 0; i <= key.seqs; ++i) row_begin[static_cast<size_t>(i)] = i * (key.rows / key.seqs);
  ops_.begin_step({.rows = key.rows, .seqs = key.seqs, .logit_rows = key.seqs, .row_begin = row_begin.data(), .context = lengths.data()});
}

Status StepGraphs::issue_padding(const Key& key, const IssueStep& issue) {
  const Layout layout = this->layout(key);
  TRY(upload({}, layout));
  begin(layout.key);
  issue(view(layout, static_cast<const uint8_t*>(inputs_.get())));
  return device_status(ops_.take_error(), "launch");
}

Status StepGraphs::record(const Key& key, const IssueStep& issue) {
  const Layout layout = this->layout(key);
  begin(layout.key);
  QUINTET_CUDA(cudaStreamBeginCapture(site_.stream, cudaStreamCaptureModeThreadLocal));
  issue(view(layout, static_cast<const uint8_t*>(inputs_.get())));
  ops_.flush();
  Graph graph;
  const cudaError_t ended = cudaStreamEndCapture(site_.stream, graph.out());
  TRY(device_status(ops_.take_error(), "launch while recording a graph"));
  TRY(device_status(ended, "cudaStreamEndCapture"));
  Recorded recorded{.key = key};
  QUINTET_CUDA(cudaGraphInstantiate(recorded.graph.out(), graph.get(), 0));
  QUINTET_CUDA(cudaGraphUpload(recorded.graph.get(), site_.stream));
  (key.seqs == key.rows ? decode_ : prompts_).push_back(std::move(recorded));
  return {};
}

Status StepGraphs::prepare(const StepLimits& limits, int32_t block_tokens, const IssueStep& issue) {
  QUINTET_CHECK(decode_.empty(), "graphs are recorded once");
  block_tokens_ = block_tokens;
  std::vector<Group> groups;
  for (const int32_t rows : row_sizes(std::min(limits.seqs, limits.logit_rows)))
    groups.push_back({.rows = rows, .seqs = rows, .contexts = context_buckets(limits.context, /*factor=*/2)});
  for (const int32_t rows : kPromptSizes)
    if (rows <= limits.rows) groups.push_back({.rows = rows, .seqs = 1, .contexts = prompt_buckets(rows, limits.context)});
  size_t bytes = 0;
  for (const Group& group : groups) bytes = std::max(bytes, layout(group.key(group.contexts.back())).bytes);
  QUINTET_CUDA(cudaMalloc(inputs_.out(), bytes));
  for (Staging& staging : staging_) {
    QUINTET_CUDA(cudaMallocHost(staging.memory.out(), bytes));
    QUINTET_CUDA(cudaEventCreateWithFlags(staging.copied.out(), cudaEventDisableTiming));
  }
  for (const Group& group : groups) {
    // Kernels are loaded and tables made at their first launch, which must not happen while a graph is recorded: once with
    // one split of attention, once with several.
    for (size_t i = 0; i < std::min<size_t>(2, group.contexts.size()); ++i) TRY(issue_padding(group.key(group.contexts[i]), issue));
    for (const int32_t context : group.contexts) TRY(record(group.key(context), issue));
  }
  QUINTET_CUDA(cudaStreamSynchronize(site_.stream));
  return {};
}

const StepGraphs::Recorded* StepGraphs::find(const StepView& step) const {
  const std::vector<Recorded>* graphs = is_decode(step) ? &decode_ : is_prompt(step) ? &prompts_ : nullptr;
  if (!graphs) return nullptr;
  const int32_t context = longest_context(step);
  const auto found = std::ranges::find_if(*graphs, [&](const Recorded& one) { return one.key.rows >= step.rows && one.key.context >= context; });
  return found == graphs->end() ? nullptr : &*found;
}

Result<bool> StepGraphs::replay(const StepInputs& inputs) {
  const StepView& step = inputs.view;
  const Recorded* found = find(step);
  if (!found) return false;
  int64_t history = 0, bias = 0;
  for (int32_t row = 0; row < step.logit_rows; ++row) {
    history = std::max<int64_t>(history, step.sample[row].history_end);
    bias = std::max<int64_t>(bias, step.sample[row].bias_end);
  }
  if (history > int64_t{found->key.seqs} * kHistoryTokens || bias > int64_t{found->key.seqs} * kBiasTokens) return false;
  TRY(upload(step, layout(found->key)));
  QUINTET_CUDA(cudaGraphLaunch(found->graph.get(), site_.stream));
  return true;
}

}  // namespace quintet::cuda
