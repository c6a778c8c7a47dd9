// Chat templates: what a template sees, whitespace, scopes, and errors that name line and construct.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <ctime>
#include <thread>
#include <vector>

#include "text/template_render.h"

namespace quintet {
namespace {

constexpr const char* kChatMl =
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ "
    "'<|im_start|>system\n"
    "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n' }}{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}";

TEST(ChatTemplate, RendersSmolLm2) {
  auto parsed = ChatTemplate::parse(kChatMl);
  ASSERT_TRUE(parsed) << parsed.error().message;
  TemplateInput input;
  input.messages_json = R"([{"role": "user", "content": "What is the capital of France?"}])";
  auto text = parsed->render(input);
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(
      *text,
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
      "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n");
  input.add_generation_prompt = false;
  input.messages_json = R"([{"role": "system", "content": "S"}, {"role": "user", "content": "U"}])";
  EXPECT_EQ(parsed->render(input).value(),
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nU<|im_end|>\n");
}

TEST(ChatTemplate, SeesItsInput) {
  auto parsed = ChatTemplate::parse(
      "{{ bos_token }}|{{ eos_token }}|{{ tools }}|{{ documents }}|{{ add_generation_prompt }}|{{ "
      "enable_thinking }}|"
      "{{ strftime_now('%d %b %Y %H:%M:%S %j') }}|{{ nothing is defined }}");
  ASSERT_TRUE(parsed);
  TemplateInput input;
  input.messages_json = "[]";
  input.bos_token = "<s>";
  input.eos_token = "</s>";
  input.now_unix_s = 1764547199;
  EXPECT_EQ(parsed->render(input).value(), "<s>|</s>|None|None|True||30 Nov 2025 23:59:59 334|False");
  input.tools_json = R"([{"name": "f"}])";
  input.extra_json = R"({"enable_thinking": false, "bos_token": "B", "add_generation_prompt": 1})";
  EXPECT_EQ(parsed->render(input).value(),
            "B|</s>|[{'name': 'f'}]|None|1|False|30 Nov 2025 23:59:59 334|False");
}

TEST(ChatTemplate, WallClockIsLocalTime) {
  auto parsed = ChatTemplate::parse("{{ strftime_now('%Y-%m-%d %H') }}");
  ASSERT_TRUE(parsed);
  TemplateInput input;
  input.messages_json = "[]";
  std::string before, after;
  auto local = [] {
    std::time_t now = std::time(nullptr);
    std::tm parts{};
    localtime_r(&now, &parts);
    char text[32];
    return std::string(text, std::strftime(text, sizeof text, "%Y-%m-%d %H", &parts));
  };
  before = local();
  input.now_unix_s = wall_clock_s();
  std::string shown = parsed->render(input).value();
  after = local();
  EXPECT_TRUE(shown == before || shown == after) << shown;
}

TEST(ChatTemplate, KeepsOrderAndFormOfJson) {
  const char* variables =
      R"({"v": {"z": 1, "a": 1.0, "big": 123456789012345678901234567890, "e": 1e-7, "u": 18446744073709551615, "n": -0.0}})";
  EXPECT_EQ(
      render_text("{{ v | tojson }}", variables),
      R"({"z": 1, "a": 1.0, "big": 123456789012345678901234567890, "e": 1e-07, "u": 18446744073709551615, "n": -0.0})");
  EXPECT_EQ(render_text("{{ v }}", variables),
            "{'z': 1, 'a': 1.0, 'big': 123456789012345678901234567890, 'e': 1e-07, 'u': "
            "18446744073709551615, 'n': -0.0}");
  EXPECT_EQ(render_text("{{ v.k }}", R"({"v": {"k": 1, "k": 2}})"), "2");
}

TEST(ChatTemplate, TrimsBlocksAndTheirIndentation) {
  EXPECT_EQ(render_text("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render_text("a\n  {%+ if true %}\n  b{% endif +%}\nc"), "a\n    b\nc");
  EXPECT_EQ(render_text("a \n {{- 1 -}} \n b"), "a1b");
  EXPECT_EQ(render_text("  {{ 1 }}\n"), "  1");
  EXPECT_EQ(render_text("x\n  {# note #}\ny"), "x\ny");
  EXPECT_EQ(render_text("x {#- note -#}\n  y"), "xy");
  EXPECT_EQ(render_text("\r\na\r\nb\rc\n"), "\na\nb\nc");
  EXPECT_EQ(render_text("a\n\n"), "a\n");
  EXPECT_EQ(render_text("{% raw %} {{ x }} {%- endraw %}\n!"), " {{ x }}!");
  EXPECT_EQ(render_text("{%- raw -%}  {% if %} {% endraw -%} \n ."), "{% if %} .");
  EXPECT_EQ(render_text("\u00a0{{- 1 -}}\u2003"), "1");
}

TEST(ChatTemplate, LoopsKnowWhereTheyAre) {
  EXPECT_EQ(render_text(
                "{% for i in 'abc' %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
                "{{ loop.first }}{{ loop.last }}{{ loop.length }}{{ loop.previtem }}{{ loop.nextitem }};{% "
                "endfor %}"),
            "1032TrueFalse3b;2121FalseFalse3ac;3210FalseTrue3b;");
  EXPECT_EQ(render_text("{% for i in range(5) if i % 2 %}{{ i }}/{{ loop.length }} {% endfor %}"),
            "1/2 3/2 ");
  EXPECT_EQ(render_text("{% for i in [] %}x{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render_text("{% for i in [1, 2] %}{% continue %}{% else %}none{% endfor %}"), "none");
  EXPECT_EQ(render_text("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"),
            "012");
  EXPECT_EQ(render_text("{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}"), "123");
  EXPECT_EQ(
      render_text("{% for i in [1, 1, 2] %}{{ loop.changed(i) }}{{ loop.cycle('x', 'y') }}{% endfor %}"),
      "TruexFalseyTruex");
  EXPECT_EQ(render_text(
                "{% for n in t recursive %}{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{{ loop.depth }}"
                "{% endfor %}",
                R"({"t": [{"v": 1, "c": [{"v": 2}, {"v": 3}]}, {"v": 4}]})"),
            "1(2232)141");
}

TEST(ChatTemplate, ScopesFollowTheText) {
  EXPECT_EQ(render_text("{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}"),
            "231");
  EXPECT_EQ(render_text("{% set ns = namespace(x=1) %}{% for i in [1, 2] %}{% set ns.x = ns.x + i %}{% "
                        "endfor %}{{ ns.x }}"),
            "4");
  EXPECT_EQ(render_text("{% if true %}{% set x = 1 %}{% endif %}{{ x }}"), "1");
  EXPECT_EQ(render_text("{% set x %}a{% set y = 1 %}{% endset %}{{ x }}{{ y }}"), "a");
  EXPECT_EQ(render_text("{% set x | upper | trim %} abc {% endset %}{{ x }}"), "ABC");
  EXPECT_EQ(render_text("{% set a, b = 1, [2] %}{{ a }}{{ b }}"), "1[2]");
  EXPECT_EQ(render_text("{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a }}"), "3");
  // A name that is assigned further down is undefined in the scopes before, whatever the caller gave.
  EXPECT_EQ(render_text("{% for i in [1] %}{{ x }}{% endfor %}{% set x = 1 %}", R"({"x": "given"})"), "");
  EXPECT_EQ(render_text("{{ x }}{% for i in [1] %}{{ x }}{% endfor %}{% set x = 1 %}", R"({"x": "given"})"),
            "givengiven");
  EXPECT_EQ(render_text("{% print x %}{% set x = 1 %}", R"({"x": "given"})"), "given");
  EXPECT_EQ(render_text("{% if false %}{% set x = 1 %}{% endif %}{{ x }}", R"({"x": "given"})"), "given");
}

TEST(ChatTemplate, MacrosAndCallBlocks) {
  EXPECT_EQ(
      render_text("{% macro m(a, b=a, c='z') %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}"),
      "11z112");
  EXPECT_EQ(render_text("{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, k=2) }}"),
            "(1,){'k': 2}");
  EXPECT_EQ(
      render_text("{% macro m() %}<{{ caller('x') }}>{% endmacro %}{% call(v) m() %}{{ v }}!{% endcall %}"),
      "<x!>");
  EXPECT_EQ(render_text("{% macro even(n) %}{{ 'y' if n == 0 else odd(n - 1) }}{% endmacro %}"
                        "{% macro odd(n) %}{{ 'n' if n == 0 else even(n - 1) }}{% endmacro %}{{ even(10) }}"),
            "y");
  EXPECT_EQ(render_text("{% filter upper %}a{{ 'b' }}{% endfilter %}{% generation %}said{% endgeneration %}"),
            "ABsaid");
  EXPECT_EQ(render_error("{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"),
            "chat template, line 1: macro 'm' takes not more than 1 argument(s)");
}

TEST(ChatTemplate, ErrorsNameLineAndConstruct) {
  EXPECT_EQ(render_error("a\n{{ raise_exception('Roles must alternate') }}"),
            "chat template, line 2: the template refuses the conversation: Roles must alternate");
  EXPECT_EQ(render_error("\n\n{{ x.y }}"), "chat template, line 3: 'x' is undefined");
  EXPECT_EQ(render_error("{% for m in messages %}\n{{ m.a.b }}{% endfor %}", "", R"([{"role": "user"}])"),
            "chat template, line 2: 'dict object' has no attribute 'a'");
  EXPECT_EQ(render_error("{{ 'a' + 1 }}"),
            "chat template, line 1: can only concatenate str (not \"int\") to str");
  EXPECT_EQ(render_error("{{ [1].append(2) }}"),
            "chat template, line 1: access to attribute 'append' of 'list' object is unsafe.");
  EXPECT_EQ(parse_error("{% if x %}\n\na"),
            "chat template, line 3: the template ends, but 'if' is still open (expected 'elif' or 'else' or "
            "'endif')");
  EXPECT_EQ(parse_error("{% include 'x' %}"),
            "chat template, line 1: the tag 'include' is not supported in chat templates");
  EXPECT_EQ(parse_error("{{ 1 + }}"), "chat template, line 1: found '}}', expected an expression");
  EXPECT_EQ(parse_error("{{ (1] }}"), "chat template, line 1: unexpected ']', expected ')'");
  EXPECT_EQ(parse_error("{% endfor %}"), "chat template, line 1: unknown tag 'endfor'");
  EXPECT_EQ(parse_error("{# x"), "chat template, line 1: a comment without its end '#}'");
  EXPECT_EQ(parse_error("{% break %}"), "chat template, line 1: 'break' outside of a loop");
  EXPECT_EQ(parse_error("\xff"), "chat template: the template is not valid UTF-8 (at byte 0)");
  EXPECT_EQ(render_error("{{ x | nope }}"), "chat template, line 1: no filter named 'nope'");
  EXPECT_EQ(render_error("{{ x is nope }}"), "chat template, line 1: no test named 'nope'");
}

TEST(ChatTemplate, WrongInputIsNamed) {
  auto parsed = ChatTemplate::parse("{{ messages }}");
  ASSERT_TRUE(parsed);
  auto error = [&](TemplateInput input) {
    auto result = parsed->render(input);
    return result ? "no error: " + *result : result.error().message;
  };
  EXPECT_EQ(error({.messages_json = "{}"}), "messages must be a JSON list, not dict");
  EXPECT_NE(error({.messages_json = "[1,"}).find("messages is not valid JSON at byte"), std::string::npos);
  EXPECT_NE(error({.messages_json = "[\"\xff\"]"}).find("messages is not valid JSON"), std::string::npos);
  EXPECT_EQ(error({.messages_json = "[]", .tools_json = "3"}), "tools must be a JSON list, not int");
  EXPECT_EQ(error({.messages_json = "[]", .extra_json = "[]"}),
            "the template's variables must be a JSON object, not list");
  EXPECT_EQ(error({.messages_json = "[]", .bos_token = "\xc3"}), "bos_token is not valid UTF-8 (at byte 0)");
  std::string deep = std::string(201, '[') + std::string(201, ']');
  EXPECT_EQ(error({.messages_json = deep}), "messages is nested more than 200 deep");
}

TEST(ChatTemplate, ManyThreadsShareOne) {
  auto parsed = ChatTemplate::parse(
      "{% set c = 'constant' %}{% for m in messages %}{{ c ~ m.content | upper }}{% endfor %}"
      "{{ [1, 'two', {'k': c}] }}{{ undefined_name }}{% for i in [1] %}{{ later }}{% endfor %}"
      "{% set later = 1 %}");
  ASSERT_TRUE(parsed);
  std::vector<std::thread> threads;
  std::vector<std::string> texts(8);
  for (size_t t = 0; t < texts.size(); ++t) {
    threads.emplace_back([&, t] {
      TemplateInput input;
      input.messages_json = R"([{"content": "m)" + std::to_string(t) + R"("}])";
      for (int i = 0; i < 200; ++i) texts[t] = parsed->render(input).value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t t = 0; t < texts.size(); ++t) {
    EXPECT_EQ(texts[t], "constantM" + std::to_string(t) + "[1, 'two', {'k': 'constant'}]");
  }
}

}  // namespace
}  // namespace quintet
