// Starting an engine on a real model, and logits without one.
#include <algorithm>
#include <numeric>

#include "base/log.h"
#include "base/units.h"
#include "engine/local_engine.h"
#include "engine/model_executor.h"
#include "plan/memory_plan.h"

namespace quintet {
namespace {

Status check_range(std::string_view name, int64_t found, int64_t min, int64_t max) {
  if (found >= min && found <= max) return {};
  return bad_input(fmt::format("{}: found {}, allowed are {} to {}", name, found, min, max));
}

Status check_options(const EngineOptions& options) {
  TRY(check_range("sequences", options.sequences, 1, 1024));
  TRY(check_range("waiting", options.waiting, 1, 1 << 20));
  TRY(check_range("step_tokens", options.step_tokens, 1, 1 << 16));
  TRY(check_range("block_tokens", options.block_tokens, 1, 1024));
  return check_range("unread_events", options.unread_events, 1, INT32_MAX);
}

using LogitsSink = std::function<Status(int32_t first, int32_t rows, const float* logits)>;

/// A model on a backend with what steps of one sequence take.
class PromptRunner {
 public:
  /// `chunk` tokens a step of sequences of up to `context`; logits of each, or of none.
  static Result<PromptRunner> make(Backend& backend, const Model& model, int32_t context, int32_t chunk, bool logits, bool unfused) {
    const ModelConfig& config = model.config;
    const int32_t logit_rows = logits ? chunk : 1;
    const PageClass page = backend.page_class(config.layers, config.kv_heads, config.head_dim, 16);
    const int64_t pages = (int64_t{context} + page.tokens - 1) / page.tokens;
    TRY_ASSIGN(
        ModelExecutor executor,
        ModelExecutor::make(backend, model,
                            {.limits = {.rows = chunk, .seqs = 1, .logit_rows = logit_rows, .context = context, .unfused = unfused},
                             .page = page,
                             .pages = pages}));
    executor.set_unfused(unfused);
    const BatchLimits limits{
        .rows = chunk, .seqs = 1, .logit_rows = logit_rows, .context = context, .block_tokens = page.tokens};
    TRY_ASSIGN(auto staging, BatchBuilder::allocate(executor, limits));
    return PromptRunner(std::move(executor), BatchBuilder(limits, std::move(staging)), Residency({.page = page, .pages = pages}),
                        {.chunk = chunk, .pages = pages, .vocabulary = config.vocabulary});
  }

  /// The forward pass over `tokens` in chunks; with a sink also the head, whose logits it gets.
  Status run(const std::vector<TokenId>& tokens, const LogitsSink& sink) {
    const auto context = static_cast<int32_t>(tokens.size());
    Sequence sequence;
    sequence.tokens = tokens;
    sequence.prompt_tokens = context;
    sequence.blocks.resize(static_cast<size_t>(shape_.pages));
    std::iota(sequence.blocks.begin(), sequence.blocks.end(), BlockId{0});
    const auto vocabulary = static_cast<size_t>(shape_.vocabulary);
    std::vector<float> logits(sink ? static_cast<size_t>(shape_.chunk) * vocabulary : 0);
    for (int32_t first = 0; first < context; first += shape_.chunk) {
      const int32_t rows = std::min(shape_.chunk, context - first);
      const BatchItem item{
          .sequence = &sequence, .first = first, .tokens = rows, .logit_rows = sink ? rows : 0};
      const size_t wanted = sink ? static_cast<size_t>(rows) * vocabulary : 0;
      TRY(executor_.logits(builder_.build({&item, 1}, residency_), {logits.data(), wanted}));
      if (sink) TRY(sink(first, rows, logits.data()));
    }
    return {};
  }

 private:
  struct Shape {
    int32_t chunk = 0;
    int64_t pages = 0;
    int32_t vocabulary = 0;
  };
  PromptRunner(ModelExecutor executor, BatchBuilder builder, Residency residency, const Shape& shape)
      : executor_(std::move(executor)), builder_(std::move(builder)), residency_(std::move(residency)), shape_(shape) {}

  ModelExecutor executor_;
  BatchBuilder builder_;
  Residency residency_;
  Shape shape_;
};

Status check_prompt(const ModelConfig& config, const std::vector<TokenId>& tokens, int32_t chunk_tokens) {
  if (tokens.empty()) return bad_input("tokens: found none, allowed are 1 and more");
  TRY(check_range("chunk_tokens", chunk_tokens, 1, 1 << 16));
  for (TokenId token : tokens) TRY(check_range("token", token, 0, config.vocabulary - 1));
  return {};
}

}  // namespace

Result<MemoryPlan> plan_engine(const Backend& backend, const ModelNeeds& needs, bool weights_are_loaded,
                               const EngineOptions& options) {
  TRY(check_options(options));
  const BackendInfo info = backend.info();
  const ModelConfig& config = needs.config;
  return plan_memory(
      {.config = config,
       .activation = info.activation,
       .page = backend.page_class(config.layers, config.kv_heads, config.head_dim, options.block_tokens),
       .weights_bytes = needs.weights_bytes,
       .weights_are_loaded = weights_are_loaded,
       .free_bytes = info.free_bytes,
       .context = options.context,
       .sequences = options.sequences,
       .kv_tokens = options.kv_tokens,
       .step_tokens = options.step_tokens,
       .unfused = options.unfused,
       .scratch_bytes = [&](const StepLimits& limits) { return backend.scratch_bytes(limits); }});
}

Result<std::unique_ptr<EngineClient>> start_engine(Backend& backend, const Model& model,
                                                   const EngineOptions& options) {
  const ModelConfig& config = model.config;
  TRY_ASSIGN(const MemoryPlan plan, plan_engine(backend, {.config = config, .weights_bytes = model.weights.bytes},
                                                /*weights_are_loaded=*/true, options));
  const PageClass page =
      backend.page_class(config.layers, config.kv_heads, config.head_dim, options.block_tokens);
  LOG_DEBUG("memory: {}", plan.sum());

  TRY_ASSIGN(ModelExecutor executor,
             ModelExecutor::make(backend, model,
                                 {.limits = plan.workspace_limits, .page = page, .pages = plan.kv_blocks}));
  executor.set_unfused(options.unfused);
  if (!options.unfused) TRY(executor.prepare());
  LocalEngine::Options local{.loop = {.limits = {.context = plan.context,
                                                 .sequences = options.sequences,
                                                 .waiting = options.waiting,
                                                 .kv_tokens = plan.kv_blocks * page.tokens},
                                      .step_tokens = options.step_tokens,
                                      .chain_steps = backend.info().asynchronous,
                                      .kv = {.page = page, .pages = plan.kv_blocks},
                                      .numerics_id = backend.numerics().id(),
                                      .clock_us = now_us},
                             .vocabulary = config.vocabulary,
                             .unread_events = options.unread_events};
  TRY_ASSIGN(auto engine,
             LocalEngine::start(std::make_unique<ModelExecutor>(std::move(executor)), std::move(local)));
  return std::unique_ptr<EngineClient>(std::move(engine));
}

Status prompt_logits(Backend& backend, const Model& model, const std::vector<TokenId>& tokens,
                     int32_t chunk_tokens,
                     const std::function<Status(int32_t first, int32_t rows, const float* logits)>& sink, bool unfused) {
  TRY(check_prompt(model.config, tokens, chunk_tokens));
  const auto context = static_cast<int32_t>(tokens.size());
  // Logits of a whole chunk may be larger than the model: a bounded piece at a time, which changes no bits.
  constexpr int64_t kLogitsBytes = 64 << 20;
  const int64_t row_bytes = int64_t{model.config.vocabulary} * static_cast<int64_t>(sizeof(float));
  const auto chunk = static_cast<int32_t>(
      std::min<int64_t>(std::max<int64_t>(kLogitsBytes / row_bytes, 1), std::min(chunk_tokens, context)));
  TRY_ASSIGN(PromptRunner runner, PromptRunner::make(backend, model, context, chunk, true, unfused));
  return runner.run(tokens, sink);
}

Status prompt_passes(Backend& backend, const Model& model, std::span<const std::vector<TokenId>> sequences, int32_t chunk_tokens,
                     const std::function<Status()>& behind_each) {
  int32_t context = 0;
  for (const std::vector<TokenId>& tokens : sequences) {
    TRY(check_prompt(model.config, tokens, chunk_tokens));
    context = std::max(context, static_cast<int32_t>(tokens.size()));
  }
  if (context == 0) return {};
  TRY_ASSIGN(PromptRunner runner, PromptRunner::make(backend, model, context, std::min(chunk_tokens, context), false, false));
  for (const std::vector<TokenId>& tokens : sequences) {
    TRY(runner.run(tokens, nullptr));
    if (behind_each) TRY(behind_each());
  }
  return {};
}

}  // namespace quintet
