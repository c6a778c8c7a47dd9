// Work that was stopped goes on to the same bytes; what has changed meanwhile, and what is damaged, is told.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "backend/cpu/cpu.h"
#include "compress/quantize_model.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kTiny = std::string(QUINTET_SOURCE_DIR) + "/tests/golden/data/tiny/";

class Resume : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "quintet-resume-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return folder_ + "/" + name; }

  static std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }

  /// Stops once `tensors` tensors are written; -1: never.
  static Result<QuantizeReport> run(const std::string& source, const std::string& destination,
                                    const QuantizeOptions& options, int tensors = -1) {
    const auto backend = make_cpu_backend({.threads = 1});
    int written = 0;
    QuantizeHooks hooks;
    hooks.on_tensor = [&](const TensorReport&) { ++written; };
    hooks.progress = [&](uint64_t, uint64_t) { return tensors < 0 || written < tensors; };
    return quantize_model(source, destination, *backend, options, hooks);
  }

  static std::string message(const Result<QuantizeReport>& result) { return result ? "no error" : result.error().message; }

  static QuantizeOptions options_of(QuantizeMethod method) {
    QuantizeOptions options{.method = method, .format = {4, 32, false}, .samples = 4, .length = 64, .threads = 1};
    if (method == QuantizeMethod::gguf) options.mix = find_gguf_mix("q8_0");
    if (options.needs_calibration()) options.calibration_text = read(std::string(QUINTET_SOURCE_DIR) + "/LICENSE");
    return options;
  }

  std::string folder_;
};

TEST_F(Resume, GoesOnToTheSameBytes) {
  for (const QuantizeMethod method : {QuantizeMethod::rtn, QuantizeMethod::outlier, QuantizeMethod::gptq,
                                      QuantizeMethod::gptq_outlier, QuantizeMethod::awq, QuantizeMethod::direct,
                                      QuantizeMethod::gguf}) {
    QuantizeOptions options = options_of(method);
    options.auto_shares = method == QuantizeMethod::outlier;
    options.shares = {.first = 0.01, .middle = 0.01, .head = 0.01};
    if (method == QuantizeMethod::outlier) options.save_importance = path("importance.gguf");
    const bool gguf = method == QuantizeMethod::gguf;
    const std::string source = kTiny + "llama-plain.gguf";
    const std::string straight = path("straight") + (gguf ? ".gguf" : ""), stopped = path("stopped") + (gguf ? ".gguf" : "");
    const std::string file = gguf ? "" : "/model.safetensors";
    const auto whole = run(source, straight, options);
    ASSERT_TRUE(whole) << message(whole);
    const std::string importance = read(path("importance.gguf"));
    const int all = static_cast<int>(whole->tensors.size());
    // Again and again: a few tensors further each time.
    int tries = 0;
    for (int until = 3; until < 4 * all; until += 4) {
      const auto part = run(source, stopped, options, until);
      ++tries;
      if (part) {
        EXPECT_EQ(part->tensors.size(), whole->tensors.size());
        EXPECT_EQ(part->bytes, whole->bytes);
        break;
      }
      ASSERT_EQ(part.error().kind, ErrorKind::cancelled) << message(part);
      ASSERT_FALSE(fs::exists(stopped)) << "half a model has a whole one's name";
    }
    EXPECT_GT(tries, 1);
    EXPECT_EQ(read(straight + file), read(stopped + file)) << describe(options);
    EXPECT_EQ(read(path("importance.gguf")), importance);
    if (!gguf) {
      EXPECT_EQ(read(straight + "/config.json"), read(stopped + "/config.json"));
      for (const auto& entry : fs::directory_iterator(stopped))
        EXPECT_TRUE(fs::exists(fs::path(straight) / entry.path().filename())) << entry.path() << " is left over";
    }
    EXPECT_FALSE(fs::exists(stopped + ".partial"));
    fs::remove_all(straight);
    fs::remove_all(stopped);
  }
}

TEST_F(Resume, RowsAtATimeMakeTheSameModel) {
  for (const QuantizeMethod method :
       {QuantizeMethod::rtn, QuantizeMethod::gptq, QuantizeMethod::awq, QuantizeMethod::direct, QuantizeMethod::gguf}) {
    QuantizeOptions options = options_of(method);
    options.overrides = {{"token_embd.weight", WeightFormat::q8_0}};
    const std::string ending = method == QuantizeMethod::gguf ? ".gguf" : "", file = ending.empty() ? "/model.safetensors" : "";
    const auto whole = run(kTiny + "qwen2.gguf", path("whole") + ending, options);
    options.weights_at_once = 1000;
    const auto parts = run(kTiny + "qwen2.gguf", path("parts") + ending, options);
    ASSERT_TRUE(whole && parts) << message(whole) << message(parts);
    EXPECT_TRUE(read(path("whole") + ending + file) == read(path("parts") + ending + file)) << describe(options);
    for (size_t i = 0; i < whole->tensors.size(); ++i)
      EXPECT_NEAR(whole->tensors[i].error, parts->tensors[i].error, 1e-9);
    fs::remove_all(path("whole") + ending);
    fs::remove_all(path("parts") + ending);
  }
}

TEST_F(Resume, WhatChangedIsNamed) {
  const std::string source = path("source.gguf"), out = path("out");
  fs::copy_file(kTiny + "llama-plain.gguf", source);
  const QuantizeOptions options = options_of(QuantizeMethod::gptq);
  const auto stop = [&] {
    const auto part = run(source, out, options, 12);
    ASSERT_FALSE(part);
    ASSERT_TRUE(fs::exists(out + ".partial/state.json")) << message(part);
  };
  stop();
  QuantizeOptions other = options;
  other.damping = 0.02;
  EXPECT_THAT(message(run(source, out, other)), HasSubstr("unfinished work with another method"));
  other = options;
  other.calibration_text += "more";
  EXPECT_THAT(message(run(source, out, other)), HasSubstr("another calibration text"));
  fs::last_write_time(source, fs::last_write_time(source) + std::chrono::seconds(5));
  EXPECT_THAT(message(run(source, out, options)), HasSubstr("another source"));
  EXPECT_TRUE(fs::exists(out + ".partial/state.json")) << "a mistaken command must not cost the work";
  other = options;
  other.restart = true;
  EXPECT_EQ(message(run(source, out, other)), "no error");
  EXPECT_TRUE(fs::exists(out));
}

TEST_F(Resume, DamageAndOtherWritersAreNamed) {
  const std::string source = kTiny + "llama-plain.gguf", out = path("out"), partial = out + ".partial";
  const QuantizeOptions options = options_of(QuantizeMethod::rtn);
  ASSERT_FALSE(run(source, out, options, 12));
  std::string state = read(partial + "/state.json");
  ASSERT_FALSE(state.empty());
  {
    const int lock = ::open((partial + "/lock").c_str(), O_RDWR);
    ASSERT_EQ(::flock(lock, LOCK_EX | LOCK_NB), 0);
    EXPECT_THAT(message(run(source, out, options)), HasSubstr("another process is writing it"));
    ::close(lock);
  }
  for (const std::string& damaged : {state.substr(0, state.size() / 2), std::string("{}"), std::string(),
                                    state.substr(0, state.size() - 30) + "1" + state.substr(state.size() - 29)}) {
    std::ofstream(partial + "/state.json", std::ios::binary) << damaged;
    EXPECT_THAT(message(run(source, out, options)), HasSubstr("--restart begins anew"));
  }
  std::ofstream(partial + "/state.json", std::ios::binary) << state;
  const auto bytes = fs::file_size(partial + "/model.safetensors");
  fs::resize_file(partial + "/model.safetensors", 100);
  EXPECT_THAT(message(run(source, out, options)), HasSubstr("found 100 bytes"));
  fs::resize_file(partial + "/model.safetensors", bytes + 1000);
  EXPECT_EQ(message(run(source, out, options)), "no error") << "what lies behind the state is cut off";

  fs::create_directories(path("taken.partial"));
  std::ofstream(path("taken.partial") + "/notes.txt") << "mine";
  EXPECT_THAT(message(run(source, path("taken"), options)), HasSubstr("no unfinished model"));
  EXPECT_EQ(read(path("taken.partial") + "/notes.txt"), "mine");
}

TEST_F(Resume, NothingStaysOfWorkThatCannotBe) {
  QuantizeOptions options = options_of(QuantizeMethod::gptq);
  options.calibration_text = "short";
  EXPECT_FALSE(run(kTiny + "llama-plain.gguf", path("out"), options));
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace quintet
