// The one door to an engine, in process or over shared memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/request.h"
#include "model/model.h"
#include "plan/memory_plan.h"

namespace quintet {

struct EngineLimits {
  int32_t context = 0;    ///< tokens of one sequence, prompt and answer
  int32_t sequences = 0;  ///< running at once
  int32_t waiting = 0;    ///< queued at most
  int64_t kv_tokens = 0;  ///< room in the cache over all sequences
};

struct EngineStats {
  int32_t running = 0, waiting = 0;
  int64_t kv_blocks_free = 0, kv_blocks_total = 0;
  uint64_t steps = 0, prompt_tokens = 0, generated_tokens = 0;
};

/// Thread-safe: submit and cancel from any thread, poll from one.
class EngineClient {
 public:
  virtual ~EngineClient() = default;
  /// bad_input where the request can never run (empty prompt, longer than the context, token out of the
  /// vocabulary); no_room where the queue is full: `waiting` + `sequences` requests whose last event was not
  /// polled yet.
  virtual Status submit(Request request) = 0;
  /// Idempotent; the request ends with FinishReason::cancelled.
  virtual void cancel(RequestId id) = 0;
  /// Events since the last call, waiting at most `timeout_us` for the first.
  virtual std::vector<TokenEvent> poll(int64_t timeout_us) = 0;
  virtual EngineLimits limits() const = 0;
  virtual EngineStats stats() const = 0;
};

struct EngineOptions {
  int32_t context = 0;  ///< tokens of one sequence; 0: what the model allows, capped by memory
  int32_t sequences = 16;
  int32_t waiting = 256;
  int64_t kv_tokens = 0;  ///< 0: room for `sequences` of 4096 tokens or one full context, as memory allows
  int32_t step_tokens = 512;  ///< longest chunk of a prompt; shorter beside streams and on slow machines
  int32_t block_tokens = 16;
  bool unfused = false;  ///< steps through UnfusedOps: slower, to compare with
  int32_t unread_events = 2048;  ///< of a request: with so many its reader is gone, and it is cancelled
};

/// The memory that start_engine() would take, or took: no_room, with the sum, where it does not fit beside weights of so
/// many bytes; bad_input where the backend's operations do not take the model.
Result<MemoryPlan> plan_engine(const Backend& backend, const ModelNeeds& needs, bool weights_are_loaded,
                               const EngineOptions& options);

/// Starts the engine's loop on a thread of its own. Backend and model must outlive it; destroying it cancels
/// what runs.
Result<std::unique_ptr<EngineClient>> start_engine(Backend& backend, const Model& model,
                                                   const EngineOptions& options);

/// Logits of every position of `tokens`, chunk by chunk, without an engine: for --dump-logits and evaluation.
/// `sink(first_position, rows, logits)`: logits [rows, vocabulary] f32, valid during the call. An error from
/// it ends the work after that chunk and is returned. `unfused`: as EngineOptions::unfused.
Status prompt_logits(Backend& backend, const Model& model, const std::vector<TokenId>& tokens,
                     int32_t chunk_tokens,
                     const std::function<Status(int32_t first, int32_t rows, const float* logits)>& sink, bool unfused = false);

/// Sequences in turn, without the head, for a backend that watches what passes through it (compress/observing_backend.h). One
/// workspace serves all: on a device its allocations take longer than a small layer. `behind_each`, where set, is called behind
/// each sequence; an error from it ends the work and is returned.
Status prompt_passes(Backend& backend, const Model& model, std::span<const std::vector<TokenId>> sequences,
                     int32_t chunk_tokens, const std::function<Status()>& behind_each);

}  // namespace quintet
