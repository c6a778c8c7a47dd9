// `quintet quantize` on tiny models: every method runs, the result is read by the other verbs, and nothing
// half-written stays.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace quintet::test {
namespace {

using Json = nlohmann::json;

std::string tiny(const std::string& name) { return source_path("tests/golden/data/tiny/" + name); }

/// Some bytes of English for calibration; tiny models have a token a byte.
std::string text() { return source_path("LICENSE"); }

std::vector<Json> lines(const std::string& out) {
  std::vector<Json> all;
  for (size_t at = 0; at < out.size();) {
    const size_t end = out.find('\n', at);
    all.push_back(Json::parse(out.substr(at, end - at), nullptr, false));
    at = end + 1;
  }
  return all;
}

Outcome quantize(const std::string& source, const std::string& destination, const Args& more) {
  Args args = {"quantize", source, destination, "--threads=1"};
  args.insert(args.end(), more.begin(), more.end());
  return run(args);
}

double kl(const std::string& reference, const std::string& model) {
  const Outcome outcome = run({"eval", model, "--kl", reference, text(), "--tokens", "200", "--context", "64",
                               "--threads=1", "--json"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  return outcome.code == 0 ? Json::parse(outcome.out)["kl_mean"].get<double>() : 1e9;
}

TEST(Quantize, EveryMethodGivesAModelThatRuns) {
  const TemporaryFolder folder;
  const Args calibration = {"--calibration", text(), "--samples", "8", "--length", "64"};
  for (const std::string& source :
       {tiny("llama-plain.gguf"), tiny("qwen2"), tiny("gemma3.gguf"), tiny("phi3.gguf")})
    for (const std::string method : {"rtn", "outlier", "gptq", "gptq+outlier", "awq", "nf4", "fp8", "int8"}) {
      SCOPED_TRACE(source + " " + method);
      const std::string out = folder.path("out");
      const bool direct = method == "nf4" || method == "fp8" || method == "int8";
      Args args = {"--method", method, "--json"};
      if (!direct) args.insert(args.end(), {"--bits", "8", "--group-size", "32"});
      if (!direct && method != "rtn") args.insert(args.end(), calibration.begin(), calibration.end());
      const Outcome outcome = quantize(source, out, args);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const auto report = lines(outcome.out);
      EXPECT_EQ(report.back()["path"], out);
      EXPECT_GT(report.back()["compressed_weights"], 1000);
      EXPECT_EQ(report.back()["outliers"].get<int>() > 0, method.find("outlier") != std::string::npos);
      // 8 bits lose next to nothing; random models have a KL of about 1 at 3 bits.
      EXPECT_LT(kl(source, out), method == "nf4" ? 0.5 : method == "fp8" ? 0.05 : 0.01);
      const Outcome answer = run({"run", out, "--raw", "-p", "hello", "-n", "3", "--threads=1"});
      EXPECT_EQ(answer.code, 0) << answer.err;
      EXPECT_EQ(run({"tokenize", out, "-p", "hello"}).out, run({"tokenize", source, "-p", "hello"}).out);
      EXPECT_EQ(run({"inspect", out}).code, 0);
      std::filesystem::remove_all(out);
    }
}

TEST(Quantize, FormatsAreThoseAskedFor) {
  const TemporaryFolder folder;
  const auto formats = [&](const Args& args) {
    const std::string out = folder.path("out");
    std::filesystem::remove_all(out);
    Args all = {"--method", "rtn", "--json"};
    all.insert(all.end(), args.begin(), args.end());
    const Outcome outcome = quantize(tiny("llama-plain.gguf"), out, all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    std::map<std::string, std::string> made;
    for (const Json& line : lines(outcome.out))
      if (line.contains("tensor")) made[line["tensor"]] = line["format"];
    return made;
  };
  const auto asymmetric = formats({"--group-size", "32", "--asymmetric"});
  EXPECT_EQ(asymmetric.at("blk.0.ffn_up.weight"), "q4_1");
  EXPECT_EQ(asymmetric.at("blk.0.attn_norm.weight"), "f32");
  EXPECT_EQ(asymmetric.at("token_embd.weight"), "f32");
  const auto other = formats({"--bits", "3", "--group-size", "32", "--tensor-format",
                              "*embd*=q8_0,blk.0.*=f16,blk.0.ffn_up*=int3_g32_asym"});
  EXPECT_EQ(other.at("token_embd.weight"), "q8_0");
  EXPECT_EQ(other.at("blk.0.ffn_down.weight"), "f16");
  EXPECT_EQ(other.at("blk.0.ffn_up.weight"), "int3_g32_asym");
  EXPECT_EQ(other.at("blk.1.ffn_up.weight"), "int3_g32");
}

TEST(Quantize, MixesOfGgufAreFilesThatInspectRecognizes) {
  const TemporaryFolder folder;
  const std::string source = tiny("llama-plain.gguf");
  for (const std::string mix : {"q8_0", "q4_k_m", "q2_k", "iq4_nl"}) {
    SCOPED_TRACE(mix);
    const std::string out = folder.path(mix + ".gguf");
    const Outcome outcome =
        quantize(source, out, {"--method", mix, "--calibration", text(), "--length", "64", "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_LT(std::filesystem::file_size(out), std::filesystem::file_size(source));
    const Json before = Json::parse(run({"inspect", source, "--json"}).out),
               after = Json::parse(run({"inspect", out, "--json"}).out);
    for (const char* same : {"architecture", "parameters", "network", "tokenizer", "chat_template"})
      EXPECT_EQ(before[same], after[same]) << same;
    EXPECT_LT(after["bits_per_weight"], before["bits_per_weight"]);
    if (mix == "q8_0") {
      EXPECT_LT(kl(source, out), 0.01);
    }
    EXPECT_EQ(run({"run", out, "--raw", "-p", "hello", "-n", "3", "--threads=1"}).code, 0);
  }
  expect_error(quantize(tiny("llama3"), folder.path("x.gguf"), {"--method", "q8_0"}), 2,
               {"llama3", "GGUF file"});
  expect_error(quantize(source, folder.path("x"), {"--method", "q8_0"}), 2, {"DST", "ends in .gguf"});
  expect_error(quantize(source, folder.path("x.gguf"), {"--method", "rtn"}), 2, {"DST", "folder"});
  expect_error(quantize(source, folder.path("q8_0.gguf"), {"--method", "q8_0"}), 2,
               {"q8_0.gguf", "does not exist yet"});
}

TEST(Quantize, TheSameCommandGivesTheSameBytes) {
  const TemporaryFolder folder;
  for (const char* threads : {"--threads=1", "--threads=3"})
    ASSERT_EQ(
        run({"quantize", tiny("llama-plain.gguf"), folder.path(threads), "--method", "gptq+outlier",
             "--group-size", "32", "--calibration", text(), "--samples", "4", "--length", "64", threads})
            .code,
        0);
  EXPECT_EQ(read_file(folder.path("--threads=1/model.safetensors")),
            read_file(folder.path("--threads=3/model.safetensors")));
}

TEST(Quantize, WhatLiesBesideTheWeightsTravelsAlong) {
  const TemporaryFolder folder;
  const std::string source = folder.path("source"), out = folder.path("out");
  std::filesystem::copy(tiny("llama3"), source);
  folder.write("source/LICENSE", "terms");
  ASSERT_EQ(quantize(source, out, {"--method", "rtn", "--group-size", "32"}).code, 0);
  EXPECT_EQ(read_file(out + "/LICENSE"), "terms");
  EXPECT_EQ(read_file(out + "/tokenizer_config.json"), read_file(source + "/tokenizer_config.json"));
  EXPECT_FALSE(std::filesystem::exists(out + "/model.safetensors.index.json"));
  const Json config = Json::parse(read_file(out + "/config.json"));
  EXPECT_EQ(config["quantization_config"]["quant_method"], "quintet");
  EXPECT_EQ(config["model_type"], Json::parse(read_file(source + "/config.json"))["model_type"]);
}

TEST(Quantize, NothingHalfWrittenStays) {
  const TemporaryFolder folder;
  const std::string out = folder.path("out");
  expect_error(quantize(tiny("llama-plain.gguf"), folder.path(""), {"--method", "rtn"}), 2,
               {"does not exist yet"});
  expect_error(quantize(tiny("llama-plain.gguf"), "/nonexistent/x/out", {"--method", "rtn"}), 2,
               {"/nonexistent/x/out"});
  expect_error(quantize(tiny("llama-plain.gguf"), out,
                        {"--calibration", folder.write("empty.txt", ""), "--length", "64"}),
               2, {"calibration text", "0 tokens"});
  expect_error(quantize(tiny("llama-plain.gguf"), out, {"--calibration", text(), "--length", "4096"}), 2,
               {"--length", "4096", "128"});
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
    EXPECT_EQ(entry.path().filename(), "empty.txt");
}

TEST(Quantize, FlagsAreChecked) {
  const std::string source = "/nonexistent.gguf", out = "/tmp/never";
  const auto check = [&](const Args& more, const std::vector<std::string>& parts) {
    expect_error(quantize(source, out, more), 2, parts);
  };
  check({}, {"--calibration", "outlier", "--select magnitude"});
  check({"--method", "gptq"}, {"--calibration", "gptq"});
  check({"--method", "magic"}, {"--method", "'magic'", "rtn, outlier, gptq, gptq+outlier, awq, nf4, fp8, int8, auto, q2_k"});
  check({"--method", "rtn", "--bits", "5"}, {"--bits", "5", "3, 4 or 8"});
  check({"--method", "rtn", "--group-size", "100"}, {"--group-size", "100", "32, 64 or 128"});
  check({"--method", "rtn", "--outliers", "0.1"}, {"--outliers", "rtn"});
  check({"--select", "magnitude", "--granularity", "tensor"}, {"--granularity", "'tensor'", "outlier"});
  check({"--select", "magnitude", "--outliers", "50"}, {"--outliers", "'50'", "percent"});
  check({"--select", "magnitude", "--outliers", "last=1"}, {"--outliers", "'last=1'", "first=X"});
  check({"--method", "rtn", "--tensor-format", "a=q6_k"}, {"--tensor-format", "'a=q6_k'", "int4_g128"});
  check({"--method", "rtn"}, {"/nonexistent.gguf"});
}

}  // namespace
}  // namespace quintet::test
