// Steps, and what becomes of the sequences between them.
#include "engine/loop.h"

#include <algorithm>

#include "backend/sampler.h"
#include "base/check.h"

namespace quintet {
namespace {

BatchLimits batch_limits(const LoopOptions& options, const Scheduler& scheduler) {
  return {.rows = scheduler.max_rows(),
          .seqs = options.limits.sequences,
          .logit_rows = options.limits.sequences,
          .context = options.limits.context,
          .block_tokens = options.kv.page.tokens};
}

Scheduler make_scheduler(const LoopOptions& options) {
  return Scheduler({.sequences = options.limits.sequences,
                    .step_tokens = options.step_tokens,
                    .block_tokens = options.kv.page.tokens,
                    .batch_patience_us = options.batch_patience_us});
}

bool goes_before(const Sequence* a, const Sequence* b) {
  return a->priority_us != b->priority_us ? a->priority_us < b->priority_us : a->order < b->order;
}

void insert_by_priority(std::vector<Sequence*>& list, Sequence* sequence) {
  list.insert(std::ranges::upper_bound(list, sequence, goes_before), sequence);
}

bool is_stop(const Request& request, TokenId token) {
  return !request.ignore_eos && std::ranges::find(request.stop_ids, token) != request.stop_ids.end();
}

}  // namespace

Result<std::unique_ptr<Loop>> Loop::make(Executor& executor, LoopOptions options) {
  TRY_ASSIGN(auto staging, BatchBuilder::allocate(executor, batch_limits(options, make_scheduler(options))));
  return std::unique_ptr<Loop>(new Loop(executor, std::move(options), std::move(staging)));
}

Loop::Loop(Executor& executor, LoopOptions options, BatchBuilder::Staging staging)
    : executor_(executor),
      options_(std::move(options)),
      scheduler_(make_scheduler(options_)),
      cache_(options_.kv, options_.numerics_id),
      builder_(batch_limits(options_, scheduler_), std::move(staging)) {
  const EngineLimits& limits = options_.limits;
  QUINTET_CHECK(options_.kv.pages * options_.kv.page.tokens >= limits.context,
                "{} pages cannot hold {} tokens", options_.kv.pages, limits.context);
  const size_t running = static_cast<size_t>(limits.sequences);
  running_.reserve(running);
  waiting_.reserve(running + static_cast<size_t>(limits.waiting));
  plan_.preempt.reserve(running);
  plan_.admit.reserve(running);
  plan_.items.reserve(running);
  running_states_.reserve(running);
  waiting_states_.reserve(running + 1);
  planned_.reserve(2 * running + 1);
  items_.reserve(running);
  step_.items.reserve(running);
  chained_.items.reserve(running);
  sampled_.resize(running);
  alternatives_.resize(running * kAlternatives);
}

void Loop::submit(Request request, std::vector<TokenEvent>& events) {
  auto owned = std::make_unique<Sequence>();
  Sequence& sequence = *owned;
  const int64_t now_us = options_.clock_us();
  const int32_t context = options_.limits.context;
  sequence.prompt_tokens = static_cast<int32_t>(request.prompt.size());
  sequence.max_tokens =
      request.max_new_tokens > 0
          ? std::min(context - sequence.prompt_tokens, request.max_new_tokens) + sequence.prompt_tokens
          : context;
  sequence.tokens = std::move(request.prompt);
  sequence.tokens.reserve(static_cast<size_t>(sequence.max_tokens));
  sequence.tokens.insert(sequence.tokens.end(), request.generated.begin(), request.generated.end());
  request.prompt = {};
  request.generated = {};
  const size_t max_blocks = static_cast<size_t>(sequence.max_tokens / cache_.block_tokens() + 1);
  sequence.blocks.reserve(max_blocks);
  sequence.hits.reserve(max_blocks);
  if (request.arrival_us == 0) request.arrival_us = now_us;
  sequence.submitted_us = now_us;
  sequence.priority_us = scheduler_.priority_us(request.cls, request.arrival_us);
  sequence.order = submitted_++;
  sequence.space = cache_.index().open_space(request.salt);
  const RequestId id = request.id;
  sequence.request = std::move(request);
  const bool added = sequences_.emplace(id, std::move(owned)).second;
  QUINTET_CHECK(added, "request {} is here already", id);
  insert_by_priority(waiting_, &sequence);
  if (sequence.generated_tokens() > 0 && is_stop(sequence.request, sequence.tokens.back()))
    finish(sequence, {}, FinishReason::stop, events);
  else if (sequence.known_tokens() >= sequence.max_tokens)
    finish(sequence, {}, FinishReason::length, events);
}

void Loop::cancel(RequestId id, const std::string& why, std::vector<TokenEvent>& events) {
  const auto found = sequences_.find(id);
  if (found == sequences_.end()) return;
  finish(*found->second, {.message = why}, FinishReason::cancelled, events);
}

Status Loop::step(std::vector<TokenEvent>& events) {
  if (idle()) return {};
  Status status;
  if (!step_.in_flight()) {
    make_plan();
    QUINTET_CHECK(!plan_.items.empty(),
                  "nothing can run of {} running and {} waiting, with {} blocks available", running_.size(),
                  waiting_.size(), cache_.available_blocks());
    apply_plan(options_.clock_us());
    status = launch_plan();
  }
  if (status && can_chain()) status = launch_chained();
  if (status) status = wait(events);
  if (!status) fail_all(status.error().message, events);
  return status;
}

/// Learns how fast prompts go. Steps of few rows are left out: their time is that of reading the weights.
void Loop::measure(const LaunchedStep& step, int64_t end_us) {
  constexpr int32_t kFewRows = 16;
  const int64_t step_us = end_us - step.begin_us;
  if (step_us <= 0 || step.rows < kFewRows) return;
  const double rows_per_s = step.rows * 1e6 / static_cast<double>(step_us);
  rows_per_s_ = rows_per_s_ == 0 ? rows_per_s : 0.75 * rows_per_s_ + 0.25 * rows_per_s;
}

SequenceState Loop::state_of(const Sequence& sequence) const {
  return {.cls = sequence.request.cls,
          .known_tokens = sequence.known_tokens(),
          .computed_tokens = sequence.computed_tokens,
          .priority_us = sequence.priority_us,
          .order = sequence.order};
}

void Loop::make_plan() {
  planned_.clear();
  running_states_.clear();
  waiting_states_.clear();
  // What preempting would gain is of interest only where this step may run short.
  const bool scarce =
      !waiting_.empty() || cache_.available_blocks() < scheduler_.max_rows() + options_.limits.sequences;
  for (Sequence* sequence : running_) {
    SequenceState state = state_of(*sequence);
    state.held_blocks = static_cast<int64_t>(sequence->blocks.size());
    if (scarce) state.releasable_blocks = cache_.releasable(sequence->blocks);
    running_states_.push_back(state);
    planned_.push_back(sequence);
  }
  // No step admits more than there are places.
  for (size_t i = 0; i < waiting_.size() && i < static_cast<size_t>(options_.limits.sequences); ++i) {
    Sequence& sequence = *waiting_[i];
    if (sequence.hits_version != cache_.index().version()) {
      // The last known token is always computed: its logits are what the next one comes from.
      cache_.index().find(sequence.space, {sequence.tokens.data(), sequence.tokens.size() - 1},
                          sequence.hits);
      sequence.hits_version = cache_.index().version();
    }
    SequenceState state = state_of(sequence);
    state.computed_tokens = static_cast<int32_t>(sequence.hits.size()) * cache_.block_tokens();
    state.idle_hit_blocks = cache_.idle_among(sequence.hits);
    waiting_states_.push_back(state);
    planned_.push_back(&sequence);
  }
  scheduler_.plan({.running = running_states_,
                   .waiting = waiting_states_,
                   .available_blocks = cache_.available_blocks(),
                   .rows_per_s = rows_per_s_},
                  plan_);
}

void Loop::preempt(Sequence& sequence) {
  cache_.release(sequence.blocks);
  sequence.blocks.clear();
  sequence.computed_tokens = 0;
  sequence.published_blocks = 0;
  std::erase(running_, &sequence);
  insert_by_priority(waiting_, &sequence);
  ++preemptions_;
}

void Loop::apply_plan(int64_t now_us) {
  const size_t waiting_from = running_states_.size();
  for (uint32_t index : plan_.preempt) preempt(planned(index));
  // Found blocks are held before anything is allocated, since allocation may evict.
  for (uint32_t index : plan_.admit) {
    Sequence& sequence = planned(static_cast<uint32_t>(waiting_from + index));
    cache_.hold(sequence.hits);
    sequence.blocks = sequence.hits;
    sequence.published_blocks = static_cast<int32_t>(sequence.hits.size());
    sequence.computed_tokens = sequence.published_blocks * cache_.block_tokens();
    if (sequence.cached_tokens < 0) {
      sequence.cached_tokens = std::min(sequence.computed_tokens, sequence.prompt_tokens);
      sequence.first_step_us = now_us;
    }
    std::erase(waiting_, &sequence);
    insert_by_priority(running_, &sequence);
  }
  for (const PlanItem& item : plan_.items) {
    add_blocks(planned(item.sequence), item.first + item.tokens);
  }
}

/// Blocks for the first `tokens` positions.
void Loop::add_blocks(Sequence& sequence, int32_t tokens) {
  while (static_cast<int64_t>(sequence.blocks.size()) * cache_.block_tokens() < tokens) {
    const BlockId block = cache_.allocate();
    QUINTET_CHECK(block != kNoBlock, "the plan promised a block that is not there");
    sequence.blocks.push_back(block);
  }
}

Status Loop::launch_plan() {
  items_.clear();
  for (const PlanItem& item : plan_.items) {
    Sequence& sequence = planned(item.sequence);
    items_.push_back({.sequence = &sequence,
                      .first = item.first,
                      .tokens = item.tokens,
                      .logit_rows = item.sample ? 1 : 0});
    step_.items.push_back({.sequence = &sequence, .first = item.first, .tokens = item.tokens});
  }
  return launch(step_);
}

/// Whether the step after the one in flight is known but for the tokens that this one samples: another token for
/// each stream, nobody comes or gives way. Alternatives are read from where the next step writes its own.
bool Loop::can_chain() const {
  if (!options_.chain_steps || chained_.in_flight() || !waiting_.empty()) return false;
  size_t sampling = 0, going_on = 0;
  int64_t blocks = 0;
  for (const LaunchedItem& item : step_.items) {
    if (!item.sequence) continue;
    const Sequence& sequence = *item.sequence;
    const SampleParams& params = sequence.request.sampling;
    if (item.logit_row < 0 || params.logprobs > 0) return false;
    ++sampling;
    if (sequence.known_tokens() + 1 >= sequence.max_tokens) continue;
    ++going_on;
    blocks += (sequence.known_tokens() + cache_.block_tokens()) / cache_.block_tokens() -
              static_cast<int64_t>(sequence.blocks.size());
  }
  return going_on > 0 && sampling == running_.size() && blocks <= cache_.available_blocks();
}

/// The next token of every stream that this step does not end for sure. One that ends by a stop token has computed
/// a row in vain; what it held may be given to others at once, since the device runs steps in the order of their
/// launches.
Status Loop::launch_chained() {
  items_.clear();
  for (const LaunchedItem& item : step_.items) {
    if (!item.sequence) continue;
    Sequence& sequence = *item.sequence;
    const int32_t first = sequence.known_tokens();
    if (first + 1 >= sequence.max_tokens) continue;
    add_blocks(sequence, first + 1);
    items_.push_back({.sequence = &sequence, .first = first, .tokens = 1, .logit_rows = 1, .prev_logit_row = item.logit_row});
    chained_.items.push_back({.sequence = &sequence, .first = first, .tokens = 1});
  }
  return launch(chained_);
}

/// Launches `items_`, which `step.items` repeats.
Status Loop::launch(LaunchedStep& step) {
  step.rows = step.logit_rows = 0;
  for (size_t i = 0; i < items_.size(); ++i) {
    step.rows += items_[i].tokens;
    step.items[i].logit_row = items_[i].logit_rows > 0 ? step.logit_rows++ : -1;
  }
  step.begin_us = options_.clock_us();
  return executor_.launch(builder_.build(items_, cache_.residency()));
}

Status Loop::wait(std::vector<TokenEvent>& events) {
  const size_t count = static_cast<size_t>(step_.logit_rows);
  TRY(executor_.wait({sampled_.data(), count}, {alternatives_.data(), count * kAlternatives}));
  ++stats_.steps;
  const int64_t end_us = options_.clock_us();
  measure(step_, end_us);
  commit(end_us, events);
  step_.items.clear();
  std::swap(step_, chained_);
  step_.begin_us = end_us;  // before that the device was at the step before
  return {};
}

void Loop::commit(int64_t now_us, std::vector<TokenEvent>& events) {
  // By index: a sequence that ends is struck out.
  for (size_t i = 0; i < step_.items.size(); ++i)
    if (step_.items[i].sequence) commit_item(step_.items[i], now_us, events);
}

void Loop::commit_item(const LaunchedItem& item, int64_t now_us, std::vector<TokenEvent>& events) {
  Sequence& sequence = *item.sequence;
  const Sampled* sampled = item.logit_row < 0 ? nullptr : &sampled_[static_cast<size_t>(item.logit_row)];
  const int32_t prompt_end = std::min(item.first + item.tokens, sequence.prompt_tokens);
  stats_.prompt_tokens += static_cast<uint64_t>(std::max(0, prompt_end - item.first));
  if (sampled && sampled->status != 0) {
    finish(
        sequence,
        {.message = fmt::format("the model's logits at position {} are not finite", sequence.known_tokens())},
        FinishReason::error, events);
    return;
  }
  sequence.computed_tokens = item.first + item.tokens;
  publish_blocks(sequence);
  if (!sampled) return;
  if (is_stop(sequence.request, sampled->token)) {
    finish(sequence, {}, FinishReason::stop, events);
    return;
  }
  TokenEvent event{.id = sequence.request.id,
                   .index = sequence.generated_tokens(),
                   .token = sampled->token,
                   .logprob = sampled->logprob};
  add_alternatives(sequence, static_cast<size_t>(sampled - sampled_.data()), event);
  sequence.tokens.push_back(sampled->token);
  ++stats_.generated_tokens;
  if (sequence.first_token_us == 0) sequence.first_token_us = now_us;
  sequence.last_token_us = now_us;
  if (sequence.known_tokens() >= sequence.max_tokens)
    finish(sequence, std::move(event), FinishReason::length, events);
  else
    events.push_back(std::move(event));
}

void Loop::add_alternatives(const Sequence& sequence, size_t logit_row, TokenEvent& event) const {
  for (size_t i = 0; i < static_cast<size_t>(sequence.request.sampling.logprobs); ++i) {
    const Alternative& alternative = alternatives_[logit_row * kAlternatives + i];
    if (alternative.token >= 0) event.alternatives.push_back(alternative);
  }
}

void Loop::publish_blocks(Sequence& sequence) {
  const int32_t block_tokens = cache_.block_tokens();
  while ((sequence.published_blocks + 1) * block_tokens <= sequence.computed_tokens) {
    const size_t i = static_cast<size_t>(sequence.published_blocks);
    const BlockId parent = i == 0 ? kNoBlock : sequence.blocks[i - 1];
    sequence.blocks[i] = cache_.publish(
        sequence.space, parent,
        {sequence.tokens.data() + i * static_cast<size_t>(block_tokens), static_cast<size_t>(block_tokens)},
        sequence.blocks[i]);
    ++sequence.published_blocks;
  }
}

/// Ends a sequence; `event` is its last token or empty.
void Loop::finish(Sequence& sequence, TokenEvent event, FinishReason reason,
                  std::vector<TokenEvent>& events) {
  const auto span_us = [](int64_t from, int64_t to) { return from > 0 && to > 0 ? to - from : 0; };
  event.id = sequence.request.id;
  if (event.token < 0) event.index = sequence.generated_tokens();
  event.finish = reason;
  event.usage = {
      .prompt_tokens = sequence.prompt_tokens,
      .completion_tokens = sequence.generated_tokens(),
      .cached_tokens = std::max(0, sequence.cached_tokens),
      .queue_us = span_us(sequence.submitted_us,
                          sequence.first_step_us > 0 ? sequence.first_step_us : options_.clock_us()),
      .prefill_us = span_us(sequence.first_step_us, sequence.first_token_us),
      .decode_us = span_us(sequence.first_token_us, sequence.last_token_us)};
  events.push_back(std::move(event));
  cache_.release(sequence.blocks);
  cache_.index().close_space(sequence.space);
  std::erase(running_, &sequence);
  std::erase(waiting_, &sequence);
  for (LaunchedStep* step : {&step_, &chained_})
    for (LaunchedItem& item : step->items)
      if (item.sequence == &sequence) item.sequence = nullptr;
  const RequestId id = sequence.request.id;
  sequences_.erase(id);
}

void Loop::fail_all(const std::string& message, std::vector<TokenEvent>& events) {
  step_.items.clear();
  chained_.items.clear();
  while (!sequences_.empty())
    finish(*sequences_.begin()->second, {.message = message}, FinishReason::error, events);
}

EngineStats Loop::stats() const {
  EngineStats stats = stats_;
  stats.running = static_cast<int32_t>(running_.size());
  stats.waiting = static_cast<int32_t>(waiting_.size());
  stats.kv_blocks_free = cache_.available_blocks();
  stats.kv_blocks_total = cache_.total_blocks();
  return stats;
}

}  // namespace quintet
