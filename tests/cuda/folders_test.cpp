// Folders as users have them: dense ones of every architecture against Transformers, and those that quantize makes by each
// method against the CPU.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>

#include "backend/cpu/cpu.h"
#include "compress/quantize_model.h"
#include "cuda_fixture.h"
#include "flat_inputs.h"
#include "golden/golden_data.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

class CudaFolders : public CudaTest {
 protected:
  void SetUp() override {
    CudaTest::SetUp();
    if (IsSkipped()) return;
    if (!fs::exists(tiny("qwen2"))) GTEST_SKIP() << tiny("qwen2") << " is missing";
  }
  /// Makes a folder of GPTQ's one with act-order: columns, by the same order wherever there are as many, belong to other groups.
  void shuffle_groups(const fs::path& file) {
    std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
    uint64_t header_bytes = 0;
    bytes.read(reinterpret_cast<char*>(&header_bytes), 8);
    std::string header(header_bytes, ' ');
    bytes.read(header.data(), static_cast<std::streamsize>(header_bytes));
    const std::regex entry(R"(g_idx":\{[^}]*"data_offsets":\[([0-9]+),([0-9]+)\])");
    std::map<size_t, std::vector<int32_t>> orders;
    for (std::sregex_iterator match(header.begin(), header.end(), entry), end; match != end; ++match) {
      const uint64_t from = std::stoull((*match)[1]), to = std::stoull((*match)[2]);
      std::vector<int32_t> groups((to - from) / 4);
      const auto at = static_cast<std::streamoff>(8 + header_bytes + from);
      bytes.seekg(at).read(reinterpret_cast<char*>(groups.data()), static_cast<std::streamsize>(to - from));
      std::vector<int32_t>& order = orders[groups.size()];
      if (order.empty()) {
        order = groups;
        std::shuffle(order.begin(), order.end(), random_);
      }
      bytes.seekp(at).write(reinterpret_cast<const char*>(order.data()), static_cast<std::streamsize>(to - from));
    }
    ASSERT_FALSE(orders.empty()) << header;
  }
  static std::string tiny(const std::string& name) { return source_folder() + "/tests/golden/data/tiny/" + name; }
};

TEST_F(CudaFolders, DenseOnesGiveTheLogitsOfTransformers) {
  for (const std::string name : {"gemma3", "llama-linear", "llama-yarn", "llama3", "mistral", "phi3", "qwen2", "qwen2-yarn-window", "qwen3"}) {
    SCOPED_TRACE(name);
    backend_ = make_cuda_backend({.path = tested_path()}).value();
    const testing::Fixture wanted(tiny(name + ".logits.safetensors"));
    const auto model = testing::load_network(tiny(name), *backend_);
    const auto ids = wanted.values<int32_t>("ids"), rows = wanted.values<int32_t>("rows");
    const auto logits = wanted.values<float>("logits");
    // As tests/golden allows for an FP16 cache; FP16 activations are rounded as coarsely before each of seven products more:
    // about sqrt(8) times.
    const double tolerance = std::sqrt(8.0) * wanted.values<float>("noise")[0] * (0x1p-11 / 0x1p-24) / 8;
    const auto vocabulary = static_cast<size_t>(model->config.vocabulary);
    testing::FlatInputs flat(*backend_);
    std::vector<float> whole;
    for (const int32_t chunk : {50, 1}) {
      testing::SingleSequence sequence(flat, *model, static_cast<int32_t>(ids.size()), chunk);
      const std::vector<float> got = sequence.feed_all(ids, chunk);
      if (whole.empty()) whole = got;
      EXPECT_EQ(std::memcmp(got.data(), whole.data(), whole.size() * 4), 0) << "chunks of " << chunk;
    }
    double largest = 0;
    for (size_t i = 0; i < rows.size(); ++i)
      for (size_t v = 0; v < vocabulary; ++v) {
        const double difference = std::abs(static_cast<double>(whole[static_cast<size_t>(rows[i]) * vocabulary + v]) - logits[i * vocabulary + v]);
        largest = std::isnan(difference) ? HUGE_VAL : std::max(largest, difference);
      }
    EXPECT_LE(largest, tolerance);
    RecordProperty(name, std::to_string(largest / tolerance));
  }
}

TEST_F(CudaFolders, CompressedOnesContinueAsOnTheCpu) {
  std::string pattern = (fs::temp_directory_path() / "quintet-cuda-XXXXXX").string();
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  const fs::path place = pattern;
  std::string text;
  for (int i = 0; i < 400; ++i) text += "Weights of layer " + std::to_string(i * i) + " are rounded; what they lose is measured on text like this. ";

  using enum QuantizeMethod;
  struct Method {
    const char* name;
    QuantizeOptions options;
  };
  const auto integers = [&](QuantizeMethod method, IntegerFormat format) {
    return QuantizeOptions{.method = method, .format = format, .shares = {.first = 0.005, .middle = 0.005}, .calibration_text = text, .samples = 4, .length = 64, .threads = 1};
  };
  const auto direct_to = [&](WeightFormat format) { return QuantizeOptions{.method = direct, .direct = format, .threads = 1}; };
  std::vector<Method> methods = {{"rtn int4", integers(rtn, {4, 128, false})},
                                 {"rtn int4 asym", integers(rtn, {4, 64, true})},
                                 {"rtn int3", integers(rtn, {3, 32, false})},
                                 {"rtn int3 asym", integers(rtn, {3, 64, true})},
                                 {"rtn int8", integers(rtn, {8, 128, false})},
                                 {"rtn int8 asym", integers(rtn, {8, 32, true})},
                                 {"outlier", integers(outlier, {4, 64, false})},
                                 {"gptq with act-order", integers(gptq, {4, 32, false})},
                                 {"gptq with outliers", integers(gptq_outlier, {4, 64, true})},
                                 {"awq", integers(awq, {4, 64, true})},
                                 {"nf4", direct_to(WeightFormat::nf4)},
                                 {"nf4, double quantization", direct_to(WeightFormat::nf4_dq)},
                                 {"fp8", direct_to(WeightFormat::fp8)},
                                 {"int8", direct_to(WeightFormat::int8)}};
  methods[7].options.layout = FolderLayout::gptq;
  methods[6].options.overrides = {{.pattern = "*embed*", .format = WeightFormat::int8_g64}};
  const auto cpu = make_cpu_backend({.threads = 1});
  bool act_order = false, outliers = false;
  for (const Method& method : methods) {
    SCOPED_TRACE(method.name);
    const std::string folder = place / method.name;
    const auto report = quantize_model(tiny("qwen2"), folder, *cpu, method.options, {});
    ASSERT_TRUE(report) << report.error().message;
    if (method.options.layout == FolderLayout::gptq) shuffle_groups(fs::path(folder) / "model.safetensors");
    backend_ = make_cuda_backend({.path = tested_path()}).value();
    const auto on_cpu = testing::load_network(folder, *cpu), on_gpu = testing::load_network(folder, *backend_);
    for (const ModelTensor& tensor : std::static_pointer_cast<const WeightSource>(on_gpu->files)->files.tensors()) {
      QuantizedMatrix made;
      act_order |= !made_of(tensor.weight, made).value().in_perm.empty();
      outliers |= !tensor.weight.outliers.empty();
    }
    testing::FlatInputs flat(*backend_);
    double error = 0, norm = 0;
    for (int prompt = 0; prompt < 4; ++prompt) {
      std::vector<TokenId> tokens(static_cast<size_t>(3 + 9 * prompt));
      for (TokenId& token : tokens) token = static_cast<TokenId>(random_() % static_cast<uint32_t>(on_cpu->config.vocabulary));
      testing::SingleSequence wanted(*cpu, *on_cpu, 128, 64), got(flat, *on_gpu, 128, 64);
      for (int step = 0; step < 24; ++step) {
        const std::vector<float> want = wanted.feed(tokens, 1), found = got.feed(tokens, 1);
        double largest = 0;
        for (size_t i = 0; i < want.size(); ++i) {
          const double difference = static_cast<double>(found[i]) - want[i];
          error += difference * difference, norm += static_cast<double>(want[i]) * want[i];
          largest = std::max(largest, std::abs(difference));
        }
        const auto best = std::max_element(want.begin(), want.end()) - want.begin(), best_found = std::max_element(found.begin(), found.end()) - found.begin();
        // Near-ties aside: two logits that are nearer than both may be off.
        if (best != best_found) {
          EXPECT_LE(want[static_cast<size_t>(best)] - want[static_cast<size_t>(best_found)], 2 * largest) << "prompt " << prompt << " step " << step;
        }
        tokens = {static_cast<TokenId>(best)};
      }
    }
    // As in model_test.cpp: about 16 independent roundings to FP16, each at most 2^-11 of its operand.
    EXPECT_LE(std::sqrt(error / norm), 4 * std::sqrt(16.0) * 0x1p-11);
  }
  EXPECT_TRUE(act_order);
  EXPECT_TRUE(outliers);
  fs::remove_all(place);
}

}  // namespace
}  // namespace quintet
