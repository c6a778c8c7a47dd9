// `quintet quantize` on tiny models: every method runs, the result is read by the other verbs, and nothing
// half-written stays.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
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
  const auto borrowed = formats({"--group-size", "32", "--tensor-format", "*embd*=q5_1,*down*=iq4_nl,*gate*=q6_k"});
  EXPECT_EQ(borrowed.at("token_embd.weight"), "q5_1") << "formats of GGUF files in a folder of our own";
  EXPECT_EQ(borrowed.at("blk.0.ffn_down.weight"), "iq4_nl");
  EXPECT_EQ(borrowed.at("blk.0.ffn_gate.weight"), "f32") << "rows are no multiple of 256: it stays";
  EXPECT_EQ(run({"run", folder.path("out"), "--raw", "-p", "hello", "-n", "3", "--threads=1"}).code, 0);
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
  expect_error(quantize(source, folder.path("x"), {"--method", "q8_0"}), 2, {"DST", "ends in .gguf"});
  expect_error(quantize(source, folder.path("x.gguf"), {"--method", "rtn"}), 2, {"DST", "folder"});
  expect_error(quantize(source, folder.path("q8_0.gguf"), {"--method", "q8_0"}), 2,
               {"q8_0.gguf", "does not exist yet"});
}

TEST(Quantize, FoldersForOtherToolsReadBackTheSame) {
  const TemporaryFolder folder;
  const Args how = {"--method", "gptq", "--group-size", "32", "--calibration", text(), "--samples", "8", "--length", "64", "--no-smoke"};
  const auto make = [&](const std::string& layout) {
    Args args = how;
    args.insert(args.end(), {"--layout", layout});
    const Outcome outcome = quantize(tiny("llama3"), folder.path(layout), args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return folder.path(layout);
  };
  const std::string own = make("quintet"), gptq = make("gptq"), awq = make("awq");
  EXPECT_LT(kl(own, gptq), 1e-6) << "the same codes and scales";
  EXPECT_LT(kl(own, awq), 1e-4) << "minima are rounded to FP16";
  for (const std::string& made : {gptq, awq}) {
    EXPECT_EQ(run({"run", made, "--raw", "-p", "hello", "-n", "3", "--threads=1"}).code, 0);
    EXPECT_EQ(Json::parse(run({"inspect", made, "--json"}).out)["parameters"],
              Json::parse(run({"inspect", tiny("llama3"), "--json"}).out)["parameters"]);
    // What another tool compressed is a source, too.
    const Outcome again = quantize(made, folder.path("again"), {"--method", "int8", "--no-smoke"});
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_NE(again.err.find("compressed already"), std::string::npos);
    EXPECT_LT(kl(made, folder.path("again")), 0.01);
    std::filesystem::remove_all(folder.path("again"));
  }
  expect_error(quantize(tiny("llama3"), folder.path("x"), {"--method", "rtn", "--layout", "gptq"}), 2,
               {"groups of 32", "groups of 128 everywhere", "--group-size"});
  expect_error(quantize(tiny("llama-plain.gguf"), folder.path("x"), {"--method", "rtn", "--layout", "gptq"}), 2,
               {"GGUF", "Hugging Face folder"});
}

TEST(Quantize, FoldersForOtherToolsMayBeAsymmetric) {
  const TemporaryFolder folder;
  const std::string source = tiny("llama3");
  for (const std::string method : {"gptq", "awq", "rtn"})
    for (const std::string layout : {"gptq", "awq"})
      for (const char* bits : {"4", "8"}) {
        SCOPED_TRACE(method + " laid out as " + layout + ", " + bits + " bits");
        if (layout == "awq" && *bits == '8') continue;
        Args how = {"--method", method, "--bits", bits, "--group-size", "32", "--asymmetric", "--layout", layout, "--no-smoke"};
        if (method != "rtn") how.insert(how.end(), {"--calibration", text(), "--samples", "8", "--length", "64"});
        const std::string out = folder.path("out");
        const Outcome outcome = quantize(source, out, how);
        ASSERT_EQ(outcome.code, 0) << outcome.err;
        // What is read back is what was measured while it was written: a wrong zero point moves a group by whole steps.
        EXPECT_LT(kl(source, out), *bits == '8' ? 0.002 : 0.25);
        const Json config = Json::parse(read_file(out + "/config.json"))["quantization_config"];
        if (layout == "gptq") {
          EXPECT_EQ(config["sym"], false);
        }
        std::filesystem::remove_all(out);
      }
}

TEST(Quantize, MixesOfGgufAreMadeOfFoldersToo) {
  const TemporaryFolder folder;
  // Rows in pairs and in halves, biases, frequencies, norms without their 1, fused weights, tied heads.
  for (const std::string name : {"llama3", "llama-bias-tied", "qwen2", "gemma3", "phi3", "qwen3", "mistral"}) {
    SCOPED_TRACE(name);
    const std::string out = folder.path(name + ".gguf"), base = folder.path(name + "-base.gguf");
    const Outcome outcome = quantize(tiny(name), out, {"--method", "q8_0", "--no-smoke", "--json"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    ASSERT_EQ(run({"convert", tiny(name), base, "--type", "bf16"}).code, 0);
    const Json made = Json::parse(run({"inspect", out, "--json"}).out), before = Json::parse(run({"inspect", base, "--json"}).out);
    for (const char* same : {"architecture", "parameters", "network", "tokenizer", "chat_template"})
      EXPECT_EQ(before[same], made[same]) << same;
    const Outcome compared = run({"eval", out, "--kl", base, folder.write("t.txt", std::string(200, 'a') + "fox"), "--context", "64",
                                  "--threads=1", "--json"});
    // Without a tokenizer there is nothing to read: weights that lie wrongly show in the converter's test, too.
    if (compared.code == 0) {
      EXPECT_LT(Json::parse(compared.out)["kl_mean"].get<double>(), 0.01);
    } else {
      EXPECT_NE(compared.err.find("no tokenizer"), std::string::npos) << compared.err;
    }
  }
}

TEST(Quantize, ImportanceMatricesAreWrittenAndRead) {
  const TemporaryFolder folder;
  const std::string source = tiny("llama-plain.gguf"), matrix = folder.path("m.gguf");
  // 512 tokens in all: sums and means are the same numbers but for their exponents.
  ASSERT_EQ(quantize(source, folder.path("a.gguf"), {"--method", "q4_k_m", "--calibration", text(), "--samples", "8", "--length", "64",
                                                     "--save-imatrix", matrix, "--no-smoke"})
                .code,
            0);
  ASSERT_EQ(quantize(source, folder.path("b.gguf"), {"--method", "q4_k_m", "--imatrix", matrix, "--no-smoke"}).code, 0);
  ASSERT_EQ(quantize(source, folder.path("c.gguf"), {"--method", "q4_k_m", "--no-smoke"}).code, 0);
  EXPECT_TRUE(read_file(folder.path("a.gguf")) == read_file(folder.path("b.gguf")));
  EXPECT_FALSE(read_file(folder.path("a.gguf")) == read_file(folder.path("c.gguf")));
  // A folder's weights have other names.
  const Outcome outlier = quantize(tiny("llama-plain"), folder.path("d"), {"--group-size", "32", "--imatrix", matrix, "--no-smoke"});
  EXPECT_EQ(outlier.code, 0) << outlier.err;
  expect_error(quantize(tiny("gemma3.gguf"), folder.path("x.gguf"), {"--method", "q4_k_m", "--imatrix", matrix}), 2,
               {"importance matrix", "blk.0.", "inputs"});
  expect_error(quantize(source, folder.path("x.gguf"), {"--method", "q4_k_m", "--imatrix", source}), 2,
               {"general.type", "imatrix"});
  expect_error(quantize(source, folder.path("x"), {"--method", "rtn", "--imatrix", matrix}), 2, {"--imatrix", "rtn", "outlier"});
  expect_error(quantize(source, folder.path("x"), {"--method", "gptq", "--calibration", text(), "--save-imatrix", matrix}), 2,
               {"--save-imatrix", "gptq"});
  expect_error(quantize(source, folder.path("x"), {"--calibration", text(), "--save-imatrix", folder.path("")}), 2,
               {"--save-imatrix", "regular file"});
}

TEST(Quantize, OutliersAreSharedOutWithinTheirBudget) {
  const TemporaryFolder folder;
  const std::string source = tiny("qwen2.gguf");
  const auto make = [&](const std::string& name, const Args& more) {
    Args args = {"--bits", "3", "--group-size", "32", "--calibration", text(), "--samples", "8", "--length", "64", "--no-smoke", "--json"};
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = quantize(source, folder.path(name), args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return lines(outcome.out);
  };
  const auto even = make("even", {"--outliers", "0.5"}), shared = make("shared", {"--outliers", "auto=0.5"});
  const double allowed = even.back()["outliers"].get<double>(), found = shared.back()["outliers"].get<double>();
  EXPECT_LE(found, allowed * 1.02) << "each tensor's number is rounded";
  EXPECT_GT(found, allowed * 0.6);
  std::map<double, int> shares;
  double errors_even = 0, errors_shared = 0;
  for (size_t i = 0; i + 1 < even.size(); ++i) {
    if (!even[i]["changed"]) continue;
    ++shares[std::round(1e4 * shared[i]["outliers"].get<double>() / shared[i]["weights"].get<double>())];
    errors_even += even[i]["error"].get<double>();
    errors_shared += shared[i]["error"].get<double>();
  }
  EXPECT_GT(shares.size(), 1u) << "not all tensors have the same share";
  EXPECT_LT(errors_shared, errors_even * 1.01);
  EXPECT_EQ(make("magnitude", {"--select", "magnitude", "--outliers", "auto"}).back()["path"], folder.path("magnitude"));
  expect_error(quantize(source, folder.path("x"), {"--outliers", "auto=50", "--select", "magnitude"}), 2, {"--outliers", "'50'", "auto"});
  expect_error(quantize(source, folder.path("x"), {"--outliers", "auto=", "--select", "magnitude"}), 2, {"--outliers", "auto"});
  const Outcome capped = quantize(source, folder.path("capped"), {"--outliers", "auto=10", "--select", "magnitude", "--no-smoke"});
  EXPECT_EQ(capped.code, 0);
  EXPECT_NE(capped.err.find("no tensor gets more than 1 % outliers"), std::string::npos) << capped.err;
}

TEST(Quantize, AModelCalibratesOnItsOwnText) {
  const TemporaryFolder folder;
  for (const char* name : {"a", "b"}) {
    const Outcome outcome = quantize(tiny("llama-plain.gguf"), folder.path(name), {"--method", "gptq", "--group-size", "32", "--calibration",
                                                                                  "self", "--samples", "8", "--length", "64", "--no-smoke"});
    ASSERT_EQ(outcome.code, 0) << outcome.err;
  }
  EXPECT_TRUE(read_file(folder.path("a/model.safetensors")) == read_file(folder.path("b/model.safetensors")));
  EXPECT_LT(kl(tiny("llama-plain.gguf"), folder.path("a")), 0.3);
  const auto refused = [&](const Args& more, const std::vector<std::string>& parts) {
    Args args = {"--method", "gptq", "--calibration", "self"};
    args.insert(args.end(), more.begin(), more.end());
    expect_error(quantize(tiny("llama-plain.gguf"), folder.path("x"), args), 2, parts);
  };
  refused({"--calibration", text()}, {"--calibration", "self", "alone"});
  refused({"--calibration-chat"}, {"--calibration-chat", "self"});
  refused({"--chat-template", "any"}, {"--chat-template", "self"});
  refused({"--samples", "1000000", "--length", "1000000"}, {"--length", "1000000", "at most"});
}

TEST(Quantize, AutoFillsTheRoomWithWhatMattersMost) {
  const TemporaryFolder folder;
  const std::string source = tiny("llama3");
  const Args calibration = {"--calibration", text(), "--samples", "8", "--length", "64", "--probe-tokens", "128", "--json"};
  double before = 1e9;
  for (const char* bytes : {"50KB", "70KB", "100KB"}) {
    const std::string out = folder.path(bytes);
    Args args = {"--method", "auto", "--target-bytes", bytes};
    args.insert(args.end(), calibration.begin(), calibration.end());
    const Outcome outcome = quantize(source, out, args);
    ASSERT_EQ(outcome.code, 0) << outcome.err;
    const auto report = lines(outcome.out);
    const double allowed = 1000 * std::stod(bytes);
    EXPECT_LE(report.back()["bytes"].get<double>(), allowed);
    EXPECT_GT(report.back()["bytes"].get<double>(), 0.85 * allowed) << "room is left";
    EXPECT_EQ(report.front()["choice"], "model.embed_tokens.weight");
    const double found = kl(source, out);
    EXPECT_LT(found, before);
    before = found;
  }
  Args small = {"--method", "auto", "--target-bytes", "20KB"};
  small.insert(small.end(), calibration.begin(), calibration.end());
  // Named formats count, too.
  Args named = {"--method", "auto", "--target-bytes", "60KB", "--tensor-format", "*embed*=f16"};
  named.insert(named.end(), calibration.begin(), calibration.end());
  const Outcome with_named = quantize(source, folder.path("named"), named);
  ASSERT_EQ(with_named.code, 0) << with_named.err;
  EXPECT_LE(lines(with_named.out).back()["bytes"], 60'000);
  EXPECT_EQ(lines(with_named.out).back()["method"].get<std::string>().find("gptq in formats chosen by tensor, "), 0u);
  expect_error(quantize(source, folder.path("x"), small), 2, {"target", "19.5 KiB (20000 bytes)", "smallest formats"});
  expect_error(quantize(source, folder.path("x"), {"--method", "auto", "--calibration", text()}), 2,
               {"--target-bytes", "neither"});
  expect_error(quantize(source, folder.path("x"), {"--method", "auto", "--target-bytes", "12 apples", "--calibration", text()}), 2,
               {"--target-bytes", "'12 apples'", "36GB"});
  expect_error(quantize(source, folder.path("x"),
                        {"--method", "auto", "--target-gpu", "100MB", "--context", "64", "--calibration", text()}),
               2, {"--target-gpu", "no room for weights"});
  // Before anything is measured, with stretches longer than the model's context, too.
  const Args errors[] = {{"--length", "129"}, {"--length", "1000"}};
  for (const Args& length : errors) {
    const Outcome outcome = quantize(source, folder.path("x"), {"--method", "auto", "--target-bytes", "50KB", "--calibration", text(), length[0], length[1], "--json"});
    expect_error(outcome, 2, {"--length", length[1], "128"});
    EXPECT_EQ(outcome.out, "");
  }
}

TEST(Quantize, WhatAutoLeavesAsItIsStaysToTheBit) {
  const TemporaryFolder folder;
  const Args calibration = {"--calibration", text(), "--samples", "4", "--length", "64"};
  Args small = {"--bits", "3", "--group-size", "32", "--outliers", "5", "--no-smoke"};
  small.insert(small.end(), calibration.begin(), calibration.end());
  ASSERT_EQ(quantize(tiny("llama-plain.gguf"), folder.path("small"), small).code, 0);
  // 3 bits with outliers: a format of GPTQ's, into which it would round once more.
  Args all = {"--method", "auto", "--target-bytes", "1MB", "--no-smoke", "--json"};
  all.insert(all.end(), calibration.begin(), calibration.end());
  const Outcome outcome = quantize(folder.path("small"), folder.path("auto"), all);
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  int tensors = 0;
  for (const Json& line : lines(outcome.out)) {
    if (!line.contains("tensor")) continue;
    EXPECT_EQ(line["changed"], false) << line["tensor"];
    ++tensors;
  }
  EXPECT_GT(tensors, 10);
  EXPECT_NE(outcome.err.find("nothing is measured"), std::string::npos) << outcome.err;
  EXPECT_TRUE(read_file(folder.path("small/model.safetensors")) == read_file(folder.path("auto/model.safetensors")));
}

TEST(Quantize, AnAutoThatWasKilledDoesNotMeasureAgain) {
  const TemporaryFolder folder;
  const auto args = [&](const std::string& destination, const std::string& bytes) {
    return Args{"quantize", tiny("gemma3.gguf"), destination, "--method", "auto", "--target-bytes", bytes, "--calibration", text(), "--samples", "4",
                "--length", "64", "--probe-tokens", "64", "--threads=1", "--no-smoke", "--json"};
  };
  const std::string straight = folder.path("straight"), killed = folder.path("killed");
  const Outcome whole = run(args(straight, "60KB"));
  ASSERT_EQ(whole.code, 0) << whole.err;
  const auto choices_of = [](const std::string& out) { return out.substr(0, out.find("{\"tensor\"")); };
  // Behind the choice; in the first layers, with a state to go on from; and with the choice alone again.
  for (const char* until : {"\"choice\"", "\"tensor\":\"blk.1", "\"choice\""}) {
    SCOPED_TRACE(until);
    Program program(args(killed, "60KB"));
    program.wait_out(until);
    program.send_signal(SIGKILL);
    program.finish();
    if (std::filesystem::exists(killed)) break;  // it was whole by then
    EXPECT_TRUE(std::filesystem::exists(killed + ".partial/choice.json"));
  }
  if (!std::filesystem::exists(killed)) {
    expect_error(run(args(killed, "61KB")), 2, {"another target (60000 bytes)", "61000 bytes", "--restart"});
    const Outcome again = run(args(killed, "60KB"));
    ASSERT_EQ(again.code, 0) << again.err;
    EXPECT_NE(again.err.find("not measured again"), std::string::npos) << again.err;
    EXPECT_EQ(choices_of(again.out), choices_of(whole.out));
  }
  EXPECT_TRUE(read_file(straight + "/model.safetensors") == read_file(killed + "/model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(killed + ".partial"));
  EXPECT_FALSE(std::filesystem::exists(killed + "/choice.json"));
}

TEST(Quantize, AutoTellsBadTargetsBeforeTheModelWrites) {
  // Calibration text of the model's own would take hours.
  const TemporaryFolder folder;
  const Args slow = {"--method", "auto", "--calibration", "self", "--samples", "1000000", "--length", "100"};
  for (const Args& target : {Args{"--target-bytes", "12 apples"}, {"--target-gpu", "1MB", "--context", "64"}, {"--target-gpu", "24GiB", "--context", "4096"}}) {
    Args args = slow;
    args.insert(args.end(), target.begin(), target.end());
    expect_error(quantize(tiny("llama3"), folder.path("x"), args), 2, {target.size() == 4 && target[3] == "4096" ? "--context" : target[0]});
  }
}

TEST(Quantize, AReportIsOnePageWithItsPlots) {
  const TemporaryFolder folder;
  const Outcome outcome =
      quantize(tiny("qwen2"), folder.path("out"), {"--method", "gptq+outlier", "--group-size", "32", "--calibration", text(),
                                                   "--samples", "8", "--length", "64", "--report", folder.path("report")});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE(outcome.out.find("smoke run"), std::string::npos);
  const std::string page = read_file(folder.path("report/report.html"));
  for (const char* part : {"<!DOCTYPE html>", "Before and after", "Error by layer", "Bits by tensor", "kept apart", "</html>"})
    EXPECT_NE(page.find(part), std::string::npos) << part;
  EXPECT_EQ(page.find("http"), std::string::npos) << "nothing from elsewhere";
  const auto count = [&](std::string_view what) {
    size_t found = 0;
    for (size_t at = page.find(what); at != std::string::npos; at = page.find(what, at + 1)) ++found;
    return found;
  };
  EXPECT_GE(count("<svg"), 10u);
  EXPECT_EQ(count("<svg"), count("</svg>"));
  EXPECT_EQ(page.find("nan"), std::string::npos);
}

int listening_socket(uint16_t port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  EXPECT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  return socket;
}

uint16_t free_port() {
  const int socket = listening_socket(0);
  sockaddr_in address{};
  socklen_t size = sizeof address;
  EXPECT_EQ(::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  ::close(socket);
  return ntohs(address.sin_port);
}

/// The whole answer to one POST.
std::string post(uint16_t port, const std::string& path, const std::string& body) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return "no connection";
  const std::string request = "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Type: application/json\r\n"
                              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
  EXPECT_EQ(::write(socket, request.data(), request.size()), static_cast<ssize_t>(request.size()));
  std::string answer(1 << 16, '\0');
  size_t got = 0;
  for (ssize_t n = 1; n > 0 && got < answer.size(); got += static_cast<size_t>(std::max<ssize_t>(n, 0)))
    n = ::read(socket, answer.data() + got, answer.size() - got);
  ::close(socket);
  return answer.substr(0, got);
}

TEST(Quantize, EveryMethodsFolderIsServed) {
  const TemporaryFolder folder;
  for (const std::string method : {"rtn", "gptq+outlier", "awq", "nf4", "fp8", "int8"}) {
    SCOPED_TRACE(method);
    Args how = {"--method", method, "--no-smoke"};
    if (method == "rtn" || method == "awq" || method == "gptq+outlier") how.insert(how.end(), {"--group-size", "32"});
    if (method == "awq" || method == "gptq+outlier")
      how.insert(how.end(), {"--calibration", text(), "--samples", "8", "--length", "64"});
    const std::string made = folder.path(method);
    ASSERT_EQ(quantize(tiny("qwen2"), made, how).code, 0);
    const uint16_t port = free_port();
    Program server({"serve", made, "--model-name", "m", "--port", std::to_string(port), "--threads=1"});
    ASSERT_TRUE(server.wait_err("answers at http://127.0.0.1:"));
    const std::string answer =
        post(port, "/v1/completions", R"({"model": "m", "prompt": "hello", "max_tokens": 4, "temperature": 0, "ignore_eos": true})");
    EXPECT_NE(answer.find("200 OK"), std::string::npos) << answer;
    const Json json = Json::parse(answer.substr(answer.find("\r\n\r\n") + 4), nullptr, false);
    ASSERT_TRUE(json.is_object()) << answer;
    EXPECT_EQ(json["usage"]["completion_tokens"], 4);
    server.send_signal(SIGTERM);
    EXPECT_EQ(server.finish().code, 0);
  }
}

TEST(Quantize, OnLoadServesADenseFolder) {
  for (const char* method : {"rtn", "outlier", "nf4", "fp8", "int8"}) {
    const Outcome outcome =
        run({"run", tiny("qwen2"), "--raw", "-p", "hello", "-n", "8", "--threads=1", "--quantize-on-load", method});
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_FALSE(outcome.out.empty());
    EXPECT_EQ(outcome.err.find("nothing is compressed"), std::string::npos) << outcome.err;
  }
  const TemporaryFolder folder;
  ASSERT_EQ(quantize(tiny("qwen2"), folder.path("made"), {"--method", "rtn", "--group-size", "32"}).code, 0);
  const Outcome again = run({"run", folder.path("made"), "--raw", "-p", "hello", "-n", "4", "--threads=1", "--quantize-on-load", "nf4"});
  EXPECT_EQ(again.code, 0);
  EXPECT_NE(again.err.find("nothing is compressed"), std::string::npos) << again.err;
  expect_error(run({"run", tiny("qwen2"), "--raw", "-p", "hello", "--quantize-on-load", "q9"}), 2, {"--quantize-on-load", "nf4"});
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

TEST(Quantize, AKilledCommandGoesOnToTheSameBytes) {
  const TemporaryFolder folder;
  for (const std::string how : {"gptq+outlier", "q4_k_m", "rtn"}) {
    SCOPED_TRACE(how);
    const bool gguf = how == "q4_k_m";
    const std::string ending = gguf ? ".gguf" : "", file = gguf ? "" : "/model.safetensors";
    const std::string straight = folder.path("straight") + ending, killed = folder.path("killed") + ending;
    const auto args = [&](const std::string& destination) {
      Args all = {"quantize", tiny("gemma3.gguf"), destination, "--method", how, "--threads=1", "--no-smoke", "--json"};
      if (how != "rtn") all.insert(all.end(), {"--calibration", text(), "--samples", "4", "--length", "64"});
      if (!gguf) all.insert(all.end(), {"--group-size", "32"});
      return all;
    };
    ASSERT_EQ(run(args(straight)).code, 0);
    // A layer has 13 tensors, so that each command gets at least one further before it is killed, somewhere in the next.
    int kills = 0;
    bool went_on = false;
    for (; kills < 20; ++kills) {
      Program program(args(killed));
      const int wanted = 15 + kills * 7 % 12;
      for (int written = 0; written < wanted && program.wait_out("\"tensor\"");) ++written;
      program.send_signal(SIGKILL);
      const Outcome outcome = program.finish();
      went_on = went_on || outcome.err.find("going on behind") != std::string::npos;
      if (!outcome.killed) {
        ASSERT_EQ(outcome.code, 0) << outcome.err;
        break;
      }
      if (std::filesystem::exists(killed)) break;  // it was whole by then; what follows compares it
    }
    EXPECT_GT(kills, 0);
    EXPECT_TRUE(went_on);
    EXPECT_TRUE(read_file(straight + file) == read_file(killed + file));
    EXPECT_FALSE(std::filesystem::exists(killed + ".partial"));
    std::filesystem::remove_all(straight);
    std::filesystem::remove_all(killed);
  }
}

TEST(Quantize, CalibrationIsTextOrLinesOfJson) {
  const TemporaryFolder folder;
  std::string plain, half, jsonl;
  for (int i = 0; i < 60; ++i) {
    const std::string line = "Line " + std::to_string(i * 7919) + " of a \"text\" that a model reads.";
    plain += line + "\n";
    (i < 30 ? half : jsonl) += i < 30 ? line + "\n" : (i % 2 ? Json(line) : Json{{"text", line}}).dump() + "\n";
  }
  const auto make = [&](const std::string& name, const Args& files) {
    Args args = {"--method", "gptq", "--group-size", "32", "--samples", "4", "--length", "64", "--no-smoke"};
    args.insert(args.end(), files.begin(), files.end());
    const Outcome outcome = quantize(tiny("llama-plain.gguf"), folder.path(name), args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_file(folder.path(name + "/model.safetensors"));
  };
  const std::string one = make("one", {"--calibration", folder.write("a.txt", plain)});
  EXPECT_EQ(one, make("two", {"--calibration", folder.write("b.txt", half), "--calibration", folder.write("c.jsonl", jsonl)}));
  expect_error(quantize(tiny("llama-plain.gguf"), folder.path("x"),
                        {"--method", "gptq", "--calibration", folder.write("bad.jsonl", "\"fine\"\n{\"txt\": 1}\n")}),
               2, {"bad.jsonl", "line 2", "\"text\""});
  // Conversations and, where asked, texts go through the template: what it writes is tokens, not characters.
  const std::string source = tiny("llama3");
  std::string chats, texts;
  for (int i = 0; i < 40; ++i) {
    const std::string line = "Tell me about " + std::to_string(i * 7919) + " in a few words, please.";
    chats += Json{{"messages", {{{"role", "user"}, {"content", line}}}}}.dump() + "\n";
    texts += Json(line).dump() + "\n";
  }
  const Args how = {"--method", "gptq", "--group-size", "32", "--samples", "4", "--length", "64", "--no-smoke", "--calibration"};
  const auto with = [&](const std::string& name, const Args& more) {
    Args args = how;
    args.insert(args.end(), more.begin(), more.end());
    const Outcome outcome = quantize(source, folder.path(name), args);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return read_file(folder.path(name + "/model.safetensors"));
  };
  const std::string chat = with("chat", {folder.write("chats.jsonl", chats)});
  const std::string lines_file = folder.write("texts.jsonl", texts);
  EXPECT_TRUE(chat == with("rendered", {lines_file, "--calibration-chat"}));
  EXPECT_FALSE(chat == with("plain", {lines_file}));
  EXPECT_FALSE(chat == with("other", {folder.path("chats.jsonl"), "--chat-template", folder.write("short.jinja", "{% for m in messages %}{{ m.content }}{% endfor %}")}));
  expect_error(quantize(source, folder.path("x"), {"--method", "rtn", "--chat-template", folder.path("short.jinja")}), 2, {"--chat-template", "--calibration"});
  expect_error(quantize(source, folder.path("x"), {"--method", "gptq", "--calibration", lines_file, "--chat-template", folder.path("short.jinja")}), 2,
               {"--chat-template", "texts alone", "--calibration-chat"});
  expect_error(quantize(source, folder.path("x"),
                        {"--method", "gptq", "--calibration", folder.write("wrong.jsonl", "{\"messages\": [{\"role\": \"user\"}]}\n")}),
               2, {"wrong.jsonl: line 1", "content"});
  expect_error(quantize(tiny("llama-plain.gguf"), folder.path("x"),
                        {"--method", "gptq", "--calibration", folder.write("broken.txt", "a\xFF" "b")}),
               2, {"broken.txt", "byte 1 is no UTF-8"});
  expect_error(quantize(tiny("llama-plain.gguf"), folder.path("x"),
                        {"--method", "gptq", "--calibration", folder.write("binary.txt", std::string("ab\0c", 4))}),
               2, {"binary.txt", "byte 2 is 0"});
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

TEST(Quantize, ASourceWhoseLogitsAreNoNumbersIsSaidToBeOne) {
  const TemporaryFolder folder;
  const std::string source = folder.path("source");
  std::filesystem::copy(tiny("qwen2"), source);
  std::string bytes = read_file(source + "/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  size_t first = 0, last = 0;
  const size_t entry = bytes.find("\"model.norm.weight\"");
  ASSERT_EQ(std::sscanf(bytes.c_str() + bytes.find("\"data_offsets\"", entry), "\"data_offsets\":[%zu,%zu]", &first, &last), 2);
  for (size_t i = first; i < last; i += 2) bytes.replace(sizeof header + header + i, 2, "\x00\x7f", 2);  // 1.7e38 in BF16
  std::ofstream(source + "/model.safetensors", std::ios::binary) << bytes;
  const Outcome outcome = quantize(source, folder.path("out"), {"--method", "rtn", "--group-size", "32"});
  EXPECT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_NE((outcome.out + outcome.err).find(source + ", which was so before it was compressed: the model's logits at position"), std::string::npos) << outcome.out << outcome.err;
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

TEST(Quantize, WhatIsReadIsNotWritten) {
  const TemporaryFolder folder;
  const std::string source = folder.path("source"), out = folder.path("out"), gguf = folder.path("m.gguf");
  std::filesystem::copy(tiny("llama3"), source);
  std::filesystem::copy(tiny("llama-plain.gguf"), gguf);
  std::string weights;
  for (const auto& entry : std::filesystem::directory_iterator(source))
    if (entry.path().extension() == ".safetensors") weights = entry.path().string();
  const std::string calibration = folder.write("cal.txt", read_file(text()));
  std::filesystem::create_symlink(weights, folder.path("link"));
  std::filesystem::create_hard_link(gguf, folder.path("hard.gguf"));
  const std::string before = read_file(weights), before_gguf = read_file(gguf), before_text = read_file(calibration);
  const auto refused = [&](const Args& args, const std::vector<std::string>& parts) {
    SCOPED_TRACE(args[0] + " " + args.back());
    expect_error(run(args), 2, parts);
    EXPECT_EQ(read_file(weights), before);
    EXPECT_EQ(read_file(gguf), before_gguf);
    EXPECT_EQ(read_file(calibration), before_text);
  };
  const Args quantized = {"quantize", source, out, "--calibration", calibration, "--samples", "2", "--length", "32", "--no-smoke"};
  const auto with = [&](const std::string& flag, const std::string& value) {
    Args args = quantized;
    args.insert(args.end(), {flag, value});
    return args;
  };
  refused(with("--save-imatrix", weights), {"--save-imatrix", weights, "MODEL"});
  refused(with("--save-imatrix", folder.path("link")), {"--save-imatrix", "link", "MODEL"});
  refused(with("--save-imatrix", calibration), {"--save-imatrix", "--calibration", "cal.txt"});
  refused(with("--log-file", weights), {"--log-file", "MODEL"});
  refused(with("--save-imatrix", out), {"out", "--save-imatrix", "DST"});
  refused(with("--save-imatrix", out + "/"), {"out", "--save-imatrix", "DST"});
  refused(with("--save-imatrix", out + ".partial"), {"out", "--save-imatrix", "DST"});
  refused(with("--report", calibration), {"--report", calibration, "no folder"});
  refused(with("--report", out + ".partial"), {"--report", "DST"});
  refused({"run", gguf, "--raw", "-p", "ab", "-n", "0", "--dump-logits", folder.path("hard.gguf")},
          {"--dump-logits", "hard.gguf", "MODEL"});
  refused({"run", gguf, "--raw", "-f", calibration, "-n", "0", "--dump-logits", calibration}, {"--dump-logits", "--file"});
  refused({"inspect", gguf, "--log-file", gguf}, {"--log-file", "MODEL"});
  const std::string part = folder.write("s-00002-of-00002.gguf", "x");
  refused({"inspect", folder.path("s-00001-of-00002.gguf"), "--log-file", part}, {"--log-file", "s-00002", "MODEL"});
  refused({"eval", gguf, "--kl", gguf, calibration, "--reference-cache", calibration}, {"--reference-cache", "--kl"});
  expect_error(run({"chat", gguf}, "/save " + gguf + "\n"), 2, {"/save", "MODEL"});
  EXPECT_EQ(read_file(gguf), before_gguf);
  refused({"convert", source, gguf}, {"m.gguf", "does not exist yet"});
  for (const std::string leftover : {"out", "out.partial"}) EXPECT_FALSE(std::filesystem::exists(folder.path(leftover)));
  // Beside what is read is no harm.
  EXPECT_EQ(run(with("--save-imatrix", source + "/importance.gguf")).code, 0);
}

TEST(Quantize, NamesThatNoFileCanHaveAreRefusedBeforeTheWork) {
  const TemporaryFolder folder;
  const std::string source = tiny("llama-plain.gguf");
  std::filesystem::create_symlink(folder.path("b"), folder.path("a"));
  std::filesystem::create_symlink(folder.path("a"), folder.path("b"));
  const std::string long_name = folder.path(std::string(252, 'n'));
  expect_error(quantize(source, "", {"--method", "rtn"}), 2, {"DST", "empty"});
  for (const std::string& out : {long_name, folder.path(std::string(300, 'n')), folder.path("a/x"), folder.path("a")})
    expect_error(quantize(source, out, {"--method", "rtn"}), 2, {out});
  const auto refused = [&](const std::string& flag, const std::string& value, const Args& more) {
    Args args = {flag, value};
    args.insert(args.end(), more.begin(), more.end());
    expect_error(quantize(source, folder.path("out"), args), 2, {value});
  };
  for (const std::string& name : {folder.path(std::string(300, 'n')), folder.path("a")}) {
    refused("--imatrix", name, {});
    refused("--save-imatrix", name, {"--calibration", text(), "--length", "32"});
    refused("--report", name, {"--method", "rtn"});
    expect_error(run({"run", source, "-p", "x", "--chat-template", name}), 2, {name});
  }
  refused("--save-imatrix", long_name, {"--calibration", text(), "--length", "32"});
  for (const auto& entry : std::filesystem::directory_iterator(folder.path("")))
    EXPECT_TRUE(entry.path().filename() == "a" || entry.path().filename() == "b") << entry.path();
}

TEST(Quantize, PatternsThatMatchNothingAreNamed) {
  const TemporaryFolder folder;
  for (const std::string pattern : {"blk.*.ffn_dwon*", "blk.0.ffn_up", "*norm*"}) {
    expect_error(quantize(tiny("llama-plain.gguf"), folder.path("out"),
                          {"--method", "rtn", "--group-size", "32", "--tensor-format", "*embd*=q8_0," + pattern + "=q8_0"}),
                 2, {"--tensor-format", "'" + pattern + "'", "token_embd.weight"});
    EXPECT_FALSE(std::filesystem::exists(folder.path("out.partial")));
  }
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
  check({"--select", "magnitude", "--outliers", "first=1,first=2"}, {"--outliers", "'first=2'", "each once"});
  check({"--method", "auto", "--target-bytes="}, {"--target-bytes", "nothing behind the '='"});
  check({"--method", "rtn", "--tensor-format", "a=iq2_xs"}, {"--tensor-format", "'a=iq2_xs'", "int4_g128"});
  check({"--layout", "gptq", "--method", "auto", "--target-bytes", "1MB"}, {"--layout gptq", "--method", "auto"});
  check({"--layout", "awq", "--calibration", text()}, {"--layout awq", "--method", "outlier"});
  check({"--layout", "awq", "--method", "rtn", "--bits", "8"}, {"--layout awq", "--bits", "8"});
  check({"--method", "rtn"}, {"/nonexistent.gguf"});
  // What a method has no use for is refused, not passed over.
  for (const Args& flag : {Args{"--bits", "3"}, {"--group-size", "32"}, {"--asymmetric"}}) {
    for (const std::string method : {"nf4", "fp8", "int8", "auto"}) check({"--method", method, flag[0], flag.size() > 1 ? flag[1] : "--json"}, {flag[0], method, "rtn, outlier"});
    Args mix = flag;
    mix.insert(mix.end(), {"--method", "q4_k_m"});
    expect_error(quantize(source, "/tmp/never.gguf", mix), 2, {flag[0], "q4_k_m", "rtn, outlier"});
  }
  for (const Args& flag : {Args{"--damping", "0.1"}, {"--no-act-order"}, {"--no-true-sequential"}})
    check({"--method", "rtn", flag[0], flag.size() > 1 ? flag[1] : "--json"}, {flag[0], "rtn", "gptq, gptq+outlier"});
  check({"--method", "rtn", "--samples", "4"}, {"--samples", "--calibration"});
  check({"--method", "gptq", "--probe-tokens", "64", "--calibration", text()}, {"--probe-tokens", "gptq", "auto"});
  check({"--method", "rtn", "--users", "4"}, {"--users", "--target-gpu"});
}

}  // namespace
}  // namespace quintet::test
