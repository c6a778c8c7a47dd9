// What a client asks of the engine and what it hears back: plain data, fit to cross a process boundary.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/step_view.h"
#include "base/ids.h"

namespace quintet {

enum class RequestClass : uint8_t { interactive, batch };

struct LogitBias {
  TokenId token;
  float value;
};

/// Resuming is submitting with `generated` filled.
struct Request {
  RequestId id = 0;
  std::vector<TokenId> prompt;
  std::vector<TokenId> generated;  ///< tokens that were already produced and delivered
  uint64_t seed = 0;
  RequestClass cls = RequestClass::interactive;
  std::string salt;               ///< separates prefix caches of tenants
  int64_t arrival_us = 0;         ///< 0: the engine's clock at submit
  int32_t max_new_tokens = 0;     ///< `generated` included; 0: until the context is full
  std::vector<TokenId> stop_ids;  ///< stop strings live in the front
  bool ignore_eos = false;        ///< stop_ids are ignored (benchmarks)
  SampleParams sampling;          ///< seed, position and ranges are filled by the engine
  int32_t penalty_window = 64;    ///< last tokens that penalties count; -1: all
  std::vector<LogitBias> bias;
};

enum class FinishReason : uint8_t { none, stop, length, cancelled, error };

struct Usage {
  int32_t prompt_tokens = 0;
  int32_t completion_tokens = 0;
  int32_t cached_tokens = 0;  ///< of the prompt, found in the prefix index
  int64_t queue_us = 0;       ///< submit to first step
  int64_t prefill_us = 0;     ///< first step to first token
  int64_t decode_us = 0;      ///< first token to last
};

/// One token, or the end, of a request. `index` counts generated tokens from 0: after a resume it tells
/// duplicates. The stop id itself is no part of the answer: the event that ends with it has no token.
struct TokenEvent {
  RequestId id = 0;
  int32_t index = 0;
  TokenId token = -1;  ///< -1: no token in this event
  float logprob = 0;
  std::vector<Alternative> alternatives;
  FinishReason finish = FinishReason::none;
  Usage usage;          ///< valid where finish is not none
  std::string message;  ///< why, where finish is error, or cancelled by the engine itself
};

}  // namespace quintet
