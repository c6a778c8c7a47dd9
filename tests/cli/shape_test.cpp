// Models of a shape with random weights, in place of a file: `bench` by rows, `run`, and what they refuse.
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli/program.h"

namespace quintet::test {
namespace {

using Json = nlohmann::json;

const Args kTiny = {"--shape", "tiny", "--weights", "q8_0", "--device", "cpu"};

Args with_tiny(Args args) {
  args.insert(args.end(), kTiny.begin(), kTiny.end());
  return args;
}

TEST(Shape, BenchPrintsAnObjectForEveryWork) {
  expect_error(run(with_tiny({"bench", "--rows", "1,,3"})), 2, {"--rows", "found ''", "1 to"});
  const Outcome outcome = run(with_tiny({"bench", "--rows", "1,3", "--context", "20,40", "--prompt", "9", "--steps", "3", "--attention",
                                         "--json", "--no-ceilings", "--layers", "1"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<std::string> works;
  std::istringstream lines(outcome.out);
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text);
    works.push_back(line["work"].get<std::string>() + " " + std::to_string(line["rows"].get<int>()) + " " + std::to_string(line["context"].get<int>()));
    EXPECT_EQ(line["weights"], "q8_0");
    EXPECT_EQ(line["kv"], "f16");
    for (const char* key : {"ms", "tokens_per_s", "bytes", "bytes_per_s", "tflops"}) EXPECT_GT(line[key].get<double>(), 0) << key;
    EXPECT_NEAR(line["tokens_per_s"].get<double>() * line["ms"].get<double>(), 1000 * line["rows"].get<double>(), 1e-6 * 1000 * 9);
  }
  EXPECT_EQ(works, (std::vector<std::string>{"decode 1 20", "attention 1 20", "decode 1 40", "attention 1 40", "decode 3 20", "attention 3 20",
                                             "decode 3 40", "attention 3 40", "prompt 9 9"}));
}

TEST(Shape, BenchTimesUnfusedStepsBesideFusedOnes) {
  const Outcome outcome = run(with_tiny({"bench", "--unfused", "--rows", "2", "--prompt", "9", "--steps", "2", "--json", "--no-ceilings"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  std::vector<Json> all;
  std::istringstream lines(outcome.out);
  for (std::string text; std::getline(lines, text);) all.push_back(Json::parse(text));
  ASSERT_EQ(all.size(), 4u);
  for (size_t i = 0; i < 4; i += 2) {
    const Json &fused = all[i], &unfused = all[i + 1];
    EXPECT_FALSE(fused.contains("unfused"));
    EXPECT_EQ(unfused["unfused"], true);
    for (const char* key : {"work", "weights", "kv", "rows", "context"}) EXPECT_EQ(fused[key], unfused[key]) << key;
    // 8.5 bits a weight once; 16 more written, and read; norms, biases and the cache once, rows that operations hand on beside them.
    EXPECT_GT(unfused["bytes"].get<double>(), fused["bytes"].get<double>() * (1 + 2 * 16 / 8.5) * 0.9);
    EXPECT_LT(unfused["bytes"].get<double>(), fused["bytes"].get<double>() * (1 + 2 * 16 / 8.5) * 1.2);
    for (const char* key : {"ms", "tokens_per_s", "bytes_per_s", "tflops"}) EXPECT_GT(unfused[key].get<double>(), 0) << key;
  }
  // Of a model in a file, too, and as a table; by requests it would have no counterpart.
  const std::string model = source_path("tests/golden/data/tiny/qwen2.gguf");
  const Outcome table = run({"bench", model, "--device", "cpu", "--unfused", "--context", "4", "--steps", "1", "--no-ceilings"});
  ASSERT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("unfused"), std::string::npos) << table.out;
}

TEST(Shape, RunsUnfused) {
  const Outcome outcome = run(with_tiny({"run", "-p", "hello", "-n", "5", "--json", "--unfused"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out)["tokens"].size(), 5u);
}

TEST(Shape, EveryFormatMakesAModel) {
  double bytes = 0;
  for (const std::string weights : {"int4-g128", "int4-g128+outliers", "bf16", "int8", "fp8", "nf4", "nf4-dq", "int3-g64-asym", "f32"}) {
    const Outcome outcome = run({"bench", "--shape", "tiny", "--weights", weights, "--device", "cpu", "--rows", "2", "--context", "20", "--steps", "2", "--json",
                                 "--no-ceilings", "--layers", "1"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const Json line = Json::parse(outcome.out);
    EXPECT_EQ(line["weights"], weights);
    if (weights == "int4-g128+outliers") {
      EXPECT_GT(line["bytes"].get<double>(), bytes) << "outliers are counted";
    }
    bytes = line["bytes"].get<double>();
  }
}

TEST(Shape, BenchMeasuresItsCeilingFirst) {
  const Outcome outcome = run(with_tiny({"bench", "--rows", "1", "--steps", "2", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json first = Json::parse(outcome.out.substr(0, outcome.out.find('\n')));
  EXPECT_EQ(first["ceilings"]["device"], "cpu");
  EXPECT_GT(first["ceilings"]["read_bytes_per_s"].get<double>(), 0);
}

TEST(Shape, WhatDoesNotFitIsSkippedWithTheSum) {
  // 1024 sequences of 4000 tokens, 512 bytes a token and layer: 420 GB.
  const Outcome outcome = run(with_tiny({"bench", "--rows", "1,1024", "--context", "4000", "--steps", "1", "--json", "--no-ceilings", "--layers", "200"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const size_t skipped = outcome.out.find("\"skipped\":");
  ASSERT_NE(skipped, std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("KV cache", skipped), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\"ms\":"), std::string::npos) << "the other one is measured";
}

TEST(Shape, WhatTheModelWasNotMadeForIsSkippedWithTheSum) {
  const Outcome outcome = run(with_tiny({"bench", "--rows", "1", "--context", "16000000,4", "--prompt", "9000000", "--steps", "1", "--json", "--no-ceilings"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("a context of 16000000 and 1 steps"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("a prompt of 9000000"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("\"ms\":"), std::string::npos) << "the other one is measured";
}

TEST(Shape, FlagsThatAWayOfMeasuringHasNoUseForAreRefused) {
  const std::string model = "/nonexistent.gguf";
  expect_error(run(with_tiny({"bench", "--decode", "5"})), 2, {"--decode", "--steps"});
  expect_error(run({"bench", model, "--unfused", "--repetitions", "2"}), 2, {"--repetitions", "--steps"});
  expect_error(run({"bench", model, "--attention"}), 2, {"--attention", "--rows"});
  expect_error(run(with_tiny({"bench", "--tune", "/tmp/never.json", "--rows", "2"})), 2, {"--rows", "--tune"});
}

TEST(Shape, RunSpeaksInNumbersAndBytes) {
  const Outcome outcome = run(with_tiny({"run", "-p", "hello", "-n", "5", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const Json answer = Json::parse(outcome.out);
  EXPECT_EQ(answer["tokens"].size(), 5u);
  EXPECT_EQ(answer["usage"]["prompt_tokens"], 6);  // each byte, and the newline of the template
  EXPECT_EQ(run(with_tiny({"run", "-p", "hello", "-n", "5", "--json"})).out, outcome.out) << "the same weights every time";
}

TEST(Shape, FlagsAreChecked) {
  expect_error(run({"bench"}), 2, {"MODEL is required", "--shape"});
  expect_error(run({"run", "x.gguf", "--shape", "tiny", "-p", "x"}), 2, {"x.gguf", "--shape tiny", "one of them"});
  expect_error(run({"run", "--shape", "gpt-9", "-p", "x"}), 2, {"--shape", "'gpt-9'", "llama3-70b"});
  expect_error(run({"run", "--shape", "tiny", "--weights", "int9", "-p", "x"}), 2, {"--weights", "'int9'"});
  expect_error(run({"run", "--shape", "tiny", "--weights", "iq9_xs", "-p", "x"}), 2, {"--weights", "iq2_xs", "q8_0"});
  expect_error(run({"bench", "--shape", "tiny", "--rows", "1,0"}), 2, {"--rows", "'0'"});
  expect_error(run({"bench", "--shape", "tiny", "--rows", "1,x"}), 2, {"--rows", "'x'"});
  expect_error(run({"bench", "/nonexistent.gguf", "--prompt", "1,2"}), 2, {"--prompt", "one"});
}

TEST(Shape, InspectSaysWhatAFormatWouldTake) {
  const auto size = [](const Args& args) {
    Args all = {"inspect", "--json"};
    all.insert(all.end(), args.begin(), args.end());
    const Outcome outcome = run(all);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out)["as"];
  };
  // 70 billion weights: 4.125 bits each, 32 bits for one in a thousand of the linear layers'.
  const Json large = size({"--shape", "llama3-70b", "--as", "int4_g128", "--outliers", "0.1"});
  EXPECT_EQ(large["linear_weights"], 68451041280);
  EXPECT_EQ(large["table_weights"], 2101346304);
  EXPECT_EQ(large["linear_bytes"].get<double>(), 68451041280 * 4.125 / 8);
  EXPECT_LE(large["bytes"].get<double>(), 36.7e9);
  EXPECT_GT(large["bytes"].get<double>(), 36.6e9);
  // A real model: what it says is what quantize writes.
  const TemporaryFolder folder;
  const std::string source = source_path("tests/golden/data/tiny/qwen2.gguf");
  const Outcome made = run({"quantize", source, folder.path("out"), "--select", "magnitude", "--bits", "3", "--group-size", "32", "--outliers",
                            "0.5", "--tensor-format", "*embd*=f16,output.weight=f16", "--no-smoke", "--json", "--threads=1"});
  ASSERT_EQ(made.code, 0) << made.err;
  uint64_t bytes = 0;
  std::istringstream lines(made.out);
  for (std::string text; std::getline(lines, text);)
    if (const Json line = Json::parse(text); line.contains("tensor")) bytes += line["bytes"].get<uint64_t>();
  const Json small = size({source, "--as", "int3_g32", "--outliers", "0.5", "--tables", "f16"});
  EXPECT_EQ(small["bytes"], bytes);
  expect_error(run({"inspect", "--shape", "llama3-70b", "--as", "int5"}), 2, {"--as", "'int5'", "int4_g128"});
  expect_error(run({"inspect", "--shape", "llama4"}), 2, {"--shape", "llama4", "llama3-70b"});
  expect_error(run({"inspect"}), 2, {"MODEL", "--shape"});
  EXPECT_NE(run({"inspect", "--shape", "llama3-70b", "--as", "int4-g128"}).out.find("GB"), std::string::npos);
}

TEST(Shape, InspectFallsBackAsQuantizeDoes) {
  for (const std::string model : {"llama-plain.gguf", "phi3.gguf"}) {  // rows of 96 and the like; phi3: fused matrices
    const TemporaryFolder folder;
    const std::string source = source_path("tests/golden/data/tiny/" + model);
    const auto expect_same = [&](const Outcome& made, const Args& as, const std::string& note) {
      ASSERT_EQ(made.code, 0) << made.err;
      uint64_t bytes = 0;
      std::istringstream lines(made.out);
      for (std::string text; std::getline(lines, text);)
        if (const Json line = Json::parse(text); line.contains("tensor")) bytes += line["bytes"].get<uint64_t>();
      Args args = {"inspect", source, "--json"};
      args.insert(args.end(), as.begin(), as.end());
      const Outcome outcome = run(args);
      ASSERT_EQ(outcome.code, 0) << outcome.err;
      const Json size = Json::parse(outcome.out)["as"];
      EXPECT_EQ(size["bytes"], bytes) << model;
      EXPECT_NE(size["notes"].dump().find(note), std::string::npos) << size["notes"];
    };
    expect_same(run({"quantize", source, folder.path("out"), "--method", "rtn", "--tensor-format",
                     "*embd*=int4_g128,output.weight=int4_g128", "--no-smoke",
                     "--json", "--threads=1"}),
                {"--as", "INT4-G128"}, "do not fit int4_g128: ");
    expect_same(run({"quantize", source, folder.path("out.gguf"), "--method", "q4_k_m", "--calibration", source_path("LICENSE"), "--length",
                     "32", "--samples", "2", "--no-smoke", "--json", "--threads=1"}),
                {"--as", "Q4_K_M"}, "do not fit q4_k: q5_0");
  }
}

TEST(Shape, InspectNamesAWeightThatIsMissing) {
  const TemporaryFolder folder;
  std::filesystem::copy(source_path("tests/golden/data/tiny/qwen2"), folder.path("model"));
  std::string bytes = read_file(folder.path("model/model.safetensors"));
  const std::string name = "layers.0.mlp.down_proj.weight";
  const size_t at = bytes.find(name);
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, name.size(), "layers.0.mlp.dawn_proj.weight");
  folder.write("model/model.safetensors", bytes);
  expect_error(run({"inspect", folder.path("model")}), 2, {"layers.0.mlp.down_proj.weight", "found nothing"});
}

}  // namespace
}  // namespace quintet::test
