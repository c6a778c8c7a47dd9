// From the JSON of OpenAI's requests to checked, plain settings: pure functions, one error that names the
// field.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "engine/request.h"
#include "server/errors.h"
#include "server/json_reader.h"

namespace quintet {

/// What a request is checked against, beside the API itself.
struct RequestRules {
  int32_t vocabulary = 0;  ///< token ids of prompts and biases lie below it
  JsonLimits json;
};

inline constexpr size_t kMaxApiStops = 4;  ///< OpenAI's limit
inline constexpr int32_t kMaxTopLogprobs = 20;

/// What both endpoints take. Absent settings fall back to the model's own defaults.
struct GenerationSettings {
  std::string model;  ///< empty: the one that is served
  bool stream = false;
  bool include_usage = false;  ///< a last chunk of a stream with the usage
  std::optional<int32_t> max_tokens;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::optional<float> temperature, top_p, min_p, repeat_penalty;
  std::optional<int32_t> top_k;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  std::vector<LogitBias> bias;
  bool logprobs = false;
  int32_t top_logprobs = 0;  ///< alternatives beside the token that was chosen
  bool ignore_eos = false;
};

struct ChatRequest {
  GenerationSettings settings;
  std::string messages_json;  ///< as templates expect it: contents are strings, arguments are objects
  std::string tools_json;     ///< a list, or empty
  std::string extra_json;     ///< an object of further template variables, or empty
};

struct CompletionRequest {
  GenerationSettings settings;
  std::string prompt;  ///< text, where `prompt_tokens` is not given
  std::optional<std::vector<TokenId>> prompt_tokens;
};

/// The body of POST /v1/chat/completions.
ApiResult<ChatRequest> parse_chat_request(std::string_view body, const RequestRules& rules);
/// The body of POST /v1/completions.
ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const RequestRules& rules);

}  // namespace quintet
