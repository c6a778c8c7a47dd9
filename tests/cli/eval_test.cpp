// `quintet eval` on tiny models of the source tree: its figures against those computed here from dumped
// logits.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace quintet::test {
namespace {

using Json = nlohmann::json;

const std::string kText = "The quick brown fox jumps over the lazy dog, and then it sleeps for a while.";

std::string tiny(const std::string& name) { return source_path("tests/golden/data/tiny/" + name); }

Args eval(const Args& more) {
  Args args = {"eval", "--threads=1"};
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

/// What --json prints: an object a line.
std::vector<Json> json_lines(const std::string& out) {
  std::vector<Json> lines;
  for (size_t at = 0; at < out.size(); at = out.find('\n', at) + 1)
    lines.push_back(Json::parse(out.substr(at, out.find('\n', at) - at)));
  return lines;
}

/// [rows][vocabulary] log-probabilities of the text's positions, BOS first.
std::vector<std::vector<double>> log_probs(const TemporaryFolder& folder, const std::string& model) {
  const std::string path = folder.path("logits.npy");
  EXPECT_EQ(run({"run", model, "--threads=1", "--raw", "-p", kText, "-n", "0", "--dump-logits", path}).code,
            0);
  const std::string bytes = read_file(path);
  const size_t header =
      10 + static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  const size_t rows = kText.size() + 1;  // a token each for BOS and every byte
  const size_t vocabulary = (bytes.size() - header) / sizeof(float) / rows;
  std::vector<std::vector<double>> all(rows);
  for (size_t r = 0; r < rows; ++r) {
    std::vector<float> logits(vocabulary);
    std::memcpy(logits.data(), bytes.data() + header + r * vocabulary * sizeof(float),
                vocabulary * sizeof(float));
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(logit - top);
    for (const float logit : logits) all[r].push_back(logit - top - std::log(sum));
  }
  return all;
}

std::vector<int> ids() {
  const Outcome outcome = run({"tokenize", tiny("llama-plain.gguf"), "-p", kText});
  std::vector<int> ids;
  size_t at = 0;
  while (at < outcome.out.size() && outcome.out[at] != '\n') {
    size_t used = 0;
    ids.push_back(std::stoi(outcome.out.substr(at), &used));
    at += used;
    while (at < outcome.out.size() && outcome.out[at] == ' ') ++at;
  }
  return ids;
}

TEST(Eval, PerplexityAndDivergenceAreThoseOfTheLogits) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", kText);
  const std::string model = tiny("llama-linear.gguf"), reference = tiny("llama-plain.gguf");
  const Outcome outcome =
      run(eval({model, reference, "--kl", reference, text, "--context", "100", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto p = log_probs(folder, reference), q = log_probs(folder, model);
  auto tokens = ids();
  if (tokens.size() == p.size()) tokens.erase(tokens.begin());  // BOS
  ASSERT_EQ(tokens.size() + 1, p.size());
  double nll = 0, reference_nll = 0, kl = 0, kl_max = 0, same = 0;
  for (size_t i = 0; i < tokens.size(); ++i) {
    const auto target = static_cast<size_t>(tokens[i]);
    nll -= q[i][target];
    reference_nll -= p[i][target];
    double row = 0;
    for (size_t v = 0; v < p[i].size(); ++v) row += std::exp(p[i][v]) * (p[i][v] - q[i][v]);
    kl += row;
    kl_max = std::max(kl_max, row);
    same += std::max_element(p[i].begin(), p[i].end()) - p[i].begin() ==
            std::max_element(q[i].begin(), q[i].end()) - q[i].begin();
  }
  const auto count = static_cast<double>(tokens.size());
  const size_t second = outcome.out.find('\n') + 1;
  const Json line = Json::parse(outcome.out.substr(0, second)),
             self = Json::parse(outcome.out.substr(second));
  EXPECT_EQ(line["path"], model);
  EXPECT_EQ(line["bytes"], std::filesystem::file_size(model));
  EXPECT_EQ(line["tokens"], tokens.size());
  EXPECT_NEAR(line["ppl"].get<double>() / std::exp(nll / count), 1, 1e-5);
  EXPECT_NEAR(line["ppl_ratio"].get<double>() / std::exp((nll - reference_nll) / count), 1, 1e-5);
  EXPECT_NEAR(line["kl_mean"].get<double>(), kl / count, 1e-4 * kl / count + 1e-6);
  EXPECT_NEAR(line["kl_max"].get<double>(), kl_max, 1e-3 * kl_max + 1e-6);
  EXPECT_NEAR(line["top1"].get<double>(), same / count, 1e-6);
  for (const char* pair : {"ppl", "kl", "top1", "ppl_ratio"}) {
    const double value = line[pair == std::string("kl") ? "kl_mean" : pair].get<double>();
    EXPECT_LE(line[std::string(pair) + "_ci"][0].get<double>(), value) << pair;
    EXPECT_GE(line[std::string(pair) + "_ci"][1].get<double>(), value) << pair;
  }
  EXPECT_EQ(self["path"], reference);
  EXPECT_LT(self["kl_max"].get<double>(), 1e-6);
  EXPECT_EQ(self["top1"], 1.0);
}

TEST(Eval, WindowsAreSeparate) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", kText),
                    half = folder.write("half.txt", kText.substr(0, 31));
  const auto ppl = [&](const Args& more) {
    const Outcome outcome = run(eval(more));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out, nullptr, false);
  };
  const std::string model = tiny("llama-plain.gguf");
  const Json first = ppl({model, "--perplexity", half, "--context", "32", "--json"});
  const Json cut = ppl({model, "--perplexity", text, "--context", "32", "--tokens", "31", "--json"});
  EXPECT_EQ(first["ppl"], cut["ppl"]);
  EXPECT_EQ(first["tokens"], 31);
  // With a stride every token has a longer context, and is still scored once.
  EXPECT_EQ(ppl({model, "--perplexity", text, "--context", "32", "--stride", "8", "--json"})["tokens"],
            kText.size());
}

TEST(Eval, TheReferenceIsCachedAndRecognized) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", kText), cache = folder.path("reference.logp");
  const std::string model = tiny("llama-linear.gguf"), reference = tiny("llama-plain.gguf");
  const Args args =
      eval({model, "--kl", reference, text, "--context", "64", "--json", "--reference-cache", cache});
  const Outcome fresh = run(args);
  ASSERT_EQ(fresh.code, 0) << fresh.err;
  ASSERT_TRUE(std::filesystem::exists(cache));
  EXPECT_EQ(run(args).out, fresh.out);
  Args other = args;
  other[7] = "40";
  expect_error(run(other), 2, {cache, "something else"});
  folder.write("reference.logp", "garbage");
  expect_error(run(args), 2, {cache, "no reference probabilities"});
}

TEST(Eval, GatesSetTheExitCode) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", kText);
  const std::string model = tiny("llama-linear.gguf"), reference = tiny("llama-plain.gguf");
  const Args args = {model, "--kl", reference, text, "--context", "64"};
  const auto gate = [&](const std::string& bounds) {
    Args all = eval(args);
    all.insert(all.end(), {"--gate", bounds});
    return run(all);
  };
  EXPECT_EQ(gate("kl=1e9,ppl=1e9,top1=0").code, 0);
  const Outcome missed = gate("kl=1e-9");
  EXPECT_EQ(missed.code, 1);
  EXPECT_NE(missed.err.find("kl is "), std::string::npos) << missed.err;
  EXPECT_NE(missed.out.find(model), std::string::npos) << "the table is printed all the same";
  expect_error(gate("speed=3"), 2, {"--gate", "'speed=3'", "kl, kl_p99, top1, ppl, ppl_ratio"});
  expect_error(gate("kl"), 2, {"--gate", "'kl'"});
  expect_error(gate("kl=low"), 2, {"--gate", "'kl=low'"});
}

TEST(Eval, LossIsAttributedToItsSources) {
  const TemporaryFolder folder;
  const std::string reference = tiny("llama-plain.gguf"), text = folder.write("text.txt", kText), made = folder.path("made");
  ASSERT_EQ(run({"quantize", reference, made, "--method", "rtn", "--bits", "3", "--group-size", "32", "--threads=1", "--no-smoke"}).code, 0);
  const auto attribute = [&](const std::string& model, const std::string& device) {
    const Outcome outcome =
        run(eval({model, "--kl", reference, text, "--context", "64", "--attribute", "--device", device, "--json"}));
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    return Json::parse(outcome.out, nullptr, false);
  };
  const Json itself = attribute(reference, "cpu"), compressed = attribute(made, "cpu"), exact = attribute(made, "reference");
  for (const char* key : {"path", "bytes", "tokens", "ppl", "ppl_ci", "kl_mean", "kl_ci", "kl_p99", "kl_max", "top1", "ppl_ratio"})
    EXPECT_TRUE(itself.contains(key)) << key << " is there as without --attribute";
  EXPECT_LT(itself["kl_weights"].get<double>(), 1e-7);
  EXPECT_EQ(itself["kv_format"], "f16");
  EXPECT_GT(itself["kl_kv"].get<double>(), 0);
  EXPECT_LT(itself["kl_mean"].get<double>(), 1e-3);
  EXPECT_NEAR(itself["kl_kv"].get<double>() + itself["kl_activations"].get<double>(), itself["kl_mean"].get<double>(), 1e-7)
      << "without loss of weights the device's own is all there is";
  EXPECT_GT(compressed["kl_weights"].get<double>(), 0.01);
  EXPECT_NEAR(compressed["kl_weights"].get<double>(), compressed["kl_mean"].get<double>(), 0.01);
  EXPECT_EQ(exact["kl_weights"], exact["kl_mean"]) << "the reference rounds nothing";
  EXPECT_LT(exact["kl_kv"].get<double>(), 1e-7);
  EXPECT_LT(exact["kl_activations"].get<double>(), 1e-7);
  const Outcome table = run(eval({made, "--kl", reference, text, "--context", "64", "--attribute"}));
  EXPECT_NE(table.out.find("KV in f16"), std::string::npos) << table.err;
  expect_error(run(eval({made, "--perplexity", text, "--attribute"})), 2, {"--attribute", "--kl"});
}

TEST(Eval, TasksAreAskedAndModelsComparedQuestionByQuestion) {
  const TemporaryFolder folder;
  const std::string model = tiny("llama-plain.gguf"), other = tiny("llama-linear.gguf");
  // What the model answers is right, so that it scores 1; a model of other weights hardly says the same.
  std::string lines;
  for (int i = 0; i < 8; ++i) {
    const std::string prompt = "question " + std::to_string(i * 37) + ": ";
    const Outcome answer = run({"run", model, "--raw", "-p", prompt, "-n", "6", "--threads=1", "--json"});
    ASSERT_EQ(answer.code, 0) << answer.err;
    lines += Json{{"prompt", prompt},
                  {"answer", Json::parse(answer.out)["text"]},
                  {"metric", i % 2 ? "exact" : "f1"},
                  {"task", i < 4 ? "first" : "second"},
                  {"max_tokens", 6}}
                 .dump(-1, ' ', false, Json::error_handler_t::replace) +
             "\n";
  }
  const std::string file = folder.write("tasks.jsonl", lines);
  const Outcome outcome = run(eval({model, other, model, "--tasks", file, "--raw", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<Json> made = json_lines(outcome.out);
  ASSERT_EQ(made.size(), 3u);
  EXPECT_EQ(made[0]["score"], 1.0);
  EXPECT_EQ(made[0]["questions"], 8);
  ASSERT_EQ(made[0]["tasks"].size(), 2u);
  EXPECT_EQ(made[0]["tasks"]["second"], Json({{"score", 1.0}, {"questions", 4}, {"metrics", {"exact", "f1"}}}));
  EXPECT_FALSE(made[0].contains("difference"));
  EXPECT_EQ(made[2]["difference"], 0.0);
  EXPECT_EQ(made[2]["difference_ci"], Json({0.0, 0.0})) << "the same answers question by question";
  EXPECT_LT(made[1]["score"], 1.0);
  EXPECT_NEAR(made[1]["difference"].get<double>(), made[1]["score"].get<double>() - 1, 1e-9);
  EXPECT_LE(made[1]["difference_ci"][0], made[1]["difference"]);
  EXPECT_GE(made[1]["difference_ci"][1], made[1]["difference"]);
  EXPECT_EQ(run(eval({model, "--tasks", file})).code, 0) << "through the chat template";
  expect_error(run(eval({model, "--tasks", folder.write("bad.jsonl", "{}\n")})), 2, {"bad.jsonl: line 1", "prompt"});
  expect_error(run(eval({model, "--tasks", folder.write("long.jsonl", Json{{"prompt", std::string(500, 'x')}, {"answer", 1}}.dump())})), 2,
               {"long.jsonl: line 1", "128"});
  expect_error(run(eval({model, "--tasks", folder.write("none.jsonl", R"({"messages": [], "answer": 1})")})), 2,
               {"none.jsonl: line 1: messages: found an empty list"});
  const std::string wrong = "\n" + Json{{"messages", {{{"role", "bishop"}, {"content", "x"}}}}, {"answer", 1}}.dump();
  expect_error(run(eval({model, "--tasks", folder.write("role.jsonl", wrong)})), 2, {"role.jsonl: line 2: ", "messages[0].role"});

  // All models are looked at before the first is asked.
  const Outcome late = run(eval({model, folder.path("missing.gguf"), "--tasks", file, "--raw", "--json"}));
  expect_error(late, 2, {"missing.gguf"});
  EXPECT_EQ(late.out, "");

  const std::string echo = folder.write("echo.jinja", "{{ messages[0]['content'] }}");
  const Outcome by_template = run(eval({model, "--tasks", file, "--chat-template", echo, "--json"})),
                raw = run(eval({model, "--tasks", file, "--raw", "--json"}));
  ASSERT_EQ(by_template.code, 0) << by_template.err;
  EXPECT_EQ(Json::parse(by_template.out)["score"], Json::parse(raw.out)["score"]);
  const std::string broken = folder.write("broken.jinja", "{{ raise_exception('no such turn') }}");
  expect_error(run(eval({model, "--tasks", file, "--chat-template", broken})), 2, {"tasks.jsonl: line 1", "no such turn"});
}

TEST(Eval, ChoicesOfSeveralModelsAreComparedQuestionByQuestion) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder.path("mmlu/dev"));
  std::filesystem::create_directories(folder.path("mmlu/test"));
  folder.write("mmlu/dev/x_dev.csv", "Who?,a,b,c,d,B\n");
  std::string questions;
  for (int i = 0; i < 12; ++i) questions += std::string(1, static_cast<char>('a' + i)) + "?,1,2,3,4," + "ABCD"[i % 4] + "\n";
  folder.write("mmlu/test/x_test.csv", questions);
  const std::string model = tiny("llama-plain.gguf"), other = tiny("llama-linear.gguf");
  const Outcome outcome = run(eval({model, other, model, "--choices", folder.path("mmlu"), "--shots", "0", "--json"}));
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const std::vector<Json> made = json_lines(outcome.out);
  ASSERT_EQ(made.size(), 3u);
  EXPECT_EQ(made[0]["questions"], 12);
  EXPECT_EQ(made[0]["subjects"]["x"]["questions"], 12);
  EXPECT_LE(made[0]["accuracy_ci"][0], made[0]["accuracy"]);
  EXPECT_GE(made[0]["accuracy_ci"][1], made[0]["accuracy"]);
  EXPECT_FALSE(made[0].contains("difference"));
  EXPECT_NEAR(made[1]["difference"].get<double>(), made[1]["accuracy"].get<double>() - made[0]["accuracy"].get<double>(), 1e-6);
  EXPECT_EQ(made[2]["difference_ci"], Json({0.0, 0.0})) << "the same answers";
}

TEST(Eval, BadInputIsNamed) {
  const TemporaryFolder folder;
  const std::string text = folder.write("text.txt", kText), model = tiny("llama-plain.gguf");
  expect_error(run(eval({model})), 2, {"--perplexity FILE", "--kl REFERENCE FILE"});
  expect_error(run(eval({model, "--kl", model})), 2, {"--kl"});
  expect_error(run(eval({model, "--perplexity", "/nonexistent.txt"})), 2, {"/nonexistent.txt"});
  expect_error(run(eval({model, "--perplexity", folder.write("empty.txt", ""), "--context", "64"})), 2,
               {"text", "0 tokens"});
  expect_error(run(eval({model, "--perplexity", folder.write("binary.bin", "ab\xff\x01")})), 2,
               {"binary.bin", "byte 2", "UTF-8"});
  expect_error(run(eval({model, "--perplexity", text, "--context", "4096"})), 2,
               {"--context", "4096", "128"});
  expect_error(run(eval({model, "--perplexity", text, "--context", "64", "--stride", "65"})), 2,
               {"--stride", "65", "1 to 64"});
  expect_error(run(eval({model, "--perplexity", text, "--context", "64", "--gate", "kl=1"})), 2,
               {"--gate", "kl", "--kl"});
  for (const std::string gate : {"ppl=nan", "ppl=inf", "ppl=-1", "ppl=1,ppl=2", "ppl=1,", ",ppl=1", "ppl=", "ppl", "ppl=1e999"})
    expect_error(run(eval({model, "--perplexity", text, "--context", "64", "--gate", gate})), 2, {"--gate", "found"});
  expect_error(run(eval({model, "--kl", model, text, "--context", "64", "--gate", "top1=1.5"})), 2,
               {"--gate: top1: found 1.5, allowed is a number from 0 to 1"});
  expect_error(run(eval({model, "--needle", "64,4096"})), 2, {"--needle: found 4096", "128"});
  // Not passed over: a gate that nothing is held against would let everything through.
  for (const Args& what : {Args{"--tasks", text}, Args{"--choices", folder.path("")}, Args{"--needle", "64"}})
    for (const Args& flag : {Args{"--gate", "ppl=1"}, Args{"--context", "64"}, Args{"--stride", "8"}, Args{"--tokens", "8"}})
      expect_error(run(eval({model, what[0], what[1], flag[0], flag[1]})), 2, {what[0], flag[0]});
  expect_error(run(eval({model, "--kl", model, text, "--context", "64", "--attribute", "--reference-cache", text})), 2,
               {"--attribute", "--reference-cache"});
  // Another tokenizer of as many tokens; told before the first model is measured.
  const std::string swapped = folder.path("swapped");
  std::filesystem::copy(tiny("qwen2"), swapped);
  Json tokenizer = Json::parse(read_file(swapped + "/tokenizer.json"));
  Json& vocabulary = tokenizer["model"]["vocab"];
  std::swap(vocabulary["q"], vocabulary["x"]);
  folder.write("swapped/tokenizer.json", tokenizer.dump());
  expect_error(run(eval({tiny("qwen2"), swapped, "--kl", tiny("qwen2"), text, "--context", "64"})), 2,
               {"swapped: found other ids than", "token 4 of the text is", "the same tokenizer"});
}

}  // namespace
}  // namespace quintet::test
