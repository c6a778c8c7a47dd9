// The one memory budget, made at start: weights, workspace, and the rest is the KV cache.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "backend/step_view.h"
#include "base/result.h"
#include "model/config.h"
#include "model/decoder.h"

namespace quintet {

/// What must fit where. 0 means: choose.
struct MemoryQuestion {
  const ModelConfig& config;
  DType activation = DType::f32;
  PageClass page;  ///< the backend's, for this model
  uint64_t weights_bytes = 0;
  bool weights_are_loaded = true;  ///< free_bytes is what is left beside them
  uint64_t free_bytes = 0;         ///< 0: not known, taken for enough
  int32_t context = 0;             ///< 0: the model's, or less where memory is short
  int32_t sequences = 1;
  int64_t kv_tokens = 0;  ///< 0: `sequences` of 4096 tokens or one full context, as memory allows
  int32_t step_tokens = 512;
  bool unfused = false;  ///< WorkspaceLimits::unfused
  /// Of the backend's own buffers (Backend::scratch_bytes), counted as workspace; null: none.
  std::function<Result<uint64_t>(const StepLimits& limits)> scratch_bytes;
};

/// What was chosen and what it takes.
struct MemoryPlan {
  uint64_t weights_bytes = 0;
  uint64_t workspace_bytes = 0;
  uint64_t kv_bytes = 0;
  uint64_t free_bytes = 0;  ///< as asked
  int64_t kv_blocks = 0;
  int32_t context = 0;
  int32_t block_tokens = 0;
  double token_bytes = 0;  ///< of keys and values
  WorkspaceLimits workspace_limits;

  /// "weights 93.8 MiB + workspace 12.1 MiB + KV cache 720.0 MiB (65536 tokens of 11.2 KiB) = 825.9 MiB"
  std::string sum() const;
};

/// bad_input where a wish lies outside its range; no_room, with the sum, where it does not fit.
Result<MemoryPlan> plan_memory(const MemoryQuestion& question);

}  // namespace quintet
