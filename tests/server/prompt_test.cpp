// Prompts: whatever users write, the only special tokens are the template's.
#include "server/prompt.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>
#include <random>

#include "server/test_server.h"

namespace quintet {
namespace {

Model model_with(const std::string& chat_template) {
  Model model;
  model.tokenizer = std::make_shared<ByteTokenizer>();
  auto parsed = ChatTemplate::parse(chat_template);
  EXPECT_TRUE(parsed);
  if (parsed) model.chat_template = std::make_shared<ChatTemplate>(std::move(*parsed));
  return model;
}

std::string messages_json(const std::vector<std::string>& contents) {
  nlohmann::json messages = nlohmann::json::array();
  for (size_t i = 0; i < contents.size(); ++i)
    messages.push_back({{"role", i % 2 ? "assistant" : "user"}, {"content", contents[i]}});
  return messages.dump();
}

TEST(Prompt, ContentIsTextWhateverItLooksLike) {
  const Model model = model_with(kChatMl);
  const PromptBuilder builder(model);
  const std::vector<std::string> parts = {
      "<|im_end|>", "<|im_start|>", "<s>", "</s>", "<｜fin｜>", "§",  "<|im_end|>x", "<",      "|",
      "<|im_",      "end|>",        "é",   "😀",    "plain ",    "\n", "\uFDD0",      "\uFDD1", ""};
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> contents(1 + random() % 3);
    for (auto& content : contents)
      for (size_t i = random() % 6; i > 0; --i) content += parts[random() % parts.size()];
    std::vector<TokenId> wanted = {ByteTokenizer::kBos};
    const auto put = [&](std::string_view text) {
      for (const TokenId id : bytes_of(text)) wanted.push_back(id);
    };
    for (size_t i = 0; i < contents.size(); ++i) {
      wanted.push_back(ByteTokenizer::kImStart);
      put(i % 2 ? "assistant\n" : "user\n");
      put(contents[i]);
      wanted.push_back(ByteTokenizer::kImEnd);
      put("\n");
    }
    wanted.push_back(ByteTokenizer::kImStart);
    put("assistant\n");
    const auto got = builder.conversation({messages_json(contents), "", ""});
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(*got, wanted) << testing::PrintToString(contents);
  }
}

TEST(Prompt, WhateverComesWithTheRequestIsText) {
  const Model model = model_with(
      "{% for m in messages %}{{ m.content }}{{ m.name }}{{ m.tool_call_id }}"
      "{% for c in m.tool_calls %}{{ c.id }}{{ c.function.name }}{{ c.function.arguments | tojson }}"
      "{{ c.function.arguments | tojson(ensure_ascii=true) }}{% endfor %}{% endfor %}"
      "{{ tools | tojson }}{{ mood }}<|im_end|>");
  const PromptBuilder builder(model);
  const auto with = [&](const std::string& text) {
    const nlohmann::json call = {{"id", text},
                                 {"function", {{"name", text}, {"arguments", {{text, {{text, {text}}}}}}}}};
    const nlohmann::json messages = {
        {{"role", "assistant"}, {"content", text}, {"name", text}, {"tool_calls", {call}}},
        {{"role", "tool"}, {"content", text}, {"tool_call_id", text}}};
    const nlohmann::json tools = {
        {{"type", "function"}, {"function", {{"name", "f"}, {"description", text}}}}};
    return builder.conversation({messages.dump(), tools.dump(), nlohmann::json{{"mood", text}}.dump()});
  };
  for (const char* special : {"<|im_start|>", "<s>", "<｜fin｜>"}) {
    const auto got = with(special);
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(std::count_if(got->begin(), got->end(), [](TokenId id) { return id >= ByteTokenizer::kBos; }),
              2)
        << "BOS and what the template ends with: " << special;
    const std::string text = model.tokenizer->decode(*got);
    EXPECT_EQ(text.find("\xEF\xB7"), std::string::npos);
    EXPECT_EQ(text.find("ufdd"), std::string::npos);
  }
}

TEST(Prompt, TakesAMarkThatNoEscapeHides) {
  const Model model = model_with("{{ messages[0].content | tojson(ensure_ascii=true) }}");
  const std::string content = R"(\ufdd0<s>\uFDD1)";  // escapes of characters, written out as text
  const auto got = PromptBuilder(model).conversation({messages_json({content}), "", ""});
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(model.tokenizer->decode(*got), nlohmann::json(content).dump());
}

TEST(Prompt, ManyKeysTakeTimeThatIsLinear) {
  const Model model = model_with("{{ messages[0].tool_calls[0].function.arguments | length }}");
  std::string arguments;
  for (int i = 0; i < 250'000; ++i) arguments += (i ? ",\"k" : "{\"k") + std::to_string(i) + "\":1";
  const std::string messages =
      R"([{"role":"assistant","tool_calls":[{"function":{"name":"x","arguments":)" + arguments + "}}}]}]";
  const std::clock_t before = std::clock();
  const auto got = PromptBuilder(model).conversation({messages, "", ""});
  EXPECT_LT(std::clock() - before, 10 * CLOCKS_PER_SEC);
  ASSERT_TRUE(got) << got.error().message;
  EXPECT_EQ(model.tokenizer->decode(*got), "250000");
}

TEST(Prompt, SurvivesTemplatesThatCutContentsUp) {
  for (const char* body : {"{{ messages[0].content | trim }}", "{{ messages[0].content[1:] }}",
                           "{{ messages[0].content.split('|')[0] }}", "{{ messages[0].content | upper }}",
                           "{{ messages[0].content | length }}", "{{ messages[0] | tojson }}"}) {
    const Model model = model_with(std::string(body) + "<|im_end|>");
    const PromptBuilder builder(model);
    for (const char* content : {"  <|im_start|> ", "<|im_start|>", "§", "§§<s>", "<s></s>"}) {
      const auto got = builder.conversation({messages_json({content}), "", ""});
      ASSERT_TRUE(got) << body << got.error().message;
      EXPECT_EQ(got->back(), ByteTokenizer::kImEnd);
      for (size_t i = 1; i + 1 < got->size(); ++i)
        EXPECT_LT((*got)[i], ByteTokenizer::kBos) << body << content;
      const std::string text = model.tokenizer->decode(*got);
      EXPECT_EQ(text.find("\xEF\xB7"), std::string::npos) << "no mark is left: " << body;
      EXPECT_EQ(text.find("fdd0"), std::string::npos) << "nor the escape of one: " << body;
    }
  }
}

TEST(Prompt, KnowsWhetherATemplateTakesTools) {
  const auto takes = [](const char* source) {
    auto parsed = ChatTemplate::parse(source);
    EXPECT_TRUE(parsed) << source;
    return parsed && takes_tools(*parsed);
  };
  EXPECT_FALSE(takes(kChatMl));
  EXPECT_FALSE(takes("{# tools #}{{ messages[0].content }}"));
  EXPECT_TRUE(takes("{% if tools %}{{ tools | tojson }}{% endif %}"));
  EXPECT_TRUE(takes("{% for t in tools or [] %}{{ t.function.name }}{% endfor %}"));
  // In the system message alone, or where there is none.
  EXPECT_TRUE(takes("{% if messages[0].role == 'system' and tools %}{{ tools }}{% endif %}"));
  EXPECT_TRUE(
      takes("{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}{{ tools }}"));
  EXPECT_TRUE(takes("{% if tools %}{{ raise_exception('no tools') }}{% endif %}x"));
  // One that refuses to be tried is left to refuse the request.
  EXPECT_TRUE(takes("{{ raise_exception('never') }}"));
}

TEST(Prompt, NamesWhatIsMissing) {
  Model model = model_with(kChatMl);
  model.chat_template = nullptr;
  EXPECT_FALSE(PromptBuilder(model).conversation({messages_json({"x"}), "", ""}));
  model.chat_template_error = "line 3: unknown filter";
  const auto got = PromptBuilder(model).conversation({messages_json({"x"}), "", ""});
  ASSERT_FALSE(got);
  EXPECT_NE(got.error().message.find("line 3: unknown filter"), std::string::npos);
}

TEST(Prompt, RefusesTheOneTextThatLeavesNoMark) {
  const Model model = model_with(kChatMl);
  std::string all;
  for (unsigned low = 0x90; low <= 0xAF; ++low) all += std::string("\xEF\xB7") + static_cast<char>(low);
  EXPECT_FALSE(PromptBuilder(model).conversation({messages_json({all}), "", ""}));
  EXPECT_TRUE(PromptBuilder(model).conversation({messages_json({all.substr(3)}), "", ""}));
}

TEST(Prompt, TakesTimeThatIsLinear) {
  const Model model = model_with("{{ messages[0].content | length }}");
  const PromptBuilder builder(model);
  std::string content;
  while (content.size() < 1'000'000) content += "<|im_en";
  const std::clock_t before = std::clock();
  EXPECT_TRUE(builder.conversation({messages_json({content}), "", ""}));
  // Of the processor, so that a busy machine does not count; a sanitizer takes ten times as long.
  EXPECT_LT(std::clock() - before, 10 * CLOCKS_PER_SEC);
}

}  // namespace
}  // namespace quintet
