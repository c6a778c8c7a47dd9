// What every verb has: help, flags that are checked, exit codes, one line of error. Needs no model.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <regex>

#include "cli/program.h"

namespace quintet::test {
namespace {

const Args kVerbs = {"run", "chat", "serve", "inspect", "tokenize", "template", "bench", "quantize", "eval"};

/// Arguments with which the verb gets as far as opening its model.
Args command(const std::string& verb, const std::string& model) {
  Args args = {verb, model};
  if (verb == "run" || verb == "tokenize") args.insert(args.end(), {"-p", "Hello"});
  if (verb == "template") args.insert(args.end(), {"-p", R"([{"role": "user", "content": "Hello"}])"});
  if (verb == "quantize") args.insert(args.end(), {testing::TempDir() + "quintet-usage-never-made", "--method", "rtn"});
  if (verb == "eval") args.insert(args.end(), {"--perplexity", source_path("LICENSE")});
  if (verb == "serve") args.insert(args.end(), {"--port", "0"});
  return args;
}

Args with(Args args, const Args& more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

TEST(Usage, VersionNamesCommitCompilerAndBackends) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("^quintet \\d+\\.\\d+\\.\\d+\\n"))) << outcome.out;
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("\\ncommit +([0-9a-f]{12}(-dirty)?|unknown)\\n")))
      << outcome.out;
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("\\ncompiler (gcc|clang) \\d+"))) << outcome.out;
  EXPECT_TRUE(std::regex_search(outcome.out, std::regex("\\nbackends .*cpu.*reference"))) << outcome.out;
}

TEST(Usage, HelpListsEveryVerb) {
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_EQ(outcome.err, "");
  for (const auto& verb : kVerbs) EXPECT_NE(outcome.out.find("\n  " + verb + " "), std::string::npos) << verb;
}

TEST(Usage, EveryVerbHasHelpWithExamplesAndTheCommonFlags) {
  for (const auto& verb : kVerbs) {
    const Outcome outcome = run({verb, "--help"});
    EXPECT_EQ(outcome.code, 0) << verb;
    EXPECT_EQ(outcome.err, "") << verb;
    const size_t examples = outcome.out.find("\nExamples:\n");
    ASSERT_NE(examples, std::string::npos) << verb;
    EXPECT_NE(outcome.out.find("quintet " + verb + " ", examples), std::string::npos) << verb;
    for (const char* flag :
         {"MODEL", "--device", "--threads", "--log-level", "--log-file", "Exit codes: 0 done"})
      EXPECT_NE(outcome.out.find(flag), std::string::npos) << verb << " " << flag;
    EXPECT_EQ(outcome.out.find('\x1b'), std::string::npos) << "colour in a pipe";
  }
}

TEST(Usage, HelpAndVersionHaveTheirOtherSpellings) {
  for (const auto& verb : kVerbs) EXPECT_EQ(run({"help", verb}).out, run({verb, "--help"}).out) << verb;
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  for (const char* other : {"-v", "-V", "version"})
    EXPECT_EQ(run({other}).out, run({"--version"}).out) << other;
  expect_error(run({"help", "sreve"}), 2, {"'sreve'"});
}

TEST(Usage, WhatIsMisspeltIsSuggested) {
  expect_error(run({"rnu"}), 2, {"'rnu'", "run"});
  expect_error(run({"sreve"}), 2, {"'sreve'", "did you mean serve?"});
  expect_error(run({"server"}), 2, {"'server'", "did you mean serve?"});
  expect_error(run({"tokenise"}), 2, {"did you mean tokenize?"});
  const Args right = command("run", "/nonexistent.gguf");
  expect_error(run(with(right, {"--temperature", "1"})), 2, {"flag '--temperature'", "did you mean --temp?"});
  expect_error(run(with(right, {"--temperature=1"})), 2, {"flag '--temperature'", "did you mean --temp?"});
  expect_error(run(with(right, {"--max-tokens", "7"})), 2, {"'--max-tokens'", "did you mean --tokens?"});
  expect_error(run(with(right, {"--topp", "0.5"})), 2, {"did you mean --top-p?"});
  const Outcome far = run(with(right, {"--frobnicate"}));
  EXPECT_EQ(far.err.find("did you mean"), std::string::npos) << far.err;
  expect_error(run(with(right, {"one", "two"})), 2, {"'one'", "no flag takes"});
}

TEST(Usage, TheVerbIsChecked) {
  expect_error(run({}), 2, {"no verb", "run, chat, serve, inspect, tokenize, template, bench, quantize, convert, eval"});
  expect_error(run({"frobnicate"}), 2,
               {"'frobnicate'", "run, chat, serve, inspect, tokenize, template, bench, quantize, convert, eval"});
  expect_error(run({"--frobnicate"}), 2, {"'--frobnicate'"});
}

TEST(Usage, CommonFlagsAreChecked) {
  for (const auto& verb : kVerbs) {
    const Args right = command(verb, "/nonexistent.gguf");
    expect_error(run({verb}), 2, {"quintet " + verb, "MODEL", "required"});
    expect_error(run(with(right, {"--frobnicate"})), 2, {"quintet " + verb, "--frobnicate"});
    expect_error(run(with(right, {"--device", "tpu"})), 2, {"--device", "'tpu'", "allowed are auto, ", "cpu, reference"});
    expect_error(run(with(right, {"--device", "cuda:x"})), 2, {"--device", "'cuda:x'", "allowed are auto, "});
    expect_error(run(with(right, {"--device", "cuda:-1"})), 2, {"--device", "'cuda:-1'", "allowed are auto, "});
    expect_error(run(with(right, {"--device", "cpu:1"})), 2, {"--device", "'cpu:1'"});
    expect_error(run(with(right, {"--cuda-path", "volta"})), 2, {"--cuda-path", "'volta'", "allowed are auto, hopper, sm80"});
    expect_error(run(with(right, {"--threads", "two"})), 2, {"--threads", "'two'", "0 to 1024"});
    expect_error(run(with(right, {"--threads", "-1"})), 2, {"--threads", "'-1'", "0 to 1024"});
    expect_error(run(with(right, {"--threads"})), 2, {"--threads"});
    expect_error(run(with(right, {"--log-level", "loud"})), 2,
                 {"--log-level", "'loud'", "trace, debug, info, warn, error, off"});
  }
}

TEST(Usage, ADeviceThatIsNotThereIsAnError) {
  const Args right = command("run", source_path("tests/golden/tiny/llama3.gguf"));
  // An ordinal that does not exist; on a machine without a GPU there is none at all; or the build does not know them.
  expect_error(run(with(right, {"--device", "cuda:99"})), 2, {"--device", "cuda"});
  expect_error(run(with(right, {"--device", "cuda:99", "--cuda-path", "sm80"})), 2, {"--device", "cuda"});
}

TEST(Usage, FlagsOfRunAreChecked) {
  const Args right = command("run", "/nonexistent.gguf");
  const auto check = [&](const Args& more, const std::vector<std::string>& parts) {
    SCOPED_TRACE(more.front());
    expect_error(run(with(right, more)), 2, parts);
  };
  check({"--temp", "hot"}, {"--temp", "'hot'", "0 to 100"});
  check({"--temp", "nan"}, {"--temp", "'nan'", "0 to 100"});
  check({"--temp", "-0.5"}, {"--temp", "'-0.5'"});
  check({"--temp", ""}, {"--temp", "''"});
  check({"--top-p", "1.5"}, {"--top-p", "'1.5'", "0 to 1"});
  check({"--min-p", "inf"}, {"--min-p", "'inf'"});
  check({"--top-k", "-3"}, {"--top-k", "'-3'"});
  check({"--top-k", "99999999999999999999"}, {"--top-k", "'99999999999999999999'"});
  check({"--repeat-penalty", "0"}, {"--repeat-penalty", "'0'"});
  check({"--seed", "1.5"}, {"--seed", "'1.5'", "64 bits"});
  check({"--seed", "18446744073709551616"}, {"--seed", "'18446744073709551616'"});
  check({"--seed", "-9223372036854775808"}, {"/nonexistent.gguf"});  // a seed; what is wrong is the model
  check({"--seed", "18446744073709551615"}, {"/nonexistent.gguf"});
  check({"--presence-penalty", "2.5"}, {"--presence-penalty", "'2.5'", "-2 to 2"});
  check({"--frequency-penalty", "-3"}, {"--frequency-penalty", "'-3'", "-2 to 2"});
  check({"--stop", ""}, {"--stop", "0 bytes", "1 to 1024"});
  check({"-n", "-2"}, {"--tokens", "'-2'"});
  check({"-n", "many"}, {"--tokens", "'many'"});
  check({"--context", "1"}, {"--context", "'1'"});
  check({"-f", "file.txt"}, {"--file", "--prompt"});
  check({"--raw", "--system", "You are"}, {"--system", "--raw"});
  check({"--special"}, {"--special", "--raw"});
  check({"more"}, {"more"});
  check({"--dump-logits", "/nonexistent/folder/x.npy"}, {"/nonexistent/folder/x.npy"});
  check({"--dump-logits", "/"}, {"/: found a folder"});
}

TEST(Usage, FlagsOfOtherVerbsAreChecked) {
  const std::string model = "/nonexistent.gguf";
  expect_error(run({"serve", model, "--port", "70000"}), 2, {"--port", "'70000'", "0 to 65535"});
  expect_error(run({"serve", model, "--sequences", "0"}), 2, {"--sequences", "'0'", "1 to 1024"});
  expect_error(run({"serve", model, "--kv-tokens", "10"}), 2, {"--kv-tokens", "'10'", "256"});
  expect_error(run({"serve", model, "--kv-tokens", "256", "--sequences", "17"}), 2,
               {"--kv-tokens", "256", "272", "17 requests"});
  expect_error(run({"serve", model, "--kv-tokens", "300", "--context", "512"}), 2,
               {"--kv-tokens", "300", "512", "--context"});
  // The address is looked at before the model.
  expect_error(run({"serve", model, "--host", "999.1.1.1"}), 2, {"--host", "'999.1.1.1'"});
  expect_error(run({"serve", model, "--host", "203.0.113.7"}), 2, {"203.0.113.7", "Cannot assign"});
  expect_error(run({"serve", model, "--api-key-file", "/nonexistent.key"}), 2,
               {"/nonexistent.key", "No such file"});
  expect_error(run({"bench", model, "--decode", "1"}), 2, {"--decode", "'1'"});
  expect_error(run({"bench", model, "--repetitions", "0"}), 2, {"--repetitions", "'0'"});
  expect_error(run({"chat", model, "--overflow", "ignore"}), 2,
               {"--overflow", "'ignore'", "error, drop-turns"});
  expect_error(run({"chat", model, "--system", "\xff"}), 2, {"--system", "0xff", "UTF-8"});
  expect_error(run({"tokenize", model, "--jsonl", "-p", "x"}), 2, {"--jsonl", "--prompt"});
  expect_error(run({"tokenize", model, "-p", "x", "--pieces", "--decode"}), 2, {"--pieces", "--decode"});
}

TEST(Usage, EmptyValuesAreRefused) {
  // As if the flag were not there would be worse: --host "" once meant every interface.
  const Args flags[] = {{"run", "--tokenizer"},    {"run", "--chat-template"},  {"run", "--dump-logits"},
                        {"run", "--log-file"},     {"run", "--file"},           {"serve", "--host"},
                        {"serve", "--model-name"}, {"serve", "--api-key-file"}, {"serve", "--cors-origin"}};
  for (const Args& flag : flags)
    expect_error(run({flag[0], "/nonexistent.gguf", flag[1], ""}), 2, {flag[1], "found nothing"});
}

TEST(Usage, FlagsOfOneValueAreGivenOnce) {
  const std::string model = "/nonexistent.gguf";
  expect_error(run({"run", model, "-p", "x", "--temp", "1", "--temp", "2"}), 2, {"--temp"});
  expect_error(run({"serve", model, "--host", "127.0.0.1", "--host", "::1"}), 2, {"--host"});
  expect_error(run({"tokenize", model, "-p", "x", "--log-level", "warn", "--log-level", "info"}), 2,
               {"--log-level"});
}

TEST(Usage, WhatReachesHeadersAndLogsIsChecked) {
  const std::string model = "/nonexistent.gguf";
  expect_error(run({"serve", model, "--cors-origin", "http://a\r\nX-Evil: 1"}), 2,
               {"--cors-origin", "\\x0d"});
  expect_error(run({"serve", model, "--model-name", "m\x1b[31m"}), 2, {"--model-name", "\\x1b"});
  const TemporaryFolder folder;
  expect_error(run({"serve", model, "--api-key-file", folder.write("two", "a\nb\n")}), 2,
               {"two", "one line"});
  expect_error(run({"serve", model, "--api-key-file", folder.write("long", std::string(10'000, 'x'))}), 2,
               {"long", "4.0 KiB"});
}

TEST(Usage, ATakenPortIsToldBeforeTheModelIsLoaded) {
  const int listener = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t bytes = sizeof address;
  ASSERT_EQ(::bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener, 1), 0);
  ASSERT_EQ(::getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  expect_error(run({"serve", "/nonexistent.gguf", "--port", std::to_string(ntohs(address.sin_port))}), 1,
               {"cannot listen on 127.0.0.1:", "in use"});
  ::close(listener);
}

TEST(Usage, TextsAreChecked) {
  const std::string model = "/nonexistent.gguf";
  expect_error(run({"run", model, "-p", ""}), 2, {"prompt", "empty"});
  expect_error(run({"run", model}, ""), 2, {"standard input", "prompt", "empty", "-p TEXT", "-f FILE"});
  expect_error(run({"run", model, "-f", "/nonexistent.txt"}), 2,
               {"/nonexistent.txt", "prompt", "No such file"});
  expect_error(run({"run", model, "-f", "/"}), 2, {"/ (prompt)", "directory"});
  expect_error(run({"template", model}, "{"), 2, {"standard input", "JSON"});
  expect_error(run({"template", model}, "3"), 2, {"standard input", "an integer", "list of messages"});
  expect_error(run({"template", model}, std::string(1'000'000, '[')), 2, {"standard input", "64"});
  expect_error(run({"template", model}, "[{\"role\": \"user\", \"content\": \"\\ud800\"}]"), 2,
               {"standard input"});
  // Messages are read as the server reads them.
  expect_error(run({"template", model}, R"([{"role": "user", "content": ""}, 7])"), 2,
               {"standard input", "messages[1]", "an integer", "object"});
  expect_error(run({"template", model}, R"([{"content": "x"}])"), 2, {"Missing", "messages[0].role"});
  expect_error(run({"template", model}, R"([{"role": 3}])"), 2, {"messages[0].role", "integer", "string"});
  expect_error(run({"template", model}, R"([{"role": "king", "content": "x"}])"), 2,
               {"messages[0].role", "king", "assistant"});
  expect_error(run({"template", model}, R"([{"role": "user", "content": [{"type": "image_url"}]}])"), 2,
               {"messages[0].content[0].type", "image_url"});
  expect_error(run({"template", model}, R"({"messages": [], "tools": [1]})"), 2,
               {"standard input", "tools[0]"});
  // What is no JSON is named by where it came from.
  expect_error(run({"template", model, "-p", "not json"}), 2, {"--prompt: Invalid JSON at byte"});
  expect_error(run({"template", model, "-f", source_path("LICENSE")}), 2, {"LICENSE: Invalid JSON"});
  expect_error(run({"template", model}, R"([{"role": "user", "role": "user"}])"), 2,
               {"standard input: [0].role: Duplicate key"});
  // A terminal with nothing typed is not waited for.
  Program program({"run", model}, Program::Streams::terminal);
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.code, 2);
  EXPECT_NE(outcome.err.find("no prompt: give -p TEXT, -f FILE or a pipe"), std::string::npos) << outcome.err;
}

TEST(Usage, WhatIsNoModelIsRefusedByEveryVerb) {
  const TemporaryFolder folder;
  std::string garbage(100'000, '\0');
  for (size_t i = 0; i < garbage.size(); ++i) garbage[i] = static_cast<char>((i * 2654435761u) >> 13);
  const struct {
    std::string path;
    std::vector<std::string> parts;
  } cases[] = {
      {"/nonexistent/model.gguf", {"/nonexistent/model.gguf"}},
      {folder.path(""), {folder.path("")}},
      {folder.write("empty.gguf", ""), {"empty.gguf"}},
      {folder.write("magic.gguf", "GGUF"), {"magic.gguf"}},
      {folder.write("garbage.gguf", garbage), {"garbage.gguf"}},
      {folder.write("two\nlines\x1b[31m.gguf", "no"), {"two\\nlines\\x1b[31m.gguf"}},
      {"/dev/null", {"/dev/null"}},
      {"", {}},
  };
  for (const auto& verb : kVerbs)
    for (const auto& [path, parts] : cases) {
      SCOPED_TRACE(fmt::format("{} '{}'", verb, path));
      expect_error(run(command(verb, path)), 2, parts);
    }
}

TEST(Usage, ATruncatedModelIsRefusedByEveryVerb) {
  const std::string model = read_file(source_path("tests/golden/data/tiny/llama-plain.gguf"));
  ASSERT_GT(model.size(), 100'000u);
  const TemporaryFolder folder;
  for (const auto& verb : kVerbs)
    for (const size_t bytes : {size_t{5}, size_t{24}, size_t{1000}, model.size() / 2, model.size() - 1}) {
      SCOPED_TRACE(fmt::format("{} {}", verb, bytes));
      expect_error(run(command(verb, folder.write("cut.gguf", model.substr(0, bytes)))), 2, {"cut.gguf"});
    }
}

TEST(Usage, AClosedOutputEndsQuietly) {
  Program program({"run", "--help"});
  program.close_output();
  const Outcome outcome = program.finish();
  // Either it wrote before the pipe was closed, or it ended as SIGPIPE would have ended it; never with a
  // message.
  EXPECT_TRUE(outcome.code == 141 || outcome.code == 0) << outcome.code;
  EXPECT_EQ(outcome.err, "");
}

TEST(Usage, AFullOutputIsAnError) {
  Program program({"--help"}, Program::Streams::pipes, "/dev/full");
  expect_error(program.finish(), 1, {"standard output: No space left"});
}

TEST(Usage, TheLogGoesToAFile) {
  const TemporaryFolder folder;
  const std::string log = folder.path("log.txt");
  const Outcome outcome = run({"run", source_path("tests/golden/data/tiny/llama-plain.gguf"), "--raw", "-p",
                               "x", "-n", "1", "--log-level", "debug", "--log-file", log});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(read_file(log).find("loaded in"), std::string::npos) << read_file(log);
  EXPECT_EQ(outcome.err.find("loaded in"), std::string::npos) << outcome.err;
  // Folders are not made for it.
  expect_error(run({"inspect", "x.gguf", "--log-file", folder.path("a/b/log")}), 2,
               {"--log-file", "a/b/log", "No such file"});
  EXPECT_FALSE(std::filesystem::exists(folder.path("a")));
  expect_error(run({"inspect", "x.gguf", "--log-file", folder.path("")}), 2,
               {"--log-file", "found a folder"});
}

}  // namespace
}  // namespace quintet::test
