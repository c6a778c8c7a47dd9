// Validation of request bodies: what is taken, what is refused, and under which name.
#include "server/openai.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

const RequestRules kRules{.vocabulary = 1000, .json = {}};

std::string chat(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "Hi"}])" + (more.empty() ? "" : ", " + more) + "}";
}
std::string completion(const std::string& more) {
  return R"({"prompt": "Hi")" + (more.empty() ? "" : ", " + more) + "}";
}

TEST(OpenAi, TakesEverySettingOfAChat) {
  const auto got = parse_chat_request(
      chat(R"("model": "m", "stream": true, "stream_options": {"include_usage": true}, "n": 1,
    "seed": -7, "stop": ["a", "b"], "temperature": 0.5, "top_p": 0.25, "min_p": 0.125, "top_k": 40, "repeat_penalty": 1.5,
    "presence_penalty": -2, "frequency_penalty": 2, "logit_bias": {"7": -100, "12": 3.5}, "logprobs": true,
    "top_logprobs": 20, "max_completion_tokens": 9, "max_tokens": 9, "ignore_eos": true, "user": "u", "metadata": {"a": "b"},
    "store": false, "tools": [], "tool_choice": "auto", "parallel_tool_calls": true, "response_format": {"type": "text"},
    "modalities": ["text"], "chat_template_kwargs": {"enable_thinking": false}, "reasoning_effort": "low",
    "functions": null)"),
      kRules);
  ASSERT_TRUE(got) << got.error().message;
  const GenerationSettings& s = got->settings;
  EXPECT_EQ(s.model, "m");
  EXPECT_TRUE(s.stream && s.include_usage && s.logprobs && s.ignore_eos);
  EXPECT_EQ(s.seed, static_cast<uint64_t>(-7));
  EXPECT_EQ(s.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(s.temperature, 0.5f);
  EXPECT_EQ(s.top_p, 0.25f);
  EXPECT_EQ(s.min_p, 0.125f);
  EXPECT_EQ(s.top_k, 40);
  EXPECT_EQ(s.repeat_penalty, 1.5f);
  EXPECT_EQ(s.presence_penalty, -2);
  EXPECT_EQ(s.frequency_penalty, 2);
  ASSERT_EQ(s.bias.size(), 2u);
  EXPECT_EQ(s.bias[0].token, 7);
  EXPECT_EQ(s.bias[0].value, -100);
  EXPECT_EQ(s.top_logprobs, 20);
  EXPECT_EQ(s.max_tokens, 9);
  EXPECT_EQ(Json::parse(got->extra_json),
            Json::parse(R"({"enable_thinking": false, "reasoning_effort": "low"})"));
  EXPECT_EQ(got->tools_json, "");
}

TEST(OpenAi, KeepsArgumentsThatAreNoObjectAsTheModelWroteThem) {
  for (const char* written : {"{", "[]", "", "7", "{\"a\": 1} x"}) {
    const Json call = {{"function", {{"name", "f"}, {"arguments", written}}}};
    const Json message = {{"role", "assistant"}, {"tool_calls", Json::array({call})}};
    const auto got = parse_chat_request(Json{{"messages", Json::array({message})}}.dump(), kRules);
    ASSERT_TRUE(got) << written << got.error().message;
    EXPECT_EQ(Json::parse(got->messages_json)[0]["tool_calls"][0]["function"]["arguments"], written);
  }
}

TEST(OpenAi, LeavesAbsentAndNullSettingsToTheModel) {
  for (const auto& more :
       {std::string(),
        std::string(
            R"("temperature": null, "stop": null, "seed": null, "max_tokens": null, "tools": null)")}) {
    const auto got = parse_chat_request(chat(more), kRules);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_FALSE(got->settings.temperature || got->settings.top_p || got->settings.top_k ||
                 got->settings.seed || got->settings.max_tokens);
    EXPECT_TRUE(got->settings.stop.empty());
    EXPECT_FALSE(got->settings.stream);
  }
  EXPECT_EQ(parse_completion_request(completion(""), kRules)->settings.max_tokens, 16) << "OpenAI's default";
  EXPECT_EQ(parse_chat_request(chat(R"("seed": 18446744073709551615)"), kRules)->settings.seed, UINT64_MAX);
  EXPECT_EQ(parse_chat_request(chat(R"("stop": "x")"), kRules)->settings.stop.size(), 1u);
  EXPECT_EQ(parse_chat_request(chat(R"("top_k": -1)"), kRules)->settings.top_k, 0);
  EXPECT_EQ(*parse_chat_request(chat(R"("top_p": 0)"), kRules)->settings.top_p, 0);
  EXPECT_EQ(parse_chat_request(chat(R"("repetition_penalty": 1.25)"), kRules)->settings.repeat_penalty,
            1.25f);
}

TEST(OpenAi, BringsMessagesIntoTheShapeOfTemplates) {
  const auto got = parse_chat_request(R"({"messages": [
    {"role": "developer", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
    {"role": "user", "content": "é😀", "name": "ann"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{\"b\": 1, \"a\": [2]}"}}]},
    {"role": "tool", "tool_call_id": "c1", "content": "3"},
    {"role": "assistant", "content": "ok", "refusal": null, "annotations": [], "reasoning_content": "hm"}],
    "tools": [{"type": "function", "function": {"name": "f", "description": "d", "parameters": {"z": 1, "a": 2}}}]})",
                                      kRules);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(Json::parse(got->messages_json).dump(), Json::parse(R"([{"role":"system","content":"Be brief."},
    {"role":"user","content":"é😀","name":"ann"},
    {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":{"b":1,"a":[2]}}}]},
    {"role":"tool","content":"3","tool_call_id":"c1"},
    {"role":"assistant","content":"ok","reasoning_content":"hm"}])")
                                                        .dump());
  EXPECT_EQ(got->tools_json,
            R"([{"type":"function","function":{"name":"f","description":"d","parameters":{"z":1,"a":2}}}])");
  EXPECT_EQ(parse_chat_request(
                chat(R"("tools": [{"type": "function", "function": {"name": "f"}}], "tool_choice": "none")"),
                kRules)
                ->tools_json,
            "");
}

TEST(OpenAi, TakesPromptsInEveryShape) {
  EXPECT_EQ(parse_completion_request(R"({"prompt": "a"})", kRules)->prompt, "a");
  EXPECT_EQ(parse_completion_request(R"({"prompt": ["a"]})", kRules)->prompt, "a");
  EXPECT_EQ(parse_completion_request(R"({"prompt": [1, 999]})", kRules)->prompt_tokens,
            (std::vector<TokenId>{1, 999}));
  EXPECT_EQ(parse_completion_request(R"({"prompt": [5]})", kRules)->prompt_tokens, (std::vector<TokenId>{5}));
  EXPECT_EQ(parse_completion_request(R"({"prompt": [[1, 2]]})", kRules)->prompt_tokens,
            (std::vector<TokenId>{1, 2}));
  const auto logprobs = parse_completion_request(
      completion(R"("logprobs": 0, "echo": false, "best_of": 1, "suffix": null)"), kRules);
  EXPECT_TRUE(logprobs->settings.logprobs);
}

struct Bad {
  std::string more;
  std::string param;
  std::string code;
};

template <class Parse, class Wrap>
void expect_refused(const std::vector<Bad>& cases, Parse parse, Wrap wrap) {
  for (const auto& [more, param, code] : cases) {
    const auto got = parse(wrap(more), kRules);
    ASSERT_FALSE(got) << more;
    EXPECT_EQ(got.error().status, 400) << more;
    EXPECT_EQ(got.error().type, "invalid_request_error") << more;
    EXPECT_EQ(got.error().param, param) << more << ": " << got.error().message;
    EXPECT_EQ(got.error().code, code) << more << ": " << got.error().message;
    EXPECT_NE(got.error().message.find(param), std::string::npos) << got.error().message;
  }
}

const std::vector<Bad> kBadSettings = {
    {R"("temperature": "hot")", "temperature", "invalid_type"},
    {R"("temperature": 2.01)", "temperature", "invalid_value"},
    {R"("temperature": -0.01)", "temperature", "invalid_value"},
    {R"("temperature": 1e300)", "temperature", "invalid_value"},
    {R"("temperature": true)", "temperature", "invalid_type"},
    {R"("top_p": 1.5)", "top_p", "invalid_value"},
    {R"("min_p": -1)", "min_p", "invalid_value"},
    {R"("top_k": -2)", "top_k", "invalid_value"},
    {R"("top_k": 1.5)", "top_k", "invalid_type"},
    {R"("top_k": 99999999999)", "top_k", "invalid_value"},
    {R"("repeat_penalty": 0)", "repeat_penalty", "invalid_value"},
    {R"("repeat_penalty": 1, "repetition_penalty": 2)", "repetition_penalty", "invalid_value"},
    {R"("presence_penalty": 3)", "presence_penalty", "invalid_value"},
    {R"("frequency_penalty": [])", "frequency_penalty", "invalid_type"},
    {R"("max_tokens": 0)", "max_tokens", "invalid_value"},
    {R"("max_tokens": -5)", "max_tokens", "invalid_value"},
    {R"("max_tokens": 16.0)", "max_tokens", "invalid_type"},
    {R"("max_tokens": 18446744073709551615)", "max_tokens", "invalid_value"},
    {R"("max_tokens": 99999999999999999999999)", "max_tokens", "invalid_type"},
    {R"("n": 2)", "n", "invalid_value"},
    {R"("n": 0)", "n", "invalid_value"},
    {R"("n": "1")", "n", "invalid_type"},
    {R"("seed": 1.5)", "seed", "invalid_type"},
    {R"("seed": 99999999999999999999)", "seed", "invalid_type"},
    {R"("stop": 7)", "stop", "invalid_type"},
    {R"("stop": ["a", 7])", "stop[1]", "invalid_type"},
    {R"("stop": ["a", "b", "c", "d", "e"])", "stop", "invalid_value"},
    {R"("stop": "")", "stop", "invalid_value"},
    {R"("stop": ["a", ""])", "stop", "invalid_value"},
    {R"("stream": "yes")", "stream", "invalid_type"},
    {R"("stream_options": {"include_usage": true})", "stream_options", "invalid_value"},
    {R"("stream": true, "stream_options": [])", "stream_options", "invalid_type"},
    {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage",
     "invalid_type"},
    {R"("stream": true, "stream_options": {"usage": true})", "stream_options.usage", "unknown_parameter"},
    {R"("logit_bias": [])", "logit_bias", "invalid_type"},
    {R"("logit_bias": {"x": 1})", "logit_bias.x", "invalid_value"},
    {R"("logit_bias": {"": 1})", "logit_bias.", "invalid_value"},
    {R"("logit_bias": {"1000": 1})", "logit_bias.1000", "invalid_value"},
    {R"("logit_bias": {"-1": 1})", "logit_bias.-1", "invalid_value"},
    {R"("logit_bias": {"99999999999": 1})", "logit_bias.99999999999", "invalid_value"},
    {R"("logit_bias": {"1": 101})", "logit_bias.1", "invalid_value"},
    {R"("logit_bias": {"1": "x"})", "logit_bias.1", "invalid_type"},
    {R"("logit_bias": {"7": 1, "07": 2})", "logit_bias", "invalid_value"},
    {R"("model": 7)", "model", "invalid_type"},
    {R"("ignore_eos": 1)", "ignore_eos", "invalid_type"},
    {R"("temprature": 1)", "temprature", "unknown_parameter"},
};

TEST(OpenAi, RefusesBadSettingsOfBothEndpointsByName) {
  expect_refused(kBadSettings, parse_chat_request, chat);
  expect_refused(kBadSettings, parse_completion_request, completion);
}

TEST(OpenAi, RefusesWhatChatsDoNotHave) {
  expect_refused(
      {
          {R"("max_tokens": 1, "max_completion_tokens": 2)", "max_tokens", "invalid_value"},
          {R"("max_completion_tokens": 0)", "max_completion_tokens", "invalid_value"},
          {R"("logprobs": 3)", "logprobs", "invalid_type"},
          {R"("top_logprobs": 3)", "top_logprobs", "invalid_value"},
          {R"("logprobs": true, "top_logprobs": 21)", "top_logprobs", "invalid_value"},
          {R"("tools": {})", "tools", "invalid_type"},
          {R"("tools": ["f"])", "tools[0]", "invalid_type"},
          {R"("tools": [{"type": "function"}])", "tools[0].function", "missing_required_parameter"},
          {R"("tools": [{"type": "browser"}])", "tools[0].type", "unsupported_parameter"},
          {R"("tools": [{"function": {"name": "f"}}])", "tools[0].type", "missing_required_parameter"},
          {R"("tools": [{"type": "function", "function": {"name": 1}}])", "tools[0].function.name",
           "invalid_type"},
          {R"("tools": [{"type": "function", "function": {"name": "f", "parameters": "x"}}])",
           "tools[0].function.parameters", "invalid_type"},
          {R"("tools": [{"type": "function", "function": {"name": "f", "x": 1}}])", "tools[0].function.x",
           "unknown_parameter"},
          {R"("tool_choice": "required")", "tool_choice", "unsupported_parameter"},
          {R"("tool_choice": {"type": "function"})", "tool_choice", "unsupported_parameter"},
          {R"("response_format": {"type": "json_object"})", "response_format", "unsupported_parameter"},
          {R"("response_format": "text")", "response_format", "unsupported_parameter"},
          {R"("modalities": ["text", "audio"])", "modalities", "unsupported_parameter"},
          {R"("functions": [])", "functions", "unsupported_parameter"},
          {R"("function_call": "auto")", "function_call", "unsupported_parameter"},
          {R"("audio": {})", "audio", "unsupported_parameter"},
          {R"("prediction": {})", "prediction", "unsupported_parameter"},
          {R"("web_search_options": {})", "web_search_options", "unsupported_parameter"},
          {R"("chat_template_kwargs": [])", "chat_template_kwargs", "invalid_type"},
          {R"("chat_template_kwargs": {"messages": []})", "chat_template_kwargs.messages", "invalid_value"},
          {R"("chat_template_kwargs": {"x": 1, "bos_token": ""})", "chat_template_kwargs.bos_token",
           "invalid_value"},
          {R"("chat_template_kwargs": {"raise_exception": 1})", "chat_template_kwargs.raise_exception",
           "invalid_value"},
          {R"("echo": true)", "echo", "unknown_parameter"},
      },
      parse_chat_request, chat);
}

TEST(OpenAi, RefusesBadMessagesByPath) {
  const auto wrap = [](const std::string& messages) { return R"({"messages": )" + messages + "}"; };
  expect_refused(
      {
          {"null", "messages", "missing_required_parameter"},
          {"{}", "messages", "invalid_type"},
          {"[]", "messages", "invalid_value"},
          {"[7]", "messages[0]", "invalid_type"},
          {"[{}]", "messages[0].role", "missing_required_parameter"},
          {R"([{"role": "king", "content": "x"}])", "messages[0].role", "invalid_value"},
          {R"([{"role": 1, "content": "x"}])", "messages[0].role", "invalid_type"},
          {R"([{"role": "user"}])", "messages[0].content", "missing_required_parameter"},
          {R"([{"role": "user", "content": null}])", "messages[0].content", "missing_required_parameter"},
          {R"([{"role": "assistant"}])", "messages[0].content", "missing_required_parameter"},
          {R"([{"role": "user", "content": 7}])", "messages[0].content", "invalid_type"},
          {R"([{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])",
           "messages[1].content[0].type", "unsupported_parameter"},
          {R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "input_audio"}]}])",
           "messages[0].content[1].type", "unsupported_parameter"},
          {R"([{"role": "user", "content": ["a"]}])", "messages[0].content[0]", "invalid_type"},
          {R"([{"role": "user", "content": [{"text": "a"}]}])", "messages[0].content[0].type",
           "missing_required_parameter"},
          {R"([{"role": "user", "content": [{"type": 1}]}])", "messages[0].content[0].type", "invalid_type"},
          {R"([{"role": "user", "content": [{"type": "text"}]}])", "messages[0].content[0].text",
           "missing_required_parameter"},
          {R"([{"role": "user", "content": [{"type": "text", "text": 1}]}])", "messages[0].content[0].text",
           "invalid_type"},
          {R"([{"role": "user", "content": "x", "weight": 1}])", "messages[0].weight", "unknown_parameter"},
          {R"([{"role": "user", "content": "x", "name": 1}])", "messages[0].name", "invalid_type"},
          {R"([{"role": "user", "content": "x", "tool_calls": []}])", "messages[0].tool_calls",
           "invalid_value"},
          {R"([{"role": "assistant", "tool_calls": {}}])", "messages[0].tool_calls", "invalid_type"},
          {R"([{"role": "assistant", "tool_calls": [7]}])", "messages[0].tool_calls[0]", "invalid_type"},
          {R"([{"role": "assistant", "tool_calls": [{"type": "x", "function": {"name": "f"}}]}])",
           "messages[0].tool_calls[0].type", "invalid_value"},
          {R"([{"role": "assistant", "tool_calls": [{"id": "a"}]}])", "messages[0].tool_calls[0].function",
           "missing_required_parameter"},
          {R"([{"role": "assistant", "tool_calls": [{"function": {"arguments": "{}"}}]}])",
           "messages[0].tool_calls[0].function.name", "missing_required_parameter"},
          {R"([{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": 7}}]}])",
           "messages[0].tool_calls[0].function.arguments", "invalid_type"},
          {R"([{"role": "assistant", "content": "x", "audio": {"id": "a"}}])", "messages[0].audio",
           "unsupported_parameter"},
          {R"([{"role": "assistant", "content": "x", "function_call": {}}])", "messages[0].function_call",
           "unsupported_parameter"},
      },
      parse_chat_request, wrap);
}

TEST(OpenAi, RefusesBadCompletions) {
  expect_refused(
      {
          {R"("echo": true)", "echo", "unsupported_parameter"},
          {R"("suffix": "x")", "suffix", "unsupported_parameter"},
          {R"("best_of": 2)", "best_of", "invalid_value"},
          {R"("logprobs": 21)", "logprobs", "invalid_value"},
          {R"("logprobs": true)", "logprobs", "invalid_type"},
          {R"("messages": [])", "messages", "unknown_parameter"},
      },
      parse_completion_request, completion);
  expect_refused(
      {
          {"null", "prompt", "missing_required_parameter"},
          {"7", "prompt", "invalid_type"},
          {"{}", "prompt", "invalid_type"},
          {"[]", "prompt", "invalid_value"},
          {"[[]]", "prompt[0]", "invalid_value"},
          {R"(["a", "b"])", "prompt", "unsupported_parameter"},
          {"[[1], [2]]", "prompt", "unsupported_parameter"},
          {R"([1, "a"])", "prompt[1]", "invalid_type"},
          {"[1, 2.5]", "prompt[1]", "invalid_type"},
          {"[1, 1000]", "prompt[1]", "invalid_value"},
          {"[-1]", "prompt[0]", "invalid_value"},
          {"[4294967296]", "prompt[0]", "invalid_value"},
      },
      parse_completion_request, [](const std::string& prompt) { return R"({"prompt": )" + prompt + "}"; });
}

TEST(OpenAi, RefusesBodiesThatAreNoObject) {
  for (const char* body : {"[]", "7", "\"x\"", "null", "true"}) {
    const auto got = parse_chat_request(body, kRules);
    ASSERT_FALSE(got) << body;
    EXPECT_EQ(got.error().param, "body");
  }
}

}  // namespace
}  // namespace quintet
