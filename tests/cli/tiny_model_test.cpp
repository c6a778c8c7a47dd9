// The verbs on a tiny random model that is part of the source tree: formats of output, and that the numbers
// are right.
#include <signal.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <thread>

#include "cli/program.h"

namespace quintet::test {
namespace {

using Json = nlohmann::json;

const std::string& model() {
  static const std::string path = source_path("tests/golden/data/tiny/llama-plain.gguf");
  return path;
}

constexpr int kContext_tokens = 128;  // of that model

/// A float32 .npy file.
struct Matrix {
  size_t rows = 0, cols = 0;
  std::vector<float> values;

  size_t likeliest(size_t row) const {
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(row * cols);
    return static_cast<size_t>(std::max_element(begin, begin + static_cast<std::ptrdiff_t>(cols)) - begin);
  }
};

Matrix read_npy(const std::string& path) {
  const std::string bytes = read_file(path);
  Matrix matrix;
  EXPECT_TRUE(bytes.starts_with(std::string("\x93NUMPY\x01\x00", 8)));
  if (bytes.size() < 10) return matrix;
  const size_t header =
      10 + static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ(header % 64, 0u);
  std::smatch shape;
  const std::string text = bytes.substr(10, header - 10);
  EXPECT_TRUE(std::regex_search(
      text, shape,
      std::regex("^\\{'descr': '<f4', 'fortran_order': False, 'shape': \\((\\d+), (\\d+)\\), \\} *\\n$")))
      << text;
  if (shape.size() != 3) return matrix;
  matrix.rows = std::stoul(shape[1]);
  matrix.cols = std::stoul(shape[2]);
  matrix.values.resize(matrix.rows * matrix.cols);
  EXPECT_EQ(bytes.size(), header + matrix.values.size() * sizeof(float));
  if (bytes.size() == header + matrix.values.size() * sizeof(float))
    std::memcpy(matrix.values.data(), bytes.data() + header, matrix.values.size() * sizeof(float));
  return matrix;
}

Json run_json(Args args, std::string_view input = "") {
  // One thread unless a test asks for more: tests run beside others.
  if (std::find(args.begin(), args.end(), "--threads") == args.end()) args.push_back("--threads=1");
  args.insert(args.begin(), {"run", model()});
  args.push_back("--json");
  const Outcome outcome = run(args, input);
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 1) << outcome.out;
  return Json::parse(outcome.out, nullptr, false);
}

TEST(TinyRun, JsonHasExactlyTheDocumentedFields) {
  const Json answer = run_json({"--raw", "-p", "hello", "-n", "5"});
  ASSERT_TRUE(answer.is_object());
  EXPECT_EQ(answer.size(), 4u);
  EXPECT_TRUE(answer["text"].is_string());
  EXPECT_EQ(answer["tokens"].size(), 5u);
  EXPECT_EQ(answer["finish_reason"], "length");
  // Five bytes, for which this vocabulary has a token each, and BOS.
  EXPECT_EQ(answer["usage"], Json({{"prompt_tokens", 6}, {"completion_tokens", 5}}));
}

TEST(TinyRun, LogitsAreThoseThatTheAnswerComesFrom) {
  const TemporaryFolder folder;
  for (const std::string device : {"reference", "cpu"}) {
    SCOPED_TRACE(device);
    const std::string path = folder.path(device + ".npy");
    const Json answer =
        run_json({"--raw", "-p", "some text", "-n", "3", "--device", device, "--dump-logits", path});
    const Matrix prompt = read_npy(path);
    ASSERT_EQ(prompt.rows, 10u);
    ASSERT_GE(prompt.cols, 261u);
    EXPECT_EQ(prompt.likeliest(prompt.rows - 1), answer["tokens"][0]);
    // Nothing else is left in the folder: the file was written under another name first.
    for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
      EXPECT_EQ(entry.path().extension(), ".npy");
  }
  const Matrix a = read_npy(folder.path("reference.npy")), b = read_npy(folder.path("cpu.npy"));
  ASSERT_EQ(a.values.size(), b.values.size());
  double difference = 0, size = 0;
  for (size_t i = 0; i < a.values.size(); ++i) {
    difference += (a.values[i] - b.values[i]) * (a.values[i] - b.values[i]);
    size += a.values[i] * a.values[i];
  }
  EXPECT_GT(size, 0);
  // Both compute the same model: 16-bit activations leave about 2^-12 a product, two layers deep.
  EXPECT_LT(std::sqrt(difference / size), 1e-2);
}

TEST(TinyRun, LogitsGoThroughLinksAndIntoFifos) {
  const TemporaryFolder folder;
  const auto dump = [&](const std::string& path) {
    return run({"run", model(), "--threads=1", "--raw", "-p", "text", "-n", "0", "--dump-logits", path});
  };
  std::filesystem::create_symlink("target.npy", folder.path("link.npy"));
  EXPECT_EQ(dump(folder.path("link.npy")).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link.npy")));
  EXPECT_EQ(read_npy(folder.path("target.npy")).rows, 5u);

  const std::string fifo = folder.path("fifo");
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  std::string bytes;
  std::thread reader([&] { bytes = read_file(fifo); });
  EXPECT_EQ(dump(fifo).code, 0);
  reader.join();
  EXPECT_EQ(bytes, read_file(folder.path("target.npy")));
  EXPECT_TRUE(std::filesystem::is_fifo(fifo));
}

TEST(TinyRun, NoTokensMeansNoAnswer) {
  const TemporaryFolder folder;
  const Outcome outcome =
      run({"run", model(), "--raw", "-p", "text", "-n", "0", "--dump-logits", folder.path("x.npy")});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(read_npy(folder.path("x.npy")).rows, 5u);
  EXPECT_EQ(run_json({"--raw", "-p", "text", "-n", "0"})["usage"],
            Json({{"prompt_tokens", 5}, {"completion_tokens", 0}}));
}

TEST(TinyRun, SeedsDecideSampledTexts) {
  const auto sample = [](const std::string& seed) {
    return run_json({"--raw", "-p", "hello", "-n", "24", "--temp", "1.5", "--seed", seed})["tokens"];
  };
  const Json first = sample("1");
  EXPECT_EQ(first, sample("1"));
  EXPECT_NE(first, sample("2"));
  // One candidate is greedy, whatever the temperature.
  EXPECT_EQ(run_json({"--raw", "-p", "hello", "-n", "8", "--temp", "5", "--top-k", "1"})["tokens"],
            run_json({"--raw", "-p", "hello", "-n", "8"})["tokens"]);
}

TEST(TinyRun, StopStringsEndTheAnswerBeforeThem) {
  const Json whole = run_json({"--raw", "-p", "hello", "-n", "24"});
  const std::string text = whole["text"];
  // The first character that is one byte, with what follows it.
  size_t at = 1;
  while (at < text.size() && (text[at] < 0x20 || text.find(text[at]) != at)) ++at;
  ASSERT_LT(at, text.size());
  const Json cut =
      run_json({"--raw", "-p", "hello", "-n", "24", "--stop", "\x01never", "--stop", text.substr(at, 1)});
  EXPECT_EQ(cut["text"], text.substr(0, at));
  EXPECT_EQ(cut["finish_reason"], "stop");
  EXPECT_EQ(cut["tokens"].size(), cut["usage"]["completion_tokens"]);
  EXPECT_LT(cut["tokens"].size(), 24u);
  EXPECT_EQ(run_json({"--raw", "-p", "hello", "-n", "24", "--stop", "\x01never"}), whole);
}

TEST(TinyRun, PenaltiesChangeTheAnswerAndSeedsMayBeAny64Bits) {
  const Args greedy = {"--raw", "-p", "hello", "-n", "24"};
  const auto with = [&](const Args& more) {
    Args args = greedy;
    args.insert(args.end(), more.begin(), more.end());
    return run_json(args)["tokens"];
  };
  const Json plain = with({});
  EXPECT_NE(with({"--presence-penalty", "2"}), plain);
  EXPECT_NE(with({"--frequency-penalty", "2"}), plain);
  EXPECT_EQ(with({"--presence-penalty", "0", "--frequency-penalty", "0"}), plain);
  const auto sample = [&](const std::string& seed) { return with({"--temp", "1.5", "--seed", seed}); };
  EXPECT_EQ(sample("-1"), sample("18446744073709551615"));  // the same 64 bits
  EXPECT_NE(sample("-1"), sample("1"));
}

TEST(TinyRun, ThreadsDoNotChangeTheAnswer) {
  const Json one = run_json({"--raw", "-p", "hello", "-n", "24", "--threads", "1"});
  EXPECT_EQ(one, run_json({"--raw", "-p", "hello", "-n", "24", "--threads", "3"}));
}

TEST(TinyRun, PromptsComeFromFilesAndPipesToo) {
  const TemporaryFolder folder;
  const Json wanted = run_json({"--raw", "-p", "two\nlines\n", "-n", "4"});
  EXPECT_EQ(wanted, run_json({"--raw", "-n", "4"}, "two\nlines\n"));
  EXPECT_EQ(wanted, run_json({"--raw", "-n", "4", "-f", "-"}, "two\nlines\n"));
  EXPECT_EQ(wanted, run_json({"--raw", "-n", "4", "-f", folder.write("p.txt", "two\nlines\n")}));
  // Raw text may be any bytes, and text that looks like a flag or a list is text.
  EXPECT_EQ(run_json({"--raw", "-n", "1"}, std::string_view("\xff\x00\xfe", 3))["finish_reason"], "length");
  EXPECT_EQ(run_json({"--raw", "-n", "1", "-p", "--temp"})["usage"]["prompt_tokens"], 7);
  EXPECT_EQ(run_json({"--raw", "-n", "1", "-p", "[a,b]"})["usage"]["prompt_tokens"], 6);
  EXPECT_EQ(run_json({"--raw", "-n", "1", "-p", "{}"})["usage"]["prompt_tokens"], 3);
}

TEST(TinyRun, TheTemplateIsUsedUnlessRaw) {
  const int raw = run_json({"--raw", "-p", "hello", "-n", "1"})["usage"]["prompt_tokens"];
  const int chat = run_json({"-p", "hello", "-n", "1"})["usage"]["prompt_tokens"];
  EXPECT_GT(chat, raw);
  // A shell's newline at the end of a pipe is not part of the question; with --raw every byte counts.
  EXPECT_EQ(run_json({"-n", "1"}, "hello\n")["usage"]["prompt_tokens"], chat);
  EXPECT_EQ(run_json({"--raw", "-n", "1"}, "hello\n")["usage"]["prompt_tokens"], raw + 1);
  const TemporaryFolder folder;
  const std::string plain = folder.write("plain.jinja", "{{ messages[0]['content'] }}");
  EXPECT_EQ(run_json({"-p", "hello", "-n", "4", "--chat-template", plain}),
            run_json({"--raw", "-p", "hello", "-n", "4"}));
  expect_error(run({"run", model(), "-p", "x", "--chat-template", folder.write("bad.jinja", "{% for %}")}), 2,
               {"bad.jinja"});
  expect_error(run({"run", model(), "-p", "x", "--chat-template",
                    folder.write("raises.jinja", "{{ raise_exception('Only tools may speak') }}")}),
               2, {"raises.jinja: chat template", "Only tools may speak"});
  expect_error(run({"run", model(), "-p", "x", "--chat-template", "/nonexistent.jinja"}), 2,
               {"/nonexistent.jinja"});
  expect_error(run({"run", model(), "-p", "\xc3\x28"}), 2, {"prompt", "0xc3", "offset 0", "UTF-8"});
}

TEST(TinyRun, TooLongPromptsAreRefusedWithBothNumbers) {
  const std::string text(200, 'x');
  expect_error(run({"run", model(), "--raw", "-p", text}), 2,
               {"prompt", "201 tokens", "127", "context of 128"});
  expect_error(run({"run", model(), "--raw", "-p", "hello", "--context", "6"}), 2,
               {"6 tokens", "5", "--context"});
  expect_error(run({"run", model(), "--raw", "-p", "hello", "--context", "4096"}), 2,
               {"--context", "4096", "128"});
}

TEST(TinyRun, AFullContextIsNeverSilent) {
  const Outcome outcome =
      run({"run", model(), "--raw", "-p", "hello", "-n", "-1", "--context", "64", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  const Json answer = Json::parse(outcome.out, nullptr, false);
  EXPECT_EQ(answer["finish_reason"], "length");
  EXPECT_EQ(answer["usage"]["completion_tokens"], 64 - 6);
  EXPECT_NE(outcome.err.find("context of 64 tokens is full"), std::string::npos) << outcome.err;
}

TEST(TinyRun, SpeedsGoToStderrAloneAndTextEndsInANewline) {
  const Outcome outcome = run({"run", model(), "--raw", "-p", "hello", "-n", "5"});
  EXPECT_EQ(outcome.code, 0);
  EXPECT_TRUE(outcome.out.ends_with("\n"));
  EXPECT_TRUE(std::regex_match(
      outcome.err,
      std::regex(
          "prompt 6 tokens at [0-9.]+/s, decode 5 tokens at [0-9.]+/s, first token after [0-9.]+ s\n")))
      << outcome.err;
}

TEST(TinyBench, ReportsSpeedsMemoryAndCeilings) {
  const Outcome outcome =
      run({"bench", model(), "--prompt", "40", "--decode", "16", "--repetitions", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json report = Json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(report.is_object());
  for (const char* key :
       {"prompt_tokens_per_s", "decode_tokens_per_s", "load_s", "weights_load_s", "load_bytes_per_s", "first_token_s", "read_bytes_per_s"})
    EXPECT_GT(report[key].get<double>(), 0) << key;
  EXPECT_EQ(report["file_bytes"], std::filesystem::file_size(model()));
  // Two layers of 32 keys and 32 values; 56 tokens are four blocks of 16; F16 or F32.
  const int64_t kv_values = 2 * 2 * 32 * 64;
  EXPECT_TRUE(report["kv_bytes"] == kv_values * 2 || report["kv_bytes"] == kv_values * 4)
      << report["kv_bytes"];
  EXPECT_GT(report["peak_rss_bytes"].get<uint64_t>(), 1u << 20);
  EXPECT_GT(report["dot_ops_per_s"].size(), 0u);
  for (const auto& [kind, per_s] : report["dot_ops_per_s"].items())
    EXPECT_GT(per_s.get<double>(), 1e8) << kind;
  EXPECT_EQ(report["prompt_tokens_per_s_each"].size(), 2u);
  expect_error(run({"bench", model(), "--prompt", "100", "--decode", "29"}), 2, {"100 + 29", "128"});
  const Outcome table =
      run({"bench", model(), "--prompt", "8", "--decode", "2", "--repetitions", "1", "--no-ceilings"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("prompt"), std::string::npos);
  EXPECT_EQ(table.out.find("ceilings"), std::string::npos);
}

TEST(TinyInspect, SaysWhatTheFileIs) {
  const Outcome outcome = run({"inspect", model(), "--json", "--tensors"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json report = Json::parse(outcome.out, nullptr, false);
  ASSERT_TRUE(report.is_object());
  EXPECT_EQ(report["architecture"], "llama");
  EXPECT_EQ(report["container"], "gguf");
  EXPECT_EQ(report["scheme"], "F32");
  EXPECT_EQ(report["context"], kContext_tokens);
  EXPECT_EQ(report["network"]["layers"], 2);
  EXPECT_EQ(report["file_bytes"], std::filesystem::file_size(model()));
  uint64_t parameters = 0, bytes = 0;
  for (const Json& tensor : report["tensors"]) {
    uint64_t elements = 1;
    for (const Json& length : tensor["shape"]) elements *= length.get<uint64_t>();
    parameters += elements;
    bytes += tensor["bytes"].get<uint64_t>();
  }
  EXPECT_EQ(report["parameters"], parameters);
  EXPECT_EQ(report["weight_bytes"], bytes);
  EXPECT_EQ(bytes, parameters * 4);
  EXPECT_EQ(report["memory"]["needs"][0]["context"], kContext_tokens);
  const Outcome table = run({"inspect", model(), "--tensors"});
  EXPECT_EQ(table.code, 0) << table.err;
  for (const char* text : {"llama", "F32", "128 tokens", "blk.1.ffn_down.weight"})
    EXPECT_NE(table.out.find(text), std::string::npos) << text;
}

TEST(TinyInspect, AFolderIsTheSameModelAsItsGguf) {
  const std::string folder = source_path("tests/golden/data/tiny/llama-plain");
  NEED_FILE(folder, "git checkout");
  const Outcome a = run({"inspect", model(), "--json"}),
                b = run({"inspect", folder, "--tokenizer", model(), "--json"});
  ASSERT_EQ(a.code, 0) << a.err;
  ASSERT_EQ(b.code, 0) << b.err;
  const Json gguf = Json::parse(a.out), hf = Json::parse(b.out);
  // Without a tokenizer it is still a model to look at.
  const Outcome weights_alone = run({"inspect", folder, "--json"});
  ASSERT_EQ(weights_alone.code, 0) << weights_alone.err;
  EXPECT_TRUE(Json::parse(weights_alone.out)["tokenizer"].is_null());
  EXPECT_EQ(run({"inspect", folder}).code, 0);
  EXPECT_EQ(hf["container"], "huggingface");
  EXPECT_EQ(hf["parameters"], gguf["parameters"]);
  EXPECT_EQ(hf["network"], gguf["network"]);
}

TEST(TinyChat, KeepsHistoryAndCommandsWork) {
  const TemporaryFolder folder;
  const std::string saved = folder.path("saved.json");
  const Outcome outcome =
      run({"chat", model(), "--threads=1", "-n", "2", "--system", "S"},
          "one\n/save " + saved + "\n//two \\\nlines\n\"\"\"\nthree\n\nfour\n\"\"\"\n/save " + saved +
              ".2\n/reset\n/save " + saved + ".3\n/load " + saved + "\nlast\n/save " + saved +
              ".4\n/exit\nnever\n");
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const auto contents = [&](const std::string& suffix) {
    Json list = Json::array();
    for (const Json& message : Json::parse(read_file(saved + suffix)))
      list.push_back(message["role"] == "assistant" ? Json("*") : message["content"]);
    return list;
  };
  EXPECT_EQ(contents(""), Json({"S", "one", "*"}));
  EXPECT_EQ(contents(".2"), Json({"S", "one", "*", "/two \nlines", "*", "three\n\nfour", "*"}));
  EXPECT_EQ(contents(".3"), Json::array({"S"}));
  EXPECT_EQ(contents(".4"), Json({"S", "one", "*", "last", "*"}));
  // In a pipe standard output holds the answers alone, each with its newline.
  EXPECT_EQ(outcome.out.find("> "), std::string::npos);
}

TEST(TinyChat, FailingTurnsEndAScript) {
  expect_error(run({"chat", model(), "--threads=1"}, "/frobnicate\nx\n"), 2,
               {"'/frobnicate'", "/reset, /save FILE"});
  expect_error(run({"chat", model(), "--threads=1"}, "/save\nx\n"), 2, {"/save FILE"});
  expect_error(run({"chat", model(), "--threads=1"}, "/load /nonexistent.json\nx\n"), 2,
               {"/nonexistent.json"});
  expect_error(run({"chat", model(), "--threads=1"}, "/load " + source_path("LICENSE") + "\nx\n"), 2,
               {"LICENSE: Invalid JSON at byte"});
  expect_error(run({"chat", model(), "--threads=1"}, "/save /nonexistent/x\nx\n"), 2, {"/nonexistent/x"});
  expect_error(run({"chat", model(), "--threads=1"}, "/reset now\nx\n"), 2, {"/reset", "'now'"});
  expect_error(run({"chat", model(), "--threads=1", "--stop", ""}, "x\n"), 2, {"--stop", "0 bytes"});
  expect_error(run({"chat", model(), "--threads=1"}, "\xff\n"), 2, {"message", "0xff"});
  expect_error(run({"chat", model(), "--threads=1", "--context", "999"}, "x\n"), 2,
               {"--context", "999", "128"});
  EXPECT_EQ(run({"chat", model(), "--threads=1"}, "").code, 0);
  EXPECT_EQ(run({"chat", model(), "--threads=1"}, "\n\n").out, "");
}

TEST(TinyChat, AFullContextIsAnErrorOrDropsTheOldestTurns) {
  const TemporaryFolder folder;
  const std::string saved = folder.path("saved.json");
  std::string script;
  for (int turn = 0; turn < 8; ++turn) script += "turn number " + std::to_string(turn) + "\n";
  script += "/save " + saved + "\n";
  const Args args = {"chat", model(), "--threads=1", "-n", "4", "--system", "keep me"};

  const Outcome error = run(args, script);
  EXPECT_EQ(error.code, 1);
  EXPECT_NE(error.err.find("the context is full"), std::string::npos) << error.err;
  EXPECT_NE(error.err.find("--overflow drop-turns"), std::string::npos) << error.err;
  EXPECT_FALSE(std::filesystem::exists(saved));

  Args dropping = args;
  dropping.insert(dropping.end(), {"--overflow", "drop-turns"});
  const Outcome dropped = run(dropping, script);
  EXPECT_EQ(dropped.code, 0) << dropped.err;
  EXPECT_NE(dropped.err.find("dropped: the context of 128 tokens was full"), std::string::npos)
      << dropped.err;
  const Json messages = Json::parse(read_file(saved), nullptr, false);
  ASSERT_GE(messages.size(), 3u);
  EXPECT_LT(messages.size(), 1u + 2 * 8);
  EXPECT_EQ(messages[0]["content"], "keep me");
  EXPECT_EQ(messages[1]["role"], "user");
  EXPECT_NE(messages[1]["content"], "turn number 0");
  EXPECT_EQ(messages[messages.size() - 2]["content"], "turn number 7");

  // One message that can never fit is an error in either mode.
  dropping.back() = "drop-turns";
  expect_error(run(dropping, std::string(300, 'x') + "\n"), 1, {"the message takes", "allowed are 127"});
}

TEST(TinyServe, SaysWhatItCanHold) {
  Program server({"serve", model(), "--port", "0", "--kv-tokens", "300", "--sequences", "3"});
  // The model was made for 128 tokens; 300 are 19 blocks of 16.
  ASSERT_TRUE(server.wait_err("(at most 3 requests at once, 128 tokens in one, 304 in all of them)"));
  server.send_signal(SIGTERM);
  EXPECT_EQ(server.finish().code, 0);
}

TEST(TinyServe, StopsWellOnASignalAndNamesWhatItCannotBind) {
  for (const int number : {SIGTERM, SIGINT}) {
    Program server({"serve", model(), "--port", "0"});
    ASSERT_TRUE(server.wait_err("answers at http://127.0.0.1:"));
    server.send_signal(number);
    const Outcome outcome = server.finish();
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.out, "");
    EXPECT_EQ(outcome.err.find('\x1b'), std::string::npos) << "colour in a pipe";
  }
  const Outcome outcome =
      run({"serve", model(), "--host", "203.0.113.7", "--port", "1", "--log-level", "error"});
  EXPECT_NE(outcome.code, 0);
  EXPECT_NE(outcome.err.find("203.0.113.7"), std::string::npos) << outcome.err;
}

}  // namespace
}  // namespace quintet::test
