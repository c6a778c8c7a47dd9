// Hostile templates: each costs one error that says what it ran into, and little time.
#include <gtest/gtest.h>

#include <ctime>
#include <string>

#include "text/template_render.h"

namespace quintet {
namespace {

std::string repeat(const std::string& text, size_t times) {
  std::string out;
  for (size_t i = 0; i < times; ++i) out += text;
  return out;
}

// Processor seconds, so that load does not fail a test. Measured: under one; instrumented builds are some ten
// times slower.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)
constexpr double kMaxSeconds = 60;
#else
constexpr double kMaxSeconds = 3;
#endif

double processor_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

/// Renders and checks the error and how long it took to come.
void expect_refused(const std::string& source, const std::string& part, const std::string& variables = "") {
  double start = processor_s();
  std::string error = render_error(source, variables);
  double seconds = processor_s() - start;
  EXPECT_NE(error.find(part), std::string::npos) << source.substr(0, 200) << "\n  " << error.substr(0, 300);
  EXPECT_LT(seconds, kMaxSeconds) << source.substr(0, 200);
}

constexpr const char* kSteps = "runs too long";

TEST(ChatTemplateLimits, Steps) {
  expect_refused("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", kSteps);
  expect_refused(
      "{% for a in range(99999) %}{% for b in range(99999) %}{% set x = a * b %}{% endfor %}{% endfor %}",
      kSteps);
  expect_refused("{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(60) }}",
                 kSteps);
  expect_refused(
      "{% set ns = namespace(a=[1], b=[1]) %}{% for i in range(60) %}{% set ns.a = [ns.a, ns.a] %}"
      "{% set ns.b = [ns.b, ns.b] %}{% endfor %}{{ ns.a == ns.b }}",
      kSteps);
  expect_refused("{% set s = 'a' * 9999999 %}{% for i in range(99999) %}{% set x = 'b' in s %}{% endfor %}",
                 kSteps);
  expect_refused("{% set s = 'a' * 9999999 %}{% for i in range(99999) %}{% set x = s | upper %}{% endfor %}",
                 kSteps);
  expect_refused("{% set s = 'é' * 4999999 %}{% for i in range(99999) %}{% set x = s[4999998] %}{% endfor %}",
                 kSteps);
  expect_refused("{% set l = range(99999) | list %}{% for i in l %}{% set x = -1 in l %}{% endfor %}",
                 kSteps);
  expect_refused("{% set l = range(99999) | list %}{% for i in l %}{% set x = l | sort %}{% endfor %}",
                 kSteps);
  expect_refused("{% for i in range(99999) %}{% set x = '%s' * 9999 % range(9999) | list %}{% endfor %}", "");
  expect_refused("{% set d = dict(range(99999) | map('string') | batch(1) | map('list')) %}", "length 1");
}

TEST(ChatTemplateLimits, TextAndOutput) {
  expect_refused("{{ 'x' * 99999999 }}", "allowed");
  expect_refused("{{ 'x' * 9223372036854775807 }}", "allowed");
  expect_refused(
      "{% set ns = namespace(s='x') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "allowed");
  expect_refused("{% set s = 'x' * 9999999 %}{% for i in range(99) %}{{ s }}{% endfor %}",
                 "output is longer");
  expect_refused("{{ 'x'.center(9999999999) }}", "allowed");
  expect_refused("{{ 'x'.zfill(9999999999) }}", "allowed");
  expect_refused("{{ '%999999999999d' % 1 }}", "beyond");
  expect_refused("{{ '%.999999999f' % 1.5 }}", "beyond");
  expect_refused("{{ '{:999999999999}'.format(1) }}", "beyond");
  expect_refused("{{ '{:.99999}'.format(1.5) }}", "allowed");
  expect_refused("{{ ('a' * 9999999).replace('', 'xxxx') }}", "allowed");
  expect_refused("{{ ('\\t' * 99999).expandtabs(4096) }}", "allowed");
  expect_refused("{{ ['x' * 9999] * 9999 | join(',') }}", "");
  expect_refused("{{ ('\\n' * 99999) | indent('x' * 9999, true, true) }}", "allowed");
  expect_refused("{{ [range(99999) | list] * 1000 }}", "");
  expect_refused("{{ [1] | tojson(indent=99999999) }}", "allowed");
  expect_refused("{{ strftime_now('%99999999d') }}", "longer than");
  expect_refused(
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ "
      "ns.l }}",
      "");
  expect_refused(
      "{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}"
      "{{ ns.l | tojson }}",
      "");
}

TEST(ChatTemplateLimits, Memory) {
  expect_refused(
      "{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = ns.l + ['x' * 9999999] %}{% "
      "endfor %}",
      "values take more than");
  expect_refused(
      "{% set ns = namespace(l=[0]) %}{% for i in range(40) %}{% set ns.l = ns.l + ns.l %}{% endfor %}", "");
  expect_refused("{{ [0] * 9223372036854775807 }}", "allowed");
  expect_refused("{{ range(100001) }}", "allowed");
  expect_refused("{{ range(-9223372036854775807, 9223372036854775807) }}", "allowed");
  expect_refused("{{ [1] | batch(99999999, 0) | list }}", "allowed");
  expect_refused("{{ range(99999) | slice(99999999) | list }}", "more than");
}

TEST(ChatTemplateLimits, Depth) {
  expect_refused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested more than");
  expect_refused("{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested more than");
  expect_refused("{% macro m() %}{% call m() %}{% endcall %}{% endmacro %}{{ m() }}", "");
  expect_refused(
      "{% set ns = namespace(l=[]) %}{% for i in range(99999) %}{% set ns.l = [ns.l] %}{% endfor %}{{ ns.l "
      "}}",
      "deep");
  expect_refused(
      "{% set ns = namespace(l=[]) %}{% for i in range(999) %}{% set ns.l = {'k': ns.l} %}{% endfor %}"
      "{{ ns.l | tojson }}",
      "deep");
  expect_refused("{% set ns = namespace() %}{% set ns.self = ns %}{{ ns }}", "deep");
  expect_refused(
      "{% set ns = namespace(t=(1,)) %}{% for i in range(999) %}{% set ns.t = (ns.t,) %}{% endfor %}{{ "
      "{ns.t: 1} }}",
      "");
  // A pipeline of generators is walked recursively.
  expect_refused(
      "{% set ns = namespace(g=[1]) %}{% for i in range(9999) %}{% set ns.g = ns.g | map('string') %}{% "
      "endfor %}"
      "{{ ns.g | list }}",
      "nested more than");
  expect_refused(
      "{% set ns = namespace(g=[1]) %}{% for i in range(99999) %}{% set ns.g = ns.g | batch(1) %}{% endfor %}"
      "{{ ns.g | list }}",
      "nested more than");
  for (const auto& [open, close] : {std::pair{"(", ")"},
                                    {"[", "]"},
                                    {"{1:", "}"},
                                    {"-", ""},
                                    {"not ", ""},
                                    {"x(", ")"},
                                    {"x[", "]"},
                                    {"1 if 1 else ", ""},
                                    {"+", ""}}) {
    std::string source = "{{ " + repeat(open, 100000) + "1" + repeat(close, 100000) + " }}";
    EXPECT_NE(parse_error(source), "no error") << open;
  }
  for (const char* link :
       {".a", "[0]", "|upper", "()", " + 1", " * 2", " ** 1", " and 1", " or 1", " if 1"}) {
    EXPECT_NE(parse_error("{{ x" + repeat(link, 10000) + " }}").find("deep"), std::string::npos) << link;
  }
  EXPECT_NE(parse_error(repeat("{% if x %}", 10000)).find("deep"), std::string::npos);
  EXPECT_NE(parse_error("{{ '{' }}" + repeat("{% for i in x %}", 10000)).find("deep"), std::string::npos);
}

TEST(ChatTemplateLimits, Arithmetic) {
  expect_refused("{{ 1 / 0 }}", "division by zero");
  expect_refused("{{ 1 // 0 }}", "by zero");
  expect_refused("{{ 1 % 0 }}", "by zero");
  expect_refused("{{ 1.0 % 0 }}", "by zero");
  expect_refused("{{ 0 ** -1 }}", "zero");
  expect_refused("{{ 9223372036854775807 + 1 }}", "overflow");
  expect_refused("{{ -9223372036854775807 - 2 }}", "overflow");
  expect_refused("{{ 9999999999 * 9999999999 }}", "overflow");
  expect_refused("{{ 2 ** 64 }}", "overflow");
  expect_refused("{{ 3 ** 99999999 }}", "overflow");
  expect_refused("{{ (-9223372036854775807 - 1) // -1 }}", "overflow");
  expect_refused("{{ -(-9223372036854775807 - 1) }}", "overflow");
  expect_refused("{{ (-9223372036854775807 - 1) | abs }}", "overflow");
  expect_refused("{{ 99999999999999999999 + 1 }}", "beyond 64 bits");
  expect_refused("{{ 10.0 ** 999 }}", "too large");
  expect_refused("{{ [1, 2][::0] }}", "zero");
  EXPECT_EQ(render_text("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_EQ(render_text("{{ [1, 2, 3][::-9223372036854775807 - 1] }}{{ [1, 2][9223372036854775807:] }}"),
            "[3][]");
  EXPECT_EQ(render_text("{{ (range(10)[::9223372036854775807]) | list }}"), "[0]");
}

// Each of these once took more than linear time in something that no step counted.
TEST(ChatTemplateLimits, NothingIsQuadratic) {
  auto numbered = [](const char* format, size_t count) {
    std::string out;
    for (size_t i = 0; i < count; ++i) {
      for (const char* c = format; *c != '\0'; ++c) {
        if (*c == '#')
          out += std::to_string(i);
        else
          out += *c;
      }
    }
    return out;
  };
  std::string half = "'a' * 2999999";
  expect_refused(
      "{% set s = " + half + " %}{% for i in range(99999) %}{% set x = (s + 'b') in (s + s) %}{% endfor %}",
      kSteps);
  expect_refused(
      "{% set s = " + half + " %}{% for i in range(99999) %}{% set x = (s + s).rfind('b' + s) %}{% endfor %}",
      kSteps);
  expect_refused("{% set s = 'ab' * 9999 %}{% for i in range(99999) %}{% set x = s.strip(s) %}{% endfor %}",
                 kSteps);
  expect_refused("{% set s = " + half +
                     " %}{% set d = {s + 'a': 1, s + 'b': 2} %}{% for i in range(99999) %}"
                     "{% set x = d.get(s + 'c') %}{% endfor %}",
                 kSteps);
  expect_refused("{% set s = 'a' * 9999999 %}{{ dict([(s, 1)] * 99999) }}", kSteps);
  expect_refused(
      "{% set ns = namespace(a=(1,), b=(1,)) %}{% for i in range(60) %}{% set ns.a = (ns.a, ns.a) %}"
      "{% set ns.b = (ns.b, ns.b) %}{% endfor %}{{ {ns.a: 1, ns.b: 2} }}",
      kSteps);
  expect_refused("{% for i in range(99999) %}{% for j in range(99999) %}{{ " + std::string(999999, 'x') +
                     " }}"
                     "{% endfor %}{% endfor %}",
                 kSteps);
  expect_refused("{% for i in range(99999) %}" + numbered("{% set v# = 1 %}", 8000) + "{% endfor %}",
                 kSteps);
  expect_refused("{% for i in range(99999) %}{% for j in [1] %}{{ v0 }}{% endfor %}" +
                     numbered("{% set v# = 1 %}", 8000) +
                     "{% break %}{% endfor %}{% for i in range(99999) %}{% for j in [1] %}{% endfor %}" +
                     numbered("{% set w# = 1 %}", 8000) + "{% endfor %}",
                 kSteps);
  expect_refused("{{ range(99999) | map('string', *range(99999)) | list }}", "");
  EXPECT_EQ(render_text(numbered("{% if a# %}{% set b# = 1 %}{% endif %}", 5000)), "");
  EXPECT_EQ(render_text(numbered("{% for a# in [] %}{% endfor %}", 5000)), "");
  EXPECT_NE(parse_error("{{ f(" + numbered("a#=1,", 20000) + ") }}").find("more than 255"),
            std::string::npos);
  EXPECT_NE(parse_error("{% macro f(" + numbered("a#,", 40000) + "b) %}{% endmacro %}").find("more than 255"),
            std::string::npos);
}

TEST(ChatTemplateLimits, LongInputIsLinear) {
  const size_t mebi = 1u << 20;
  std::string text = repeat("word ", mebi);
  std::string messages = R"([{"role": "user", "content": ")" + text + R"("}])";
  double start = processor_s();
  EXPECT_EQ(
      render_text("{% for m in messages %}{{ m.content | trim }}{{ m.content.split() | length }}"
                  "{{ m.content.replace('word', 'w') | upper | length }}{{ m.content[-5:] }}{% endfor %}",
                  "", messages)
          .size(),
      text.size() - 1 + 7 + 7 + 5);
  EXPECT_LT(processor_s() - start, kMaxSeconds);
  // Some real templates look back over all messages at each one.
  std::string many = "[{\"role\": \"user\", \"content\": \"0123456789 0123456789\"}";
  for (int i = 1; i < 1000; ++i) many += R"(, {"role": "assistant", "content": "0123456789 0123456789"})";
  EXPECT_EQ(
      render_text(
          "{% for m in messages %}{% set ns = namespace(n=0) %}{% for i in range(loop.index0 - 1, -1, -1) %}"
          "{% if messages[i].role != 'user' %}{% set ns.n = ns.n + 1 %}{% endif %}{% endfor %}"
          "{% if loop.last %}{{ ns.n }}{% endif %}{% endfor %}",
          "", many + "]"),
      "998");
  EXPECT_EQ(render_text(repeat("{{ 1 }}", 20000)).size(), 20000u);
  EXPECT_NE(parse_error(repeat("x", 5u << 20)).find("allowed"), std::string::npos);
}

TEST(ChatTemplateLimits, WordsInTags) {
  // Parsed, each would take a hundred times its bytes.
  expect_refused(repeat("{{1}}", 800'000), "more than 100000 words and signs in tags");
  expect_refused(repeat("{%if x%}{%endif%}", 200'000), "more than 100000 words and signs in tags");
}

TEST(ChatTemplateLimits, ARefusalIsCut) {
  const std::string error = render_error("{{ raise_exception('x\n' * 100000) }}", "");
  EXPECT_LT(error.size(), 3'000u);
  EXPECT_EQ(error.find('\n'), std::string::npos);
}

}  // namespace
}  // namespace quintet
