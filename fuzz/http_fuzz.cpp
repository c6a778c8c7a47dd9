// Any bytes as an HTTP request, its body as a request of either endpoint: a refusal that names why, or
// checked settings. The first byte says in what pieces the others come: the verdict must not depend on it.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/check.h"
#include "sampling/params.h"
#include "server/http.h"
#include "server/openai.h"

using namespace quintet;

namespace {

const RequestRules kRules{.vocabulary = 1000, .json = {.depth = 16, .values = 4096}};

void check_settings(const GenerationSettings& settings) {
  QUINTET_CHECK(!settings.max_tokens || *settings.max_tokens > 0);
  QUINTET_CHECK(settings.stop.size() <= kMaxApiStops && check_stop_strings(settings.stop));
  QUINTET_CHECK(settings.top_logprobs >= 0 && settings.top_logprobs <= kMaxTopLogprobs);
  for (const LogitBias& bias : settings.bias)
    QUINTET_CHECK(bias.token >= 0 && bias.token < kRules.vocabulary);
  SampleParams params;
  params.temperature = settings.temperature.value_or(1);
  params.top_k = settings.top_k.value_or(0);
  params.top_p = settings.top_p.value_or(1);
  params.min_p = settings.min_p.value_or(0);
  params.repeat_penalty = settings.repeat_penalty.value_or(1);
  params.presence_penalty = settings.presence_penalty;
  params.frequency_penalty = settings.frequency_penalty;
  params.logprobs = settings.top_logprobs;
  QUINTET_CHECK(check_sampling(params), "what is let through suits the engine");
}

void check_error(const ApiError& error) {
  QUINTET_CHECK(error.status == 400 && !error.message.empty() && error.message.size() < 1000, "{}",
                error.message);
  QUINTET_CHECK(nlohmann::json::accept(error_json(error)));
}

void parse_bodies(std::string_view body) {
  if (const auto chat = parse_chat_request(body, kRules)) {
    check_settings(chat->settings);
    const auto messages = nlohmann::json::parse(chat->messages_json, nullptr, false);
    QUINTET_CHECK(messages.is_array() && !messages.empty());
    QUINTET_CHECK(chat->tools_json.empty() || nlohmann::json::accept(chat->tools_json));
    QUINTET_CHECK(chat->extra_json.empty() || nlohmann::json::accept(chat->extra_json));
  } else {
    check_error(chat.error());
  }
  if (const auto completion = parse_completion_request(body, kRules)) {
    check_settings(completion->settings);
    if (completion->prompt_tokens)
      for (const TokenId token : *completion->prompt_tokens)
        QUINTET_CHECK(token >= 0 && token < kRules.vocabulary);
  } else {
    check_error(completion.error());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  ServerLimits limits;
  limits.max_header_bytes = 1000;
  limits.max_body_bytes = 4000;
  const HttpParse whole = parse_http_request(bytes, limits);
  const HttpParse cut = parse_http_request(bytes, limits, static_cast<size_t>(data[0] % 16) + 1);
  QUINTET_CHECK(whole.used_bytes <= bytes.size() && whole.request.body.size() <= limits.max_body_bytes);
  // Broken headers may be found out only when their end comes.
  QUINTET_CHECK(cut.status == whole.status || (cut.status == 100 && whole.status >= 400) ||
                    (cut.status >= 400 && whole.status >= 400),
                "{} in pieces, {} at once", cut.status, whole.status);
  QUINTET_CHECK(cut.request.body == whole.request.body);
  (void)whole.request.header("content-type");
  parse_bodies(whole.status == 0 ? std::string_view(whole.request.body) : bytes);
  return 0;
}
