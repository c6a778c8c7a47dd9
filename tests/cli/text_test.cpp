// tokenize and template on real vocabularies: ids of Hugging Face tokenizers, line by line, there and back.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "cli/program.h"

namespace quintet::test {
namespace {

using Json = nlohmann::json;

std::string vocabulary(const std::string& name) {
  return source_path(".cache/vocab/ggml-vocab-" + name + ".gguf");
}

std::vector<Json> lines_of(const std::string& text) {
  std::vector<Json> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(Json::parse(line, nullptr, false));
  return lines;
}

/// The strings of an .inp file, as its makers divide them.
std::vector<std::string> cut(const std::string& text, const std::string& mark) {
  std::vector<std::string> parts;
  size_t begin = 0;
  for (size_t end; (end = text.find(mark, begin)) != std::string::npos; begin = end + mark.size())
    parts.push_back(text.substr(begin, end - begin));
  parts.push_back(text.substr(begin));
  return parts;
}

TEST(Tokenize, LinesGiveTheIdsOfTheReferenceTokenizers) {
  for (const std::string name : {"llama-bpe", "llama-spm", "qwen2", "gpt-2", "deepseek-llm", "phi-3"}) {
    SCOPED_TRACE(name);
    const std::string path = vocabulary(name);
    NEED_FILE(path, "make vocab");
    const auto strings = cut(read_file(path + ".inp"), "\n__ggml_vocab_test__\n");
    std::string input;
    for (const auto& text : strings) input += Json(text).dump() + "\n";
    const Outcome outcome = run({"tokenize", path, "--jsonl"}, input);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    const auto lines = lines_of(outcome.out);
    std::istringstream wanted(read_file(path + ".out"));
    std::string line;
    for (size_t i = 0; i < lines.size() && std::getline(wanted, line); ++i) {
      std::istringstream ids(line);
      EXPECT_EQ(lines[i].get<std::vector<int>>(), std::vector<int>(std::istream_iterator<int>(ids), {}))
          << Json(strings[i]).dump();
    }
    EXPECT_EQ(lines.size(), strings.size());
  }
}

TEST(Tokenize, EveryLineIsAnsweredWhateverStandsInIt) {
  const std::string path = vocabulary("llama-bpe");
  NEED_FILE(path, "make vocab");
  const std::string input =
      "\"good\"\n\"\\ud800\"\n\"\xff\"\n{\"a\": 1}\n\nnull\n\"a\" \"b\"\n\"\\u0000\"\n\"\"\n[[[[[[\n\"last\"";
  const Outcome outcome = run({"tokenize", path, "--jsonl"}, input);
  EXPECT_EQ(outcome.code, 2);
  EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  EXPECT_NE(outcome.err.find("7 of 11 lines"), std::string::npos) << outcome.err;
  EXPECT_NE(outcome.err.find("line 2:"), std::string::npos) << outcome.err;
  const auto lines = lines_of(outcome.out);
  ASSERT_EQ(lines.size(), 11u);
  for (const size_t good : {0, 7, 8, 10}) EXPECT_TRUE(lines[good].is_array()) << good;
  for (const size_t bad : {1, 2, 3, 4, 5, 6, 9}) {
    ASSERT_TRUE(lines[bad].is_object()) << bad;
    EXPECT_TRUE(lines[bad]["error"].get<std::string>().starts_with(fmt::format("line {}: ", bad + 1)));
  }
  EXPECT_EQ(lines[8].size(), 0u);
}

TEST(Tokenize, ManyLinesAndLongOnes) {
  const std::string path = vocabulary("llama-bpe");
  NEED_FILE(path, "make vocab");
  std::mt19937 random(std::random_device{}());
  std::string input;
  std::vector<std::string> strings;
  const auto word = [&] {
    static const std::string kParts[] = {"the ", "Quintet", " 1234", "\n",        "é",
                                         "日本", "🙂",    "\t  ",  "def f(x):", "'s"};
    return kParts[random() % std::size(kParts)];
  };
  for (int i = 0; i < 20'000; ++i) {
    std::string text;
    const size_t words = i == 777 ? 100'000 : random() % 6;
    for (size_t j = 0; j < words; ++j) text += word();
    input += Json(text).dump() + "\n";
    strings.push_back(std::move(text));
  }
  const Outcome ids = run({"tokenize", path, "--jsonl"}, input);
  ASSERT_EQ(ids.code, 0) << ids.err;
  const Outcome back = run({"tokenize", path, "--jsonl", "--decode"}, ids.out);
  ASSERT_EQ(back.code, 0) << back.err;
  const auto lines = lines_of(back.out);
  ASSERT_EQ(lines.size(), strings.size());
  for (size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i], strings[i]) << i;
}

TEST(Tokenize, ALineIsAnsweredBeforeTheNextOneComes) {
  const std::string path = vocabulary("gpt-2");
  NEED_FILE(path, "make vocab");
  Program program({"tokenize", path, "--jsonl"});
  for (int i = 0; i < 3; ++i) {
    program.write("\"hello\"\n");
    EXPECT_TRUE(program.wait_out("[31373]\n"));
  }
  EXPECT_EQ(program.finish().code, 0);
}

TEST(Tokenize, TextPiecesAndBack) {
  const std::string path = vocabulary("llama-bpe");
  NEED_FILE(path, "make vocab");
  const Outcome ids = run({"tokenize", path, "-p", "Hello world"});
  EXPECT_EQ(ids.code, 0);
  EXPECT_EQ(ids.out, "9906 1917\n");
  EXPECT_EQ(run({"tokenize", path, "-p", "Hello world", "--bos"}).out, "128000 9906 1917\n");
  EXPECT_EQ(run({"tokenize", path, "-p", "<|begin_of_text|>", "--special"}).out, "128000\n");
  EXPECT_NE(run({"tokenize", path, "-p", "<|begin_of_text|>"}).out, "128000\n");
  EXPECT_EQ(run({"tokenize", path, "--pieces"}, "Hello world\n").out,
            "9906\t\"Hello\"\n1917\t\" world\"\n198\t\"\\n\"\n");
  EXPECT_EQ(run({"tokenize", path, "--decode", "-p", "9906 1917"}).out, "Hello world\n");
  EXPECT_EQ(run({"tokenize", path, "--decode"}, "[9906, 1917]\n").out, "Hello world\n");
  EXPECT_EQ(run({"tokenize", path, "--decode", "--special", "-p", "128000,9906"}).out,
            "<|begin_of_text|>Hello\n");
  EXPECT_EQ(run({"tokenize", path, "-p", ""}).out, "\n");
}

TEST(Tokenize, IdsAreChecked) {
  const std::string path = vocabulary("llama-bpe");
  NEED_FILE(path, "make vocab");
  for (const std::string bad : {"128256", "-1", "1.5", "abc", "99999999999999999999"})
    expect_error(run({"tokenize", path, "--decode", "-p", "1 " + bad}), 2,
                 {"'" + bad + "'", "after 1 ids", "0 to 128255"});
  const Outcome lines =
      run({"tokenize", path, "--jsonl", "--decode"}, "[1, 128256]\n[1.5]\n[-1]\n\"x\"\n[1]\n");
  EXPECT_EQ(lines.code, 2);
  EXPECT_NE(lines.err.find("4 of 5 lines"), std::string::npos) << lines.err;
  EXPECT_EQ(lines_of(lines.out).back(), "\"");
}

TEST(Tokenize, AnotherTokenizerMayBeTaken) {
  const std::string llama = vocabulary("llama-bpe"), gpt = vocabulary("gpt-2");
  NEED_FILE(llama, "make vocab");
  EXPECT_EQ(run({"tokenize", llama, "--tokenizer", gpt, "-p", "hello"}).out,
            run({"tokenize", gpt, "-p", "hello"}).out);
  expect_error(run({"tokenize", llama, "--tokenizer", "/nonexistent.json", "-p", "x"}), 2,
               {"/nonexistent.json"});
}

TEST(Template, RendersWithToolsAndWithoutAPrompt) {
  const std::string path = vocabulary("llama-bpe");
  NEED_FILE(path, "make vocab");
  const TemporaryFolder folder;
  const std::string jinja = folder.write(
      "t.jinja",
      "{{ bos_token }}{% for m in messages %}[{{ m.role }}: {{ m.content }}]{% endfor %}"
      "{% if tools %}{{ tools | length }} tools{% endif %}{% if add_generation_prompt %}>{% endif %}");
  const std::string messages = folder.write("m.json", R"([{"role": "user", "content": "Grüße <|eot_id|>"}])");
  const std::string tools = folder.write(
      "tools.json",
      R"([{"type": "function", "function": {"name": "a"}}, {"type": "function", "function": {"name": "b"}}])");
  const Args args = {"template", path, "-f", messages, "--chat-template", jinja};
  const auto more = [&](const Args& extra) {
    Args all = args;
    all.insert(all.end(), extra.begin(), extra.end());
    return all;
  };
  EXPECT_EQ(run(args).out, "<|begin_of_text|>[user: Grüße <|eot_id|>]>");
  EXPECT_EQ(run(more({"--no-generation-prompt"})).out, "<|begin_of_text|>[user: Grüße <|eot_id|>]");
  EXPECT_EQ(run(more({"--tools", tools})).out, "<|begin_of_text|>[user: Grüße <|eot_id|>]2 tools>");
  const std::string both =
      R"({"messages": [{"role": "user", "content": "x"}], "tools": [{"type": "function", "function": {"name": "a"}}]})";
  EXPECT_EQ(run({"template", path, "--chat-template", jinja}, both).out,
            "<|begin_of_text|>[user: x]1 tools>");
  expect_error(run(more({"--tools", messages + ".absent"})), 2, {"m.json.absent"});
  expect_error(run(more({"--tools", folder.write("bad.json", "{}")})), 2,
               {"bad.json", "tools", "an object", "a list"});
  expect_error(run(more({"--tools", folder.write("bad.json", R"([{"type": "function"}])")})), 2,
               {"bad.json", "tools[0].function"});
  expect_error(run(more({"--tools", folder.write("bad.json", "not json")})), 2, {"bad.json: Invalid JSON"});
  const std::string plain = folder.write("plain.jinja", "{{ messages[0].content }}");
  expect_error(run({"template", path, "-f", messages, "--chat-template", plain, "--tools", tools}), 2,
               {"tools.json", "takes none", "--chat-template FILE"});
  EXPECT_EQ(run({"template", path, "-f", messages, "--chat-template", plain, "--tools",
                 folder.write("none.json", "[]")})
                .code,
            0);
  expect_error(run({"template", path, "-f", messages}), 2, {"no chat template", "--chat-template FILE"});
  const std::string raises = folder.write("raises.jinja", "{{ raise_exception('Only users may speak') }}");
  expect_error(run({"template", path, "-f", messages, "--chat-template", raises}), 2,
               {"raises.jinja: chat template", "Only users may speak"});
  const std::string endless = folder.write("endless.jinja",
                                           "{% for a in range(100000) %}{% for b in range(100000) %}{% for c "
                                           "in range(100000) %}{% endfor %}{% endfor %}{% endfor %}");
  expect_error(run({"template", path, "-f", messages, "--chat-template", endless}), 2,
               {"endless.jinja: chat template"});
}

TEST(Template, MessagesComeAsTheServerReadsThem) {
  const std::string path = vocabulary("llama-bpe");
  NEED_FILE(path, "make vocab");
  const TemporaryFolder folder;
  const std::string jinja =
      folder.write("t.jinja",
                   "{% for m in messages %}{{ m.role }}: {{ m.content }}{% for c in m.tool_calls or [] %}"
                   "{{ c.function.name }}({{ c.function.arguments | tojson }}){% endfor %};{% endfor %}");
  const auto rendered = [&](std::string_view messages) {
    return run({"template", path, "--chat-template", jinja}, messages).out;
  };
  EXPECT_EQ(
      rendered(
          R"([{"role": "user", "content": [{"type": "text", "text": "part "}, {"type": "text", "text": "two"}]}])"),
      "user: part two;");
  EXPECT_EQ(rendered(R"([{"role": "developer", "content": "x"}])"), "system: x;");
  // OpenAI's clients send arguments as a string that holds JSON; templates print an object.
  const auto call = [](const std::string& arguments) {
    return R"([{"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function", "function": )"
           R"({"name": "f", "arguments": )" +
           arguments + "}}]}]";
  };
  EXPECT_EQ(rendered(call(R"({"b": 1, "a": [2]})")), R"(assistant: f({"b": 1, "a": [2]});)");
  EXPECT_EQ(rendered(call(R"("{\"b\": 1, \"a\": [2]}")")), R"(assistant: f({"b": 1, "a": [2]});)");
  EXPECT_EQ(rendered(call(R"("{broken")")), R"(assistant: f("{broken");)");
}

TEST(Template, TextThatIsNotReadIsNoted) {
  const std::string path = vocabulary("llama-bpe");
  NEED_FILE(path, "make vocab");
  const Outcome ignored = run({"tokenize", path, "-p", "Hello world"}, "something else");
  EXPECT_EQ(ignored.code, 0);
  EXPECT_EQ(ignored.out, "9906 1917\n");
  EXPECT_EQ(ignored.err, "note: standard input is not read, the text comes from --prompt\n");
  EXPECT_EQ(run({"tokenize", path, "-p", "Hello world"}).err, "");
  EXPECT_EQ(run({"tokenize", path, "-f", "-"}, "Hello world").err, "");
}

}  // namespace
}  // namespace quintet::test
