// Work that was stopped goes on to the same bytes; what has changed meanwhile, and what is damaged, is told.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <random>

#include "backend/cpu/cpu.h"
#include "compress/quantize_model.h"
#include "io/model_files.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;
using testing::AllOf;
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

TEST_F(Resume, WithoutMemoryWhatIsSavedStays) {
  const QuantizeOptions options = options_of(QuantizeMethod::gptq);
  const std::string source = kTiny + "llama-plain.gguf", destination = path("out");
  const auto whole = run(source, path("straight"), options);
  ASSERT_TRUE(whole) << message(whole);
  const auto backend = make_cpu_backend({.threads = 1});
  // Behind half of the tensors, which are more than the first layer.
  size_t written = 0;
  QuantizeHooks hooks;
  hooks.on_tensor = [&](const TensorReport&) {
    if (++written > whole->tensors.size() / 2) throw std::bad_alloc();
  };
  const auto part = quantize_model(source, destination, *backend, options, hooks);
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().kind, ErrorKind::no_room);
  EXPECT_THAT(message(part), HasSubstr("out of memory"));
  EXPECT_TRUE(fs::exists(destination + ".partial/state.json"));
  const auto rest = run(source, destination, options);
  ASSERT_TRUE(rest) << message(rest);
  EXPECT_EQ(read(destination + "/model.safetensors"), read(path("straight") + "/model.safetensors"));
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

TEST_F(Resume, RowsAtATimeMayBeTooFewForOneOutlier) {
  for (const QuantizeMethod method : {QuantizeMethod::outlier, QuantizeMethod::gptq_outlier}) {
    QuantizeOptions options = options_of(method);
    options.shares = {.first = 0.001, .middle = 0.001, .head = 0.001};
    options.weights_at_once = 1000;  // the last rows of a tensor are fewer than those before
    const auto made = run(kTiny + "llama-plain.gguf", path("made"), options);
    ASSERT_TRUE(made) << message(made);
    int64_t outliers = 0;
    for (const TensorReport& tensor : made->tensors) outliers += tensor.outliers;
    EXPECT_GT(outliers, 0);
    EXPECT_TRUE(ModelFiles::open(path("made")));
    fs::remove_all(path("made"));
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
  EXPECT_THAT(message(run(source, out, options)), AllOf(HasSubstr("another source"), HasSubstr("bytes, last changed 20"), HasSubstr(" UTC")));
  EXPECT_TRUE(fs::exists(out + ".partial/state.json")) << "a mistaken command must not cost the work";
  other = options;
  other.restart = true;
  EXPECT_EQ(message(run(source, out, other)), "no error");
  EXPECT_TRUE(fs::exists(out));
}

TEST_F(Resume, FilesBesideTheWeightsBelongToTheWork) {
  const std::string source = path("source"), out = path("out"), straight = path("straight");
  fs::copy(kTiny + "llama3", source);
  std::ofstream(source + "/quantize_config.json") << "{}";
  std::ofstream(source + "/quant_config.json") << "{}";
  std::ofstream(source + "/notes.txt") << "mine";
  const QuantizeOptions options = options_of(QuantizeMethod::rtn);
  const auto whole = run(source, straight, options);
  ASSERT_TRUE(whole) << message(whole);
  EXPECT_EQ(read(straight + "/notes.txt"), "mine");
  for (const std::string left_out : {"quantize_config.json", "quant_config.json", "state.json", "lock"})
    EXPECT_FALSE(fs::exists(straight + "/" + left_out)) << left_out;

  ASSERT_FALSE(run(source, out, options, 12));
  std::ofstream(out + ".partial/foreign.txt") << "not of the model";
  fs::create_directories(out + ".partial/foreign/folder");
  const std::string config = read(source + "/config.json");
  const auto changed_at = fs::last_write_time(source + "/config.json");
  std::ofstream(source + "/config.json") << config + " ";
  fs::last_write_time(source + "/config.json", changed_at);
  EXPECT_THAT(message(run(source, out, options)), HasSubstr("another set of files beside the weights"));
  std::ofstream(source + "/config.json") << config;

  // Stopped while they are copied: the same command goes on.
  std::ofstream(source + "/large.txt") << std::string(5 << 20, 'a');
  const auto backend = make_cpu_backend({.threads = 1});
  for (const int copied : {0, 3}) {
    int asked = 0;
    QuantizeHooks hooks;
    hooks.progress = [&](uint64_t done, uint64_t all) { return done < all || asked++ <= copied; };
    const auto part = quantize_model(source, out, *backend, options, hooks);
    ASSERT_FALSE(part);
    ASSERT_EQ(part.error().kind, ErrorKind::cancelled) << message(part);
    ASSERT_TRUE(fs::exists(out + ".partial/state.json"));
  }
  const auto free_bytes = fs::space(source).available;
  std::error_code error;
  fs::resize_file(source + "/large.txt", free_bytes + (uint64_t{64} << 30), error);
  if (!error) {
    const auto full = run(source, out, options);
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().kind, ErrorKind::no_room) << message(full);
    EXPECT_THAT(message(full), HasSubstr("files beside the weights"));
  }
  fs::resize_file(source + "/large.txt", 3);
  EXPECT_EQ(message(run(source, out, options)), "no error");
  EXPECT_EQ(read(out + "/large.txt"), "aaa");
  EXPECT_EQ(read(out + "/model.safetensors"), read(straight + "/model.safetensors"));
  EXPECT_EQ(read(out + "/config.json"), read(straight + "/config.json"));
  fs::remove(out + "/large.txt");
  for (const auto& entry : fs::directory_iterator(out))
    EXPECT_TRUE(fs::exists(fs::path(straight) / entry.path().filename())) << entry.path();
}

TEST_F(Resume, AnImportanceMatrixOfZerosForOneWeightLeavesThatOneUnweighted) {
  const std::string source = kTiny + "llama-plain.gguf", unseen = "blk.0.ffn_up.weight", seen = "blk.0.ffn_gate.weight";
  const auto files = ModelFiles::open(source);
  ASSERT_TRUE(files);
  QuantizeOptions options = options_of(QuantizeMethod::gguf);
  const auto plain = run(source, path("plain.gguf"), options);
  ASSERT_TRUE(plain) << message(plain);
  options.importance.emplace();
  std::mt19937 random(std::random_device{}());
  std::exponential_distribution<float> size;
  for (const ModelTensor& tensor : files->tensors()) {
    std::vector<float> moments(static_cast<size_t>(tensor.weight.k));
    if (tensor.weight.name != unseen)
      for (float& moment : moments) moment = size(random);
    options.importance->emplace(tensor.weight.name, std::move(moments));
  }
  std::vector<std::string> warnings;
  QuantizeHooks hooks;
  hooks.on_warning = [&](std::string_view warning) { warnings.emplace_back(warning); };
  const auto backend = make_cpu_backend({.threads = 1});
  const auto weighted = quantize_model(source, path("weighted.gguf"), *backend, options, hooks);
  ASSERT_TRUE(weighted) << message(weighted);
  std::erase_if(warnings, [](const std::string& warning) { return warning.find("importance matrix") == warning.npos; });
  ASSERT_EQ(warnings.size(), 1u);
  EXPECT_THAT(warnings[0], HasSubstr(unseen));
  const auto before = ModelFiles::open(path("plain.gguf")), after = ModelFiles::open(path("weighted.gguf"));
  ASSERT_TRUE(before && after);
  const auto same = [&](const std::string& name) {
    return std::ranges::equal(before->find(name)->weight.bytes, after->find(name)->weight.bytes);
  };
  EXPECT_TRUE(same(unseen));
  EXPECT_FALSE(same(seen));
}

TEST_F(Resume, WhatNoModelCanHaveIsRefusedAtItsTensor) {
  QuantizeOptions options = options_of(QuantizeMethod::outlier);
  options.importance = ImportanceMatrix{{"blk.0.attn_q.weight", {0, 0, 0}}};
  EXPECT_THAT(message(run(kTiny + "llama-plain.gguf", path("out"), options)), HasSubstr("zeros alone"));
  const auto files = ModelFiles::open(kTiny + "llama-plain.gguf");
  ASSERT_TRUE(files);
  for (const std::string name : {"token_embd.weight", "blk.0.attn_norm.weight", "output_norm.weight"}) {
    std::string bytes = read(kTiny + "llama-plain.gguf");
    const ModelTensor* tensor = files->find(name);
    ASSERT_NE(tensor, nullptr) << name;
    ASSERT_EQ(tensor->weight.format, WeightFormat::f32);
    const std::string values(tensor->weight.bytes.begin(), tensor->weight.bytes.end());
    const size_t at = bytes.find(values);
    ASSERT_NE(at, bytes.npos);
    const float bad = name == "token_embd.weight" ? INFINITY : NAN;
    std::memcpy(bytes.data() + at + 4 * 5, &bad, 4);
    std::ofstream(path("bad.gguf"), std::ios::binary) << bytes;
    const auto made = run(path("bad.gguf"), path("out"), options_of(QuantizeMethod::rtn));
    ASSERT_FALSE(made);
    EXPECT_EQ(made.error().kind, ErrorKind::bad_input);
    EXPECT_THAT(message(made), testing::AllOf(HasSubstr(name), HasSubstr("column 5"), HasSubstr("NaN or infinity")));
    EXPECT_FALSE(fs::exists(path("out.partial")));
  }
}

// GGUF has other names, and another order of the rows of q and k: neither is the folder's.
TEST_F(Resume, WhatAMixRefusesIsNamedAsTheFolderNamesItToo) {
  struct Case {
    const char *in_folder, *in_file;
    int row, row_in_file;
  };
  for (const Case& c : {Case{"model.layers.1.self_attn.q_proj.weight", "blk.1.attn_q.weight", 65, 66},
                        Case{"model.layers.0.mlp.up_proj.weight", "blk.0.ffn_up.weight", 3, 3}}) {
    const std::string source = path("source");
    fs::copy(kTiny + "mistral", source);
    for (const char* name : {"tokenizer.json", "tokenizer_config.json"}) fs::copy_file(kTiny + "llama3/" + name, source + "/" + name);
    std::string bytes = read(source + "/model.safetensors");
    uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    const size_t entry = bytes.find(fmt::format("\"{}\"", c.in_folder));
    ASSERT_LT(entry, header);
    ASSERT_EQ(bytes.substr(bytes.find("\"dtype\"", entry), 14), "\"dtype\":\"BF16\"");
    const size_t offset = std::stoull(bytes.substr(bytes.find("\"data_offsets\":[", entry) + 16));
    bytes.replace(sizeof header + header + offset + static_cast<size_t>(2 * (32 * c.row + 5)), 2, "\xc0\x7f", 2);  // NaN
    std::ofstream(source + "/model.safetensors", std::ios::binary) << bytes;
    const auto made = run(source, path("out.gguf"), options_of(QuantizeMethod::gguf));
    EXPECT_THAT(message(made), HasSubstr(fmt::format("tensor {} (in the folder {}{}): row {}, column 5: found", c.in_file, c.in_folder,
                                                     c.row == c.row_in_file ? "" : fmt::format(", row {}", c.row), c.row_in_file)));
    fs::remove_all(source);
  }
  QuantizeOptions options = options_of(QuantizeMethod::gguf);
  options.overrides = {{"*.self_attn.q_proj.weight", WeightFormat::q4_0}};
  EXPECT_THAT(message(run(kTiny + "llama3", path("out.gguf"), options)),
              HasSubstr(" 'token_embd.weight' (in the folder model.embed_tokens.weight), say"));
}

// What AWQ makes of a weight may be larger: it is the file's that is judged, and told.
TEST_F(Resume, WeightsAreCheckedAsTheFileHasThem) {
  const auto files = ModelFiles::open(kTiny + "llama-plain.gguf");
  ASSERT_TRUE(files);
  const HostWeight& gate = files->find("blk.1.ffn_gate.weight")->weight;
  ASSERT_EQ(gate.format, WeightFormat::f32);
  for (const float value : {58000.0f, 60010.0f})
    for (const size_t column : {5, 7}) {  // the scales of which are below 1, and above
      std::string bytes = read(kTiny + "llama-plain.gguf");
      const size_t at = bytes.find(std::string(gate.bytes.begin(), gate.bytes.end()));
      ASSERT_NE(at, bytes.npos);
      std::memcpy(bytes.data() + at + 4 * (static_cast<size_t>(37 * gate.k) + column), &value, 4);
      std::ofstream(path("large.gguf"), std::ios::binary) << bytes;
      const auto made = run(path("large.gguf"), path("out"), options_of(QuantizeMethod::awq));
      EXPECT_EQ(made.has_value(), value < 60000) << message(made);
      if (!made) {
        EXPECT_THAT(message(made), HasSubstr(fmt::format("row 37, column {}: found 60010", column)));
      }
      fs::remove_all(path("out"));
    }
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

TEST_F(Resume, ADiskThatIsTooSmallIsToldBeforeTheWork) {
  const uint64_t free_bytes = fs::space(folder_).available;
  const int64_t vocabulary = 1 << 24, hidden = 64 * (static_cast<int64_t>(free_bytes / (128 * vocabulary)) + 10);
  const std::string source = path("source");
  fs::create_directory(source);
  std::ofstream(source + "/config.json") << fmt::format(
      R"({{"architectures": ["MistralForCausalLM"], "model_type": "mistral", "hidden_size": {}, "intermediate_size": 64, "head_dim": 64,
           "num_attention_heads": 2, "num_key_value_heads": 1, "num_hidden_layers": 1, "vocab_size": {}, "tie_word_embeddings": true,
           "max_position_embeddings": 128, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu"}})",
      hidden, vocabulary);
  std::string header;
  int64_t bytes = 0;
  const auto add = [&](const std::string& name, std::initializer_list<int64_t> shape) {
    int64_t weights = 1;
    for (const int64_t size : shape) weights *= size;
    header += fmt::format(R"({}"{}":{{"dtype":"BF16","shape":[{}],"data_offsets":[{},{}]}})", header.empty() ? "{" : ",", name, fmt::join(shape, ","),
                          bytes, bytes + 2 * weights);
    bytes += 2 * weights;
  };
  add("model.embed_tokens.weight", {vocabulary, hidden});
  for (const auto& [name, rows] : {std::pair("self_attn.q_proj", 128), {"self_attn.k_proj", 64}, {"self_attn.v_proj", 64}, {"mlp.gate_proj", 64}, {"mlp.up_proj", 64}})
    add(fmt::format("model.layers.0.{}.weight", name), {rows, hidden});
  add("model.layers.0.self_attn.o_proj.weight", {hidden, 128});
  add("model.layers.0.mlp.down_proj.weight", {hidden, 64});
  for (const char* name : {"layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm"}) add(fmt::format("model.{}.weight", name), {hidden});
  header += "}";
  const uint64_t header_bytes = header.size();
  std::ofstream(source + "/model.safetensors", std::ios::binary) << std::string(reinterpret_cast<const char*>(&header_bytes), 8) << header;
  std::error_code error;
  fs::resize_file(source + "/model.safetensors", 8 + header_bytes + static_cast<uint64_t>(bytes), error);
  if (error) GTEST_SKIP() << "no files of " << bytes << " bytes here: " << error.message();
  int steps = 0;
  QuantizeHooks hooks;
  hooks.progress = [&](uint64_t, uint64_t) { return ++steps, true; };
  const auto backend = make_cpu_backend({.threads = 1});
  const auto full = quantize_model(source, path("out"), *backend, options_of(QuantizeMethod::rtn), hooks);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().kind, ErrorKind::no_room) << message(full);
  EXPECT_THAT(message(full), AllOf(HasSubstr("free on its disk, needed are "), HasSubstr(" for weights")));
  EXPECT_EQ(steps, 0);
  EXPECT_FALSE(fs::exists(path("out.partial")));
}

TEST_F(Resume, NothingStaysOfWorkThatCannotBe) {
  QuantizeOptions options = options_of(QuantizeMethod::gptq);
  options.calibration_text = "short";
  EXPECT_FALSE(run(kTiny + "llama-plain.gguf", path("out"), options));
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace quintet
