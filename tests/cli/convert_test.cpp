// `quintet convert` on tiny folders: the same logits, the same tokens, and refusals that name what is wrong.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace quintet::test {
namespace {

using Json = nlohmann::json;

std::string tiny(const std::string& name) { return source_path("tests/golden/data/tiny/" + name); }

Outcome convert(const std::string& source, const std::string& destination, const Args& more = {}) {
  Args args = {"convert", source, destination, "--threads=1"};
  args.insert(args.end(), more.begin(), more.end());
  return run(args);
}

Json last_line(const std::string& out) {
  const size_t end = out.find_last_not_of('\n'), begin = out.rfind('\n', end);
  return Json::parse(out.substr(begin == out.npos ? 0 : begin + 1, end - begin), nullptr, false);
}

TEST(Convert, AFolderAndItsFileAreTheSameModel) {
  const TemporaryFolder folder;
  for (const std::string name : {"llama3", "qwen2"}) {
    SCOPED_TRACE(name);
    for (const std::string type : {"f16", "bf16", "q8_0"}) {
      const std::string out = folder.path(name + type + ".gguf");
      const Outcome outcome = convert(tiny(name), out, {"--type", type, "--json"});
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json made = last_line(outcome.out);
      EXPECT_EQ(made["architecture"], name == "llama3" ? "llama" : name);
      const Json config = Json::parse(read_file(tiny(name) + "/config.json"));
      EXPECT_EQ(made["layers"], config["num_hidden_layers"]);
      EXPECT_EQ(made["vocabulary"], config["vocab_size"]);
      const Outcome kl = run({"eval", out, "--kl", tiny(name), source_path("LICENSE"), "--tokens", "200",
                              "--context", "64", "--threads=1", "--json"});
      ASSERT_EQ(kl.code, 0) << kl.err;
      EXPECT_LT(Json::parse(kl.out)["kl_mean"].get<double>(), type == "f16" ? 1e-4 : 0.02);
      // A token for each of the embedding's 272 rows, of which the tokenizer names 261: llama.cpp loads no other file.
      const std::string bytes = read_file(out);
      EXPECT_NE(bytes.find("[PAD261]"), bytes.npos);
      EXPECT_NE(bytes.find("[PAD271]"), bytes.npos);
      EXPECT_EQ(bytes.find("[PAD272]"), bytes.npos);
      for (const char* text : {"Hello, world 123", "  two  spaces\n", "[PAD265] is text"})
        EXPECT_EQ(run({"tokenize", out, "-p", text}).out, run({"tokenize", tiny(name), "-p", text}).out);
    }
  }
}

TEST(Convert, WhatCannotBeIsRefused) {
  const TemporaryFolder folder;
  expect_error(convert(tiny("llama-plain.gguf"), folder.path("a.gguf")), 2, {"llama-plain.gguf", "GGUF"});
  expect_error(convert(tiny("llama3"), folder.path("a.bin")), 2, {"OUT", ".gguf"});
  expect_error(convert(tiny("llama3"), folder.write("there.gguf", "x")), 2, {"there.gguf", "does not exist yet"});
  expect_error(convert(tiny("llama3"), folder.path("a.gguf"), {"--type", "q4_0"}), 2, {"--type", "q8_0"});
  expect_error(convert(folder.path("nothing"), folder.path("a.gguf")), 2, {"nothing"});
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
    EXPECT_EQ(entry.path().filename(), "there.gguf");
}

}  // namespace
}  // namespace quintet::test
