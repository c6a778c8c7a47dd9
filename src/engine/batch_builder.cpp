// The layout of a step's inputs and how a sequence's state fills it.
#include "engine/batch_builder.h"

#include <algorithm>

#include "base/check.h"

namespace quintet {

/// Hands out parts of the staging memory, or, without any, counts what they would take.
class BatchBuilder::Arena {
 public:
  explicit Arena(uint8_t* base) : base_(base) {}

  template <class T>
  T* array(int64_t count) {
    static constexpr size_t kAlignment = 64;  // a cache line
    T* data = base_ ? reinterpret_cast<T*>(base_ + used_bytes_) : nullptr;
    used_bytes_ += (static_cast<size_t>(count) * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
    return data;
  }
  size_t used_bytes() const { return used_bytes_; }

 private:
  uint8_t* base_;
  size_t used_bytes_ = 0;
};

/// How much of everything a step holds.
struct BatchBuilder::Counts {
  int64_t rows = 0;
  int64_t seqs = 0;
  int64_t logit_rows = 0;
  int64_t max_blocks = 0;
  int64_t bias = 0;
  int64_t history = 0;
};

struct BatchBuilder::Arrays {
  TokenId* token;        // [rows]
  int32_t* prev;         // [rows]
  int32_t* pos;          // [rows]
  int32_t* seq;          // [rows]
  int64_t* kv_slot;      // [rows]
  int32_t* row_begin;    // [seqs + 1]
  int32_t* context;      // [seqs]
  int32_t* logit_row;    // [logit_rows]
  SampleParams* sample;  // [logit_rows]
  BlockRef* block_refs;  // [seqs, max_blocks]
  TokenId* bias_token;   // [bias]
  float* bias_value;     // [bias]
  TokenId* history;      // [history]
};

BatchBuilder::Arrays BatchBuilder::lay_out(const Counts& counts, Arena& arena) {
  return {.token = arena.array<TokenId>(counts.rows),
          .prev = arena.array<int32_t>(counts.rows),
          .pos = arena.array<int32_t>(counts.rows),
          .seq = arena.array<int32_t>(counts.rows),
          .kv_slot = arena.array<int64_t>(counts.rows),
          .row_begin = arena.array<int32_t>(counts.seqs + 1),
          .context = arena.array<int32_t>(counts.seqs),
          .logit_row = arena.array<int32_t>(counts.logit_rows),
          .sample = arena.array<SampleParams>(counts.logit_rows),
          .block_refs = arena.array<BlockRef>(counts.seqs * counts.max_blocks),
          .bias_token = arena.array<TokenId>(counts.bias),
          .bias_value = arena.array<float>(counts.bias),
          .history = arena.array<TokenId>(counts.history)};
}

size_t BatchBuilder::bytes_needed(const BatchLimits& limits) {
  Arena arena(nullptr);
  lay_out({.rows = limits.rows,
           .seqs = limits.seqs,
           .logit_rows = limits.logit_rows,
           .max_blocks = (int64_t{limits.context} + limits.block_tokens - 1) / limits.block_tokens,
           .bias = int64_t{limits.seqs} * static_cast<int64_t>(kMaxBias),
           .history = int64_t{limits.seqs} * limits.context},
          arena);
  return arena.used_bytes();
}

Result<BatchBuilder::Staging> BatchBuilder::allocate(Executor& executor, const BatchLimits& limits) {
  Staging staging;
  for (Buffer& buffer : staging) {
    TRY_ASSIGN(buffer, executor.allocate_staging(bytes_needed(limits)));
  }
  return staging;
}

BatchBuilder::BatchBuilder(const BatchLimits& limits, Staging staging)
    : limits_(limits), staging_(std::move(staging)) {
  for (const Buffer& buffer : staging_)
    QUINTET_CHECK(buffer.bytes() >= bytes_needed(limits), "{} bytes of staging memory", buffer.bytes());
}

namespace {

/// Tokens that the penalties of a request count, at the end of `context` of them.
int32_t history_tokens(const Request& request, int32_t context) {
  if (!request.sampling.counts_history()) return 0;
  return request.penalty_window < 0 ? context : std::min(request.penalty_window, context);
}

}  // namespace

StepInputs BatchBuilder::build(std::span<const BatchItem> items, const Residency& residency) {
  const int32_t block_tokens = limits_.block_tokens;
  // The arrays lie close together, so that a step's inputs are one short copy.
  Counts counts;
  for (const BatchItem& item : items) {
    const int32_t context = item.first + item.tokens;
    const int32_t blocks = (context + block_tokens - 1) / block_tokens;
    const bool chained = item.prev_logit_row >= 0;
    QUINTET_CHECK(!chained || (item.tokens == 1 && item.first == item.sequence->known_tokens()),
                  "only the one next token of a sequence may be unknown");
    QUINTET_CHECK(context <= item.sequence->known_tokens() + (chained ? 1 : 0) && context <= limits_.context &&
                      blocks <= static_cast<int32_t>(item.sequence->blocks.size()),
                  "positions {} to {} of {} tokens in {} blocks", item.first, context,
                  item.sequence->known_tokens(), item.sequence->blocks.size());
    ++counts.seqs;
    counts.rows += item.tokens;
    counts.logit_rows += item.logit_rows;
    counts.max_blocks = std::max<int64_t>(counts.max_blocks, blocks);
    if (item.logit_rows == 0) continue;
    counts.bias += static_cast<int64_t>(item.sequence->request.bias.size());
    counts.history += history_tokens(item.sequence->request, context);
  }
  QUINTET_CHECK(
      counts.seqs <= limits_.seqs && counts.rows <= limits_.rows && counts.logit_rows <= limits_.logit_rows,
      "{} rows, {} sequences, {} logit rows in a step of {}, {}, {}", counts.rows, counts.seqs,
      counts.logit_rows, limits_.rows, limits_.seqs, limits_.logit_rows);
  const Buffer& staging = staging_[++step_id_ % staging_.size()];
  Arena arena(staging.as<uint8_t>());
  const Arrays out = lay_out(counts, arena);
  const int32_t max_blocks = static_cast<int32_t>(counts.max_blocks);

  int32_t rows = 0, seqs = 0, logit_rows = 0, history = 0, bias = 0;
  for (const BatchItem& item : items) {
    const Sequence& sequence = *item.sequence;
    const int32_t context = item.first + item.tokens;
    const int32_t blocks = (context + block_tokens - 1) / block_tokens;
    out.row_begin[seqs] = rows;
    out.context[seqs] = context;
    for (int32_t i = 0; i < blocks; ++i)
      out.block_refs[int64_t{seqs} * max_blocks + i] = residency.ref(sequence.blocks[static_cast<size_t>(i)]);
    for (int32_t pos = item.first; pos < context; ++pos, ++rows) {
      out.token[rows] = item.prev_logit_row < 0 ? sequence.tokens[static_cast<size_t>(pos)] : -1;
      out.prev[rows] = item.prev_logit_row;
      out.pos[rows] = pos;
      out.seq[rows] = seqs;
      out.kv_slot[rows] =
          residency.slot(sequence.blocks[static_cast<size_t>(pos / block_tokens)], pos % block_tokens);
    }
    if (item.logit_rows > 0) {
      const Request& request = sequence.request;
      SampleParams params = request.sampling;
      params.seed = request.seed;
      params.history_begin = history;
      const int32_t window = history_tokens(request, context);
      const int32_t unknown = window > 0 && item.prev_logit_row >= 0 ? 1 : 0;
      std::copy_n(sequence.tokens.begin() + (context - window), window - unknown, out.history + history);
      history += window;
      if (unknown) out.history[history - 1] = -1;
      params.history_end = history;
      params.bias_begin = bias;
      for (const LogitBias& entry : request.bias) {
        out.bias_token[bias] = entry.token;
        out.bias_value[bias++] = entry.value;
      }
      params.bias_end = bias;
      params.mask_row = -1;
      for (int32_t row = rows - item.logit_rows; row < rows; ++row) {
        params.position = out.pos[row] + 1;
        out.logit_row[logit_rows] = row;
        out.sample[logit_rows++] = params;
      }
    }
    ++seqs;
  }
  out.row_begin[seqs] = rows;

  return {.view = {.rows = rows,
                   .seqs = seqs,
                   .logit_rows = logit_rows,
                   .max_blocks = max_blocks,
                   .token = out.token,
                   .prev = out.prev,
                   .pos = out.pos,
                   .seq = out.seq,
                   .kv_slot = out.kv_slot,
                   .row_begin = out.row_begin,
                   .context = out.context,
                   .block_refs = out.block_refs,
                   .logit_row = out.logit_row,
                   .sample = out.sample,
                   .history = out.history,
                   .bias_token = out.bias_token,
                   .bias_value = out.bias_value,
                   .step_id = step_id_},
          .bytes = {staging.as<uint8_t>(), arena.used_bytes()}};
}

}  // namespace quintet
