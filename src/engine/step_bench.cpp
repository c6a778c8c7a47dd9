// The cache filled, and the timed loops.
#include "engine/step_bench.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "backend/sampler.h"
#include "base/check.h"
#include "base/units.h"
#include "tensor/half.h"

namespace quintet {
namespace {

constexpr int32_t kWarmup_steps = 4;
constexpr int32_t kFillRows = 2048;

/// xorshift64 (Marsaglia 2003).
uint64_t next_random(uint64_t& state) {
  state ^= state << 13, state ^= state >> 7, state ^= state << 17;
  return state;
}

int64_t blocks_of(int64_t tokens, const PageClass& page) { return (tokens + page.tokens - 1) / page.tokens; }

/// The cache is filled by whole pages: of a context shorter than one, too.
BatchLimits batch_limits(const StepBench::Options& options) {
  return {.rows = options.limits.rows,
          .seqs = options.limits.seqs,
          .logit_rows = options.limits.logit_rows,
          .context = static_cast<int32_t>(blocks_of(options.limits.context, options.page)) * options.page.tokens,
          .block_tokens = options.page.tokens};
}

double milliseconds_since(int64_t begin_us) { return static_cast<double>(now_us() - begin_us) * 1e-3; }

}  // namespace

int64_t cache_tokens(const StepWork& work, int32_t steps) {
  if (work.kind == StepWork::Kind::prompt) return work.rows;
  return int64_t{work.rows} * (work.context + steps + kWarmup_steps);
}

Result<std::unique_ptr<StepBench>> StepBench::make(Backend& backend, const Model& model, const Options& options) {
  TRY_ASSIGN(ModelExecutor executor, ModelExecutor::make(backend, model,
                                                         {.limits = options.limits, .page = options.page, .pages = options.pages}));
  TRY_ASSIGN(auto staging, BatchBuilder::allocate(executor, batch_limits(options)));
  std::unique_ptr<StepBench> bench(new StepBench(backend, model, options, std::move(executor), std::move(staging)));
  TRY(bench->executor_.prepare());
  TRY(bench->allocate_qkv());
  TRY(bench->fill_cache());
  return bench;
}

StepBench::StepBench(Backend& backend, const Model& model, const Options& options, ModelExecutor executor, BatchBuilder::Staging staging)
    : backend_(backend),
      model_(model),
      options_(options),
      executor_(std::move(executor)),
      builder_(batch_limits(options), std::move(staging)),
      residency_({.page = options.page, .pages = options.pages}),
      sampled_(static_cast<size_t>(options.limits.logit_rows)),
      alternatives_(static_cast<size_t>(options.limits.logit_rows) * kAlternatives) {}

Status StepBench::allocate_qkv() {
  const ModelConfig& config = model_.config;
  const DType type = backend_.info().activation;
  qkv_rows_ = std::min(options_.limits.rows, kFillRows);
  const size_t columns = static_cast<size_t>(config.heads + 2 * config.kv_heads) * static_cast<size_t>(config.head_dim);
  const size_t count = static_cast<size_t>(qkv_rows_) * columns, element = dtype_bytes(type);
  std::vector<uint8_t> values(count * element);
  uint64_t state = 0x9E3779B97F4A7C15u;
  for (size_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(static_cast<int32_t>(next_random(state) >> 32)) * 0x1p-31f;
    if (type == DType::f16) {
      const uint16_t bits = f32_to_f16(value);
      std::copy_n(reinterpret_cast<const uint8_t*>(&bits), sizeof(bits), &values[i * element]);
    } else {
      QUINTET_CHECK(type == DType::f32, "activations of another type");
      std::copy_n(reinterpret_cast<const uint8_t*>(&value), sizeof(value), &values[i * element]);
    }
  }
  TRY_ASSIGN(qkv_, backend_.allocate(values.size(), BufferUse::workspace));
  TRY_ASSIGN(attention_out_, backend_.allocate(static_cast<size_t>(qkv_rows_) * static_cast<size_t>(config.heads * config.head_dim) * element,
                                               BufferUse::workspace));
  return backend_.write(values, qkv_.data());
}

AttentionSpec StepBench::attention_spec(int32_t layer) const {
  const ModelConfig& config = model_.config;
  const LayerConfig& own = config.layer[static_cast<size_t>(layer)];
  const RopeConfig& rope = config.ropes[static_cast<size_t>(own.rope)];
  return {.layer = layer,
          .heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .scale = config.attention_scale,
          .sliding_window = own.sliding_window,
          .rope = {.style = rope.style, .dims = rope.dims, .inv_freq = rope.inv_freq.data(), .scale = rope.scale}};
}

std::vector<Sequence> StepBench::sequences(int32_t count, int32_t tokens, int32_t room) const {
  std::vector<Sequence> list(static_cast<size_t>(count));
  const int64_t blocks = blocks_of(room, options_.page);
  uint64_t state = 0x9E3779B97F4A7C15u;
  BlockId next = 0;
  for (Sequence& sequence : list) {
    sequence.tokens.reserve(static_cast<size_t>(room));
    for (int32_t i = 0; i < tokens; ++i)
      sequence.tokens.push_back(static_cast<TokenId>((next_random(state) >> 33) % static_cast<uint64_t>(model_.config.vocabulary)));
    sequence.prompt_tokens = tokens;
    sequence.blocks.resize(static_cast<size_t>(blocks));
    std::iota(sequence.blocks.begin(), sequence.blocks.end(), next);
    next += static_cast<BlockId>(blocks);
    QUINTET_CHECK(int64_t{next} <= options_.pages, "{} blocks of {}", next, options_.pages);
  }
  return list;
}

/// The one sequence of a step at a time takes the next stretch of pages, until all have been written.
Status StepBench::fill_cache() {
  const ModelConfig& config = model_.config;
  const DType type = backend_.info().activation;
  const int64_t columns = int64_t{config.heads + 2 * config.kv_heads} * config.head_dim;
  const int64_t total = options_.pages * options_.page.tokens;
  const int32_t longest = batch_limits(options_).context;
  for (int64_t begin = 0; begin < total; begin += longest) {
    const auto length = static_cast<int32_t>(std::min<int64_t>(longest, total - begin));
    Sequence sequence = std::move(sequences(1, length, length)[0]);
    for (BlockId& block : sequence.blocks) block += static_cast<BlockId>(begin / options_.page.tokens);
    for (int32_t first = 0; first < length; first += qkv_rows_) {
      const int32_t rows = std::min(qkv_rows_, length - first);
      const BatchItem item{.sequence = &sequence, .first = first, .tokens = rows};
      TRY_ASSIGN(const StepView view, backend_.stage(builder_.build({&item, 1}, residency_)));
      for (int32_t layer = 0; layer < config.layers; ++layer)
        backend_.ops().rope_store(view, {.qkv = {qkv_.data(), type, rows, columns, columns},
                                         .attention = attention_spec(layer),
                                         .kv = executor_.kv()});
      TRY(backend_.finish(nullptr, {}));
    }
  }
  return {};
}

Status StepBench::launch(const std::vector<Sequence>& sequences, int32_t first, int32_t tokens) {
  items_.clear();
  for (const Sequence& sequence : sequences) {
    const bool unknown = first == sequence.known_tokens();  // the step in flight samples it
    items_.push_back({.sequence = &sequence,
                      .first = first,
                      .tokens = tokens,
                      .logit_rows = 1,
                      .prev_logit_row = unknown ? static_cast<int32_t>(items_.size()) : -1});
  }
  ++launched_;
  return executor_.launch(builder_.build(items_, residency_));
}

Status StepBench::wait(std::vector<Sequence>& sequences) {
  TRY(executor_.wait({sampled_.data(), sequences.size()}, alternatives_));
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (sampled_[i].status != 0) return internal_error("bench: the logits of a row are not finite");
    sequences[i].tokens.push_back(sampled_[i].token);
  }
  return {};
}

Result<double> StepBench::decode(const StepWork& work, int32_t steps) {
  const int32_t total = steps + kWarmup_steps;
  std::vector<Sequence> list = sequences(work.rows, work.context + 1, work.context + total + 1);
  // As the engine does it: on a device that works on its own, a step is launched before the one before it is waited for.
  const int32_t ahead = backend_.info().asynchronous ? 1 : 0;
  int64_t begin_us = 0;
  for (int32_t launched = 0, waited = 0; waited < total; ++waited) {
    for (; launched < total && launched <= waited + ahead; ++launched) TRY(launch(list, work.context + launched, 1));
    TRY(wait(list));
    if (waited == kWarmup_steps - 1) begin_us = now_us();
  }
  return milliseconds_since(begin_us) / steps;
}

Result<double> StepBench::prompt(const StepWork& work) {
  std::array<double, 4> ms{};  // the first warms up
  for (double& one : ms) {
    std::vector<Sequence> list = sequences(1, work.rows, work.rows);
    const int64_t begin_us = now_us();
    TRY(launch(list, 0, work.rows));
    TRY(wait(list));
    one = milliseconds_since(begin_us);
  }
  std::sort(ms.begin() + 1, ms.end());
  return ms[2];
}

Result<double> StepBench::attention(const StepWork& work, int32_t steps) {
  const ModelConfig& config = model_.config;
  const DType type = backend_.info().activation;
  const int64_t columns = int64_t{config.heads + 2 * config.kv_heads} * config.head_dim, width = int64_t{config.heads} * config.head_dim;
  QUINTET_CHECK(work.rows <= qkv_rows_, "{} rows", work.rows);
  std::vector<Sequence> list = sequences(work.rows, work.context, work.context);
  items_.clear();
  for (const Sequence& sequence : list) items_.push_back({.sequence = &sequence, .first = work.context - 1, .tokens = 1});
  TRY_ASSIGN(const StepView view, backend_.stage(builder_.build(items_, residency_)));
  const auto all_layers = [&] {
    for (int32_t layer = 0; layer < config.layers; ++layer)
      backend_.ops().attend(view, {.qkv = {qkv_.data(), type, work.rows, columns, columns},
                                   .out = {attention_out_.data(), type, work.rows, width, width},
                                   .attention = attention_spec(layer),
                                   .kv = executor_.kv()});
  };
  all_layers();
  TRY(backend_.finish(nullptr, {}));
  const int64_t begin_us = now_us();
  for (int32_t i = 0; i < steps; ++i) all_layers();
  TRY(backend_.finish(nullptr, {}));
  return milliseconds_since(begin_us) / steps;
}

Result<double> StepBench::time(const StepWork& work, int32_t steps) {
  switch (work.kind) {
    case StepWork::Kind::decode: return decode(work, steps);
    case StepWork::Kind::prompt: return prompt(work);
    case StepWork::Kind::attention: return attention(work, steps);
  }
  return internal_error("no such work");
}

Result<StepTime> StepBench::run(const StepWork& work, int32_t steps) {
  executor_.set_unfused(work.unfused);
  const uint64_t bytes_before = executor_.unfused_extra_bytes();
  const int64_t launched_before = launched_;
  TRY_ASSIGN(const double ms, time(work, steps));
  if (!work.unfused) return StepTime{.ms = ms};
  const auto bytes = static_cast<double>(executor_.unfused_extra_bytes() - bytes_before), launched = static_cast<double>(launched_ - launched_before);
  return StepTime{.ms = ms, .extra_bytes = bytes / launched};
}

}  // namespace quintet
