// Checks requests field by field.
#include "server/openai.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>

#include "sampling/params.h"
#include "server/fields.h"
#include "server/messages.h"
#include "text/template_names.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMaxTemperature = 2, kMaxPenalty = 2;  // OpenAI's
constexpr double kMinRepeatPenalty = 0.01, kMaxRepeatPenalty = 100;
constexpr float kMaxBias = 100;
constexpr size_t kMaxBiasEntries = 1024;  // what the engine takes
constexpr int32_t kMaxTopK = 1 << 30;
constexpr int32_t kDefaultCompletionTokens = 16;  // OpenAI's, of /v1/completions alone

std::optional<float> to_float(std::optional<double> value) {
  return value ? std::optional(static_cast<float>(*value)) : std::nullopt;
}

void read_stop(Fields& fields, std::vector<std::string>& stop) {
  const Json* value = fields.take("stop");
  if (value == nullptr) return;
  if (value->is_string()) {
    stop.push_back(value->get<std::string>());
  } else if (value->is_array()) {
    if (value->size() > kMaxApiStops)
      return fields.fail_value(
          "stop", fmt::format("found {} strings, allowed are at most {}", value->size(), kMaxApiStops));
    for (size_t i = 0; i < value->size(); ++i) {
      if (!(*value)[i].is_string())
        return fields.fail_type(fmt::format("stop[{}]", i), "a string", (*value)[i]);
      stop.push_back((*value)[i].get<std::string>());
    }
  } else {
    return fields.fail_type("stop", "a string or a list of strings", *value);
  }
  if (const Status checked = check_stop_strings(stop); !checked)
    fields.fail_value("stop", checked.error().message);
}

void read_bias(Fields& fields, const RequestRules& rules, std::vector<LogitBias>& bias) {
  const Json* value = fields.take("logit_bias");
  if (value == nullptr) return;
  if (!value->is_object())
    return fields.fail_type("logit_bias", "an object of token ids and numbers", *value);
  if (value->size() > kMaxBiasEntries)
    return fields.fail_value("logit_bias", fmt::format("found {} entries, allowed are at most {}",
                                                       value->size(), kMaxBiasEntries));
  for (const auto& [key, number] : value->items()) {
    const std::string path = fmt::format("logit_bias.{}", quote_text(key));
    TokenId token = -1;
    const auto [end, code] = std::from_chars(key.data(), key.data() + key.size(), token);
    if (code != std::errc() || end != key.data() + key.size() || token < 0 || token >= rules.vocabulary)
      return fields.fail_value(path, fmt::format("found the key '{}', allowed are token ids from 0 to {}",
                                                 quote_text(key), rules.vocabulary - 1));
    if (!number.is_number()) return fields.fail_type(path, "a number", number);
    const float amount = number.get<float>();
    if (!(amount >= -kMaxBias && amount <= kMaxBias))
      return fields.fail_value(path, fmt::format("found {}, allowed are numbers from -{:g} to {:g}",
                                                 quote_json(number), kMaxBias, kMaxBias));
    bias.push_back({token, amount});
  }
  // The text of the same number in two spellings ("7", "07") is the same token twice.
  std::sort(bias.begin(), bias.end(),
            [](const LogitBias& a, const LogitBias& b) { return a.token < b.token; });
  for (size_t i = 1; i < bias.size(); ++i)
    if (bias[i].token == bias[i - 1].token)
      return fields.fail_value("logit_bias",
                               fmt::format("found token {} twice, allowed is once", bias[i].token));
}

void read_stream(Fields& fields, std::optional<ApiError>& error, GenerationSettings& settings) {
  settings.stream = fields.boolean("stream", false);
  const Json* options = fields.take("stream_options");
  if (options == nullptr) return;
  if (!settings.stream)
    return fields.fail_value("stream_options", "found without \"stream\": true, allowed is with it");
  Fields inner(*options, "stream_options", error);
  settings.include_usage = inner.boolean("include_usage", false);
  inner.ignore({"include_obfuscation"});
  inner.finish();
}

/// What both endpoints share, max_tokens and logprobs apart.
void read_common(Fields& fields, std::optional<ApiError>& error, const RequestRules& rules,
                 GenerationSettings& settings) {
  if (auto model = fields.text("model")) settings.model = std::move(*model);
  read_stream(fields, error, settings);
  if (const auto n = fields.integer("n", INT64_MIN, INT64_MAX); n && *n != 1)
    fields.fail_value("n", fmt::format("found {}, allowed is 1: a request has one answer", *n));
  if (const Json* seed = fields.take("seed")) {
    if (seed->is_number_unsigned())
      settings.seed = seed->get<uint64_t>();
    else if (seed->is_number_integer())
      settings.seed = static_cast<uint64_t>(seed->get<int64_t>());
    else
      fields.fail_type("seed", "an integer of at most 64 bits", *seed);
  }
  read_stop(fields, settings.stop);
  settings.temperature = to_float(fields.number("temperature", 0, kMaxTemperature));
  settings.top_p = to_float(fields.number("top_p", 0, 1));
  settings.min_p = to_float(fields.number("min_p", 0, 1));
  settings.repeat_penalty = to_float(fields.number("repeat_penalty", kMinRepeatPenalty, kMaxRepeatPenalty));
  if (const auto same = to_float(fields.number("repetition_penalty", kMinRepeatPenalty, kMaxRepeatPenalty))) {
    if (settings.repeat_penalty && *settings.repeat_penalty != *same)
      fields.fail_value("repetition_penalty", "found beside another repeat_penalty, allowed is one of them");
    settings.repeat_penalty = same;
  }
  if (const auto top_k = fields.integer("top_k", -1, kMaxTopK))
    settings.top_k = std::max<int32_t>(0, static_cast<int32_t>(*top_k));
  settings.presence_penalty =
      to_float(fields.number("presence_penalty", -kMaxPenalty, kMaxPenalty)).value_or(0);
  settings.frequency_penalty =
      to_float(fields.number("frequency_penalty", -kMaxPenalty, kMaxPenalty)).value_or(0);
  read_bias(fields, rules, settings.bias);
  settings.ignore_eos = fields.boolean("ignore_eos", false);
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key",
                 "prompt_cache_retention"});
}

std::optional<int32_t> read_max_tokens(Fields& fields, std::string_view name) {
  const auto value = fields.integer(name, 1, INT32_MAX);
  return value ? std::optional(static_cast<int32_t>(*value)) : std::nullopt;
}

void read_messages(Fields& fields, std::optional<ApiError>& error, const RequestRules& rules,
                   ChatRequest& request) {
  const Json* messages = fields.require("messages");
  if (messages == nullptr) return;
  if (messages->is_array() && messages->empty())
    return fields.fail_value("messages", "found an empty list, allowed is at least one message");
  request.messages_json = read_messages(*messages, "messages", rules.json, error).dump();
}

void read_tools(Fields& fields, std::optional<ApiError>& error, ChatRequest& request) {
  const Json* tools = fields.take("tools");
  const Json* choice = fields.take("tool_choice");
  fields.boolean("parallel_tool_calls", true);
  if (tools != nullptr) {
    check_tools(*tools, "tools", error);
    if (!error && !tools->empty()) request.tools_json = tools->dump();
  }
  if (choice == nullptr) return;
  if (*choice == "none") {
    request.tools_json.clear();
  } else if (*choice != "auto") {
    fields.fail_unsupported("tool_choice",
                            fmt::format("found {}, allowed are \"none\" and \"auto\"", quote_json(*choice)));
  }
}

void read_template_variables(Fields& fields, ChatRequest& request) {
  const Json* given = fields.take("chat_template_kwargs");
  if (given != nullptr && !given->is_object())
    return fields.fail_type("chat_template_kwargs", "an object", *given);
  if (given != nullptr)
    for (const auto& [name, value] : given->items())
      if (is_template_name(name))
        return fields.fail_value(fmt::format("chat_template_kwargs.{}", name),
                                 "found a name that every template has already, allowed are others");
  Json extra = given != nullptr ? *given : Json::object();
  if (auto effort = fields.text("reasoning_effort")) extra["reasoning_effort"] = std::move(*effort);
  if (!extra.empty()) request.extra_json = extra.dump();
}

void read_chat_logprobs(Fields& fields, GenerationSettings& settings) {
  settings.logprobs = fields.boolean("logprobs", false);
  const auto top = fields.integer("top_logprobs", 0, kMaxTopLogprobs);
  if (!top) return;
  if (!settings.logprobs)
    return fields.fail_value("top_logprobs", "found without \"logprobs\": true, allowed is with it");
  settings.top_logprobs = static_cast<int32_t>(*top);
}

void refuse_unsupported_chat(Fields& fields) {
  if (const Json* format = fields.take("response_format")) {
    if (!format->is_object() || !format->contains("type") || (*format)["type"] != "text")
      fields.fail_unsupported("response_format", "allowed is {\"type\": \"text\"}");
  }
  if (const Json* modalities = fields.take("modalities");
      modalities != nullptr && *modalities != Json::array({"text"}))
    fields.fail_unsupported("modalities", "allowed is [\"text\"]");
  fields.refuse("functions", "use tools");
  fields.refuse("function_call", "use tool_choice");
  fields.refuse("audio", "the model gives text alone");
  fields.refuse("prediction", "it is not read");
  fields.refuse("web_search_options", "the server does not search");
}

// ---- prompts of /v1/completions ----

void read_prompt_tokens(Fields& fields, const Json& list, const std::string& path, const RequestRules& rules,
                        CompletionRequest& request) {
  std::vector<TokenId> tokens;
  tokens.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) {
    const Json& item = list[i];
    if (!item.is_number_integer())
      return fields.fail_type(fmt::format("{}[{}]", path, i), "a token id", item);
    const bool fits =
        item.is_number_unsigned() && item.get<uint64_t>() < static_cast<uint64_t>(rules.vocabulary);
    if (!fits)
      return fields.fail_value(fmt::format("{}[{}]", path, i),
                               fmt::format("found {}, allowed are token ids from 0 to {}", quote_json(item),
                                           rules.vocabulary - 1));
    tokens.push_back(item.get<TokenId>());
  }
  request.prompt_tokens = std::move(tokens);
}

void read_prompt(Fields& fields, const RequestRules& rules, CompletionRequest& request) {
  const Json* prompt = fields.require("prompt");
  if (prompt == nullptr) return;
  std::string path = "prompt";
  // A batch of one prompt is that prompt.
  if (prompt->is_array() && prompt->size() == 1 && !(*prompt)[0].is_number()) {
    prompt = &(*prompt)[0];
    path = "prompt[0]";
  }
  if (prompt->is_string()) {
    request.prompt = prompt->get<std::string>();
    return;
  }
  if (!prompt->is_array()) return fields.fail_type(path, "a string or a list of token ids", *prompt);
  if (prompt->empty())
    return fields.fail_value(path, "found an empty list, allowed is at least one token id");
  if ((*prompt)[0].is_string() || (*prompt)[0].is_array())
    return fields.fail_unsupported(path,
                                   fmt::format("found {} prompts, allowed is one a request", prompt->size()));
  read_prompt_tokens(fields, *prompt, path, rules, request);
}

}  // namespace

ApiResult<ChatRequest> parse_chat_request(std::string_view body, const RequestRules& rules) {
  const auto json = parse_json(body, rules.json);
  if (!json) return json.error();
  std::optional<ApiError> error;
  Fields fields(*json, "", error);
  ChatRequest request;
  read_messages(fields, error, rules, request);
  read_common(fields, error, rules, request.settings);
  request.settings.max_tokens = read_max_tokens(fields, "max_completion_tokens");
  if (const auto older = read_max_tokens(fields, "max_tokens")) {
    if (request.settings.max_tokens && *request.settings.max_tokens != *older)
      fields.fail_value("max_tokens", "found beside another max_completion_tokens, allowed is one of them");
    request.settings.max_tokens = older;
  }
  read_chat_logprobs(fields, request.settings);
  read_tools(fields, error, request);
  read_template_variables(fields, request);
  refuse_unsupported_chat(fields);
  fields.finish();
  if (error) return *error;
  return request;
}

ApiResult<CompletionRequest> parse_completion_request(std::string_view body, const RequestRules& rules) {
  const auto json = parse_json(body, rules.json);
  if (!json) return json.error();
  std::optional<ApiError> error;
  Fields fields(*json, "", error);
  CompletionRequest request;
  read_prompt(fields, rules, request);
  read_common(fields, error, rules, request.settings);
  request.settings.max_tokens = read_max_tokens(fields, "max_tokens").value_or(kDefaultCompletionTokens);
  if (const auto logprobs = fields.integer("logprobs", 0, kMaxTopLogprobs)) {
    request.settings.logprobs = true;
    request.settings.top_logprobs = static_cast<int32_t>(*logprobs);
  }
  if (const auto best_of = fields.integer("best_of", INT64_MIN, INT64_MAX); best_of && *best_of != 1)
    fields.fail_value("best_of", fmt::format("found {}, allowed is 1: a request has one answer", *best_of));
  if (fields.boolean("echo", false)) fields.fail_unsupported("echo", "the prompt is not repeated");
  if (const auto suffix = fields.text("suffix"); suffix && !suffix->empty())
    fields.fail_unsupported("suffix", "text is continued, not filled in");
  fields.finish();
  if (error) return *error;
  return request;
}

}  // namespace quintet
