// The verbs on SmolLM2: what it answers, that it streams, and what signals and closed pipes do to it.
#include <signal.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/program.h"

namespace quintet::test {
namespace {

using Json = nlohmann::json;

const std::string& model() {
  static const std::string path = source_path("models/SmolLM2-135M-Instruct.Q4_1.gguf");
  return path;
}

// One thread: tests run beside others, and threads that wait for each other then wait for the others too.
constexpr const char* kThreads = "--threads=1";
constexpr const char* kFetch = "make models";
constexpr const char* kLongQuestion = "Tell me a very long story about a dragon, in many chapters.";

TEST(RealRun, NamesParis) {
  NEED_FILE(model(), kFetch);
  const Outcome outcome = run({"run", model(), kThreads, "-p", "What is the capital of France?"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "The capital of France is Paris.\n");
  EXPECT_EQ(outcome.err.find('\r'), std::string::npos) << "a progress bar in a pipe";
  const Json answer = Json::parse(
      run({"run", model(), kThreads, "-p", "What is the capital of France?", "--json"}).out, nullptr, false);
  EXPECT_EQ(answer["finish_reason"], "stop");
  EXPECT_EQ(answer["text"], "The capital of France is Paris.");
  EXPECT_EQ(answer["tokens"].size(), answer["usage"]["completion_tokens"]);
}

TEST(RealRun, WhatLooksSpecialInAQuestionIsText) {
  NEED_FILE(model(), kFetch);
  const auto prompt_tokens = [](const std::string& text) {
    return Json::parse(
               run({"run", model(), kThreads, "-n", "1", "--json", "-p", text}).out)["usage"]["prompt_tokens"]
        .get<int>();
  };
  // One special token against the eight tokens of its text: |im_end| counts as text only.
  EXPECT_GE(prompt_tokens("<|im_end|>"), prompt_tokens("x") + 5);
}

TEST(RealRun, StreamsAndStopsOnSignals) {
  NEED_FILE(model(), kFetch);
  for (const auto& [number, code] : {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}}) {
    Program program({"run", model(), kThreads, "-p", kLongQuestion, "-n", "4000"});
    ASSERT_TRUE(program.wait_out(" "));  // a first word while the answer goes on
    program.send_signal(number);
    const Outcome outcome = program.finish();
    EXPECT_EQ(outcome.code, code) << outcome.err;
    EXPECT_FALSE(outcome.killed);
    EXPECT_TRUE(outcome.out.ends_with("\n"));
    EXPECT_NE(outcome.err.find("decode "), std::string::npos) << outcome.err;
  }
}

TEST(RealRun, ASignalEndsJsonWithWhatThereIs) {
  NEED_FILE(model(), kFetch);
  Program program(
      {"run", model(), kThreads, "-p", kLongQuestion, "-n", "4000", "--json", "--log-level", "debug"});
  ASSERT_TRUE(program.wait_err("memory: "));  // the engine has started
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  program.send_signal(SIGINT);
  const Outcome outcome = program.finish();
  if (outcome.killed) GTEST_SKIP() << "the signal came before the engine was ready";
  EXPECT_EQ(outcome.code, 130) << outcome.err;
  const Json answer = Json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(answer.is_object()) << outcome.out;
  EXPECT_EQ(answer["finish_reason"], "cancelled");
}

TEST(RealRun, AReaderThatLeavesEndsItQuietly) {
  NEED_FILE(model(), kFetch);
  Program program({"run", model(), kThreads, "-p", kLongQuestion, "-n", "4000"});
  ASSERT_TRUE(program.wait_out(" "));
  program.close_output();
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.code, 141);
  EXPECT_EQ(outcome.err, "");
}

/// A prompt whose computing takes a while.
std::string long_prompt(const TemporaryFolder& folder, int words) {
  std::string text;
  for (int i = 0; i < words; ++i) text += "word ";
  return folder.write("text", text);
}

TEST(RealRun, AnInterruptedDumpLeavesNothing) {
  NEED_FILE(model(), kFetch);
  // Once: after the piece that is being computed. Twice, or by another signal: at once.
  for (const auto& signals : {std::vector{SIGINT}, {SIGINT, SIGINT}, {SIGHUP}}) {
    SCOPED_TRACE(signals.size());
    const TemporaryFolder folder;
    Program program({"run", model(), kThreads, "--raw", "-f", long_prompt(folder, 7000), "-n", "0",
                     "--dump-logits", folder.path("x.npy"), "--log-level", "info"});
    ASSERT_TRUE(program.wait_err("loaded in"));
    std::this_thread::sleep_for(std::chrono::milliseconds(500));  // it computes for many seconds
    for (const int number : signals) {
      program.send_signal(number);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // two at once would count as one
    }
    const Outcome outcome = program.finish();
    EXPECT_EQ(outcome.code, 128 + signals[0]) << outcome.err;
    std::vector<std::string> left;
    for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
      left.push_back(entry.path().filename());
    EXPECT_EQ(left, std::vector<std::string>{"text"});
  }
}

TEST(RealRun, APromptThatIsCutOffHasNoSpeeds) {
  NEED_FILE(model(), kFetch);
  const TemporaryFolder folder;
  Program program(
      {"run", model(), kThreads, "--raw", "-f", long_prompt(folder, 7000), "--log-level", "debug"});
  ASSERT_TRUE(program.wait_err("memory: "));  // the engine has started
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  program.send_signal(SIGINT);
  const Outcome outcome = program.finish();
  if (outcome.killed) GTEST_SKIP() << "the signal came before the engine was ready";
  EXPECT_EQ(outcome.code, 130);
  EXPECT_NE(outcome.err.find(" tokens, cancelled before the first token\n"), std::string::npos)
      << outcome.err;
}

TEST(RealRun, ALogLineTakesTheProgressBarAway) {
  NEED_FILE(model(), kFetch);
  Program program({"run", model(), kThreads, "-p", "x", "-n", "1", "--log-level", "info"},
                  Program::Streams::terminal);
  const Outcome outcome = program.finish();
  const size_t line = outcome.err.find(model() + ": loaded in");
  ASSERT_NE(line, std::string::npos) << outcome.err;
  const std::string before = outcome.err.substr(0, line);
  const size_t bar = before.rfind("load [");
  if (bar == std::string::npos) GTEST_SKIP() << "the model was loaded before a bar was drawn";
  EXPECT_NE(before.find("\r\x1b[K", before.find("\x1b[K", bar) + 3), std::string::npos) << before;
}

TEST(RealTemplate, IsTheModelsOwn) {
  NEED_FILE(model(), kFetch);
  EXPECT_EQ(
      run({"template", model()}, R"([{"role": "user", "content": "Hi"}])").out,
      "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
      "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_EQ(run({"template", model(), "--no-generation-prompt"},
                R"([{"role": "system", "content": "S"}, {"role": "user", "content": "Hi"}])")
                .out,
            "<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n");
}

TEST(RealTemplate, ToolsThatItWouldDropAreRefused) {
  NEED_FILE(model(), kFetch);
  const TemporaryFolder folder;
  const std::string tools =
      folder.write("tools.json", R"([{"type": "function", "function": {"name": "f"}}])");
  const std::string messages = folder.write("m.json", R"([{"role": "user", "content": "Hi"}])");
  expect_error(run({"template", model(), "-f", messages, "--tools", tools}), 2, {"tools.json", "takes none"});
  const std::string qwen = source_path("models/qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf");
  NEED_FILE(qwen, "make models-all");
  EXPECT_NE(run({"template", qwen, "-f", messages, "--tools", tools}).out.find("\"name\": \"f\""),
            std::string::npos);
}

TEST(RealInspect, NamesSchemes) {
  const struct {
    const char* file;
    const char* scheme;
    const char* architecture;
    const char* fetch;
  } cases[] = {
      {"models/SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1", "llama", "make models"},
      {"models/gemma-3-270m.Q4_K_M.gguf", "Q4_K_M", "gemma3", "make models"},
      {"models/qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf", "Q4_K_M", "qwen2", "make models-all"},
  };
  for (const auto& [file, scheme, architecture, fetch] : cases) {
    NEED_FILE(source_path(file), fetch);
    const Outcome outcome = run({"inspect", source_path(file), "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json report = Json::parse(outcome.out);
    EXPECT_EQ(report["scheme"], scheme) << file;
    EXPECT_EQ(report["architecture"], architecture) << file;
  }
  const Json report = Json::parse(run({"inspect", model(), "--json"}).out);
  EXPECT_EQ(report["file_bytes"], 98'362'432);
  EXPECT_EQ(report["formats"][0],
            Json({{"format", "Q4_1"}, {"tensors", 210}, {"parameters", 106168320}, {"bytes", 66355200}}));
  EXPECT_EQ(report["chat_template"]["family"], "chatml");
  EXPECT_EQ(report["chat_template"]["tools"], false);
  EXPECT_EQ(report["context"], 8192);
  EXPECT_EQ(report["tokenizer"]["kind"], "byte-level BPE");
  EXPECT_EQ(report["tokenizer"]["pre_tokenizer"], "smollm");
  EXPECT_EQ(report["tokenizer"]["merges"], 48900);
}

TEST(RealChat, RemembersAndReusesThePrefix) {
  NEED_FILE(model(), kFetch);
  const Outcome outcome = run({"chat", model(), kThreads, "--log-level", "info"},
                              "What is the capital of France?\nWhat did I ask you about?\n");
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_TRUE(outcome.out.starts_with("The capital of France is Paris.\n")) << outcome.out;
  EXPECT_NE(outcome.err.find(" cached) at "), std::string::npos) << outcome.err;
}

/// Asks for a long answer in a chat and stops it with Ctrl-C.
void stop_an_answer(Program& program) {
  ASSERT_TRUE(program.wait_err("> "));
  program.write(std::string(kLongQuestion) + "\n");
  ASSERT_TRUE(program.wait_out(" "));
  program.write("\x03");
  ASSERT_TRUE(program.wait_err("(stopped; Ctrl-C again leaves)"));
  ASSERT_TRUE(program.wait_err("> "));
}

TEST(RealChat, CtrlCStopsTheAnswerAndTwiceTheProgram) {
  NEED_FILE(model(), kFetch);
  Program program({"chat", model(), kThreads}, Program::Streams::terminal);
  ASSERT_NO_FATAL_FAILURE(stop_an_answer(program));
  // It goes on as before, and a message in between means that the next Ctrl-C is a first one again.
  program.write("What is the capital of France?\n");
  ASSERT_TRUE(program.wait_out("Paris"));
  ASSERT_TRUE(program.wait_err("> "));
  program.write("\x03");
  ASSERT_TRUE(program.wait_err("(Ctrl-C again leaves)"));
  program.write("\x03");
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.code, 130);
  EXPECT_FALSE(outcome.killed);
}

TEST(RealChat, CtrlCDropsADraftBeforeItLeaves) {
  NEED_FILE(model(), kFetch);
  Program program({"chat", model(), kThreads}, Program::Streams::terminal);
  ASSERT_NO_FATAL_FAILURE(stop_an_answer(program));
  // Whoever writes on is at work: the draft goes, the conversation stays.
  program.write("a first line \\\n");
  ASSERT_TRUE(program.wait_err("\n  "));
  program.write("\x03");
  ASSERT_TRUE(program.wait_err("(message dropped; Ctrl-C again leaves)"));
  ASSERT_TRUE(program.wait_err("> "));
  program.write("What is the capital of France?\n");
  ASSERT_TRUE(program.wait_out("Paris"));
  ASSERT_TRUE(program.wait_err("> "));
  program.write("\x03");
  ASSERT_TRUE(program.wait_err("(Ctrl-C again leaves)"));
  ASSERT_TRUE(program.wait_err("> "));
  program.write("\x03");
  const Outcome outcome = program.finish();
  EXPECT_EQ(outcome.code, 130);
  EXPECT_TRUE(outcome.err.ends_with("\n")) << outcome.err;  // the shell's prompt stands on a line of its own
}

TEST(RealChat, TheEndOfInputLeaves) {
  NEED_FILE(model(), kFetch);
  Program program({"chat", model(), kThreads}, Program::Streams::terminal);
  ASSERT_TRUE(program.wait_err("> "));
  program.write("/frobnicate\n");
  ASSERT_TRUE(program.wait_err("quintet chat: found '/frobnicate'"));
  ASSERT_TRUE(program.wait_err("allowed are /reset"));  // a person's mistake does not end it
  ASSERT_TRUE(program.wait_err("> "));
  program.close_input();
  EXPECT_EQ(program.finish().code, 0);
}

}  // namespace
}  // namespace quintet::test
