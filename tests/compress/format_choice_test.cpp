// How formats are chosen: bytes spent where they save most, errors measured on some rows, and groups of tensors tried.
#include <gtest/gtest.h>

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "backend/cpu/cpu.h"
#include "compress/choose_formats.h"
#include "compress/encode_matrix.h"
#include "compress/format_budget.h"
#include "compress/format_errors.h"
#include "model/model.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

using enum WeightFormat;

std::mt19937& rng() {
  static std::mt19937 engine{std::random_device{}()};
  return engine;
}

TEST(FormatBudget, OptionsThatNoBudgetWouldTakeAreLeftOut) {
  std::vector<FormatOption> options = {{.format = int4_g64, .bytes = 40, .kl = 4},  {.format = int3_g32, .bytes = 30, .kl = 20},
                                       {.format = q4_0, .bytes = 45, .kl = 4.5},    {.format = int4_g128, .bytes = 40, .kl = 5},
                                       {.format = int3_g128, .bytes = 20, .kl = 24}, {.format = f16, .bytes = 100, .kl = 0}};
  keep_hull(options);
  std::vector<WeightFormat> left;
  for (const FormatOption& option : options) left.push_back(option.format);
  // int3_g32 costs half the way to int4_g64 and saves a fifth of what that saves.
  EXPECT_EQ(left, (std::vector{int3_g128, int4_g64, f16}));
}

TEST(FormatBudget, LosesNoMoreThanTheBestChoiceOfALittleLess) {
  for (int round = 0; round < 50; ++round) {
    std::vector<std::vector<FormatOption>> groups(5);
    uint64_t least = 0, largest_step = 0;
    for (auto& options : groups) {
      const double sensitivity = std::exp(std::normal_distribution<double>(0, 1)(rng()));
      const uint64_t weights = 10 + rng()() % 90;
      for (const uint64_t bits : {3, 4, 5, 6, 8})
        options.push_back({.bytes = weights * bits, .kl = sensitivity * static_cast<double>(weights) * std::pow(4.0, -static_cast<double>(bits))});
      keep_hull(options);
      least += options.front().bytes;
      for (size_t i = 1; i < options.size(); ++i) largest_step = std::max(largest_step, options[i].bytes - options[i - 1].bytes);
    }
    const uint64_t room = least + rng()() % least;
    const auto sums = [&](const std::vector<size_t>& at) {
      std::pair<uint64_t, double> sum;
      for (size_t i = 0; i < groups.size(); ++i) sum.first += groups[i][at[i]].bytes, sum.second += groups[i][at[i]].kl;
      return sum;
    };
    const auto [bytes, kl] = sums(spend_bytes(groups, room));
    EXPECT_LE(bytes, room);
    // All choices: what a walk up the hulls cannot reach is what the last step is too large for.
    double best = INFINITY;
    std::vector<size_t> at(groups.size());
    for (bool more = true; more;) {
      const auto [all_bytes, all_kl] = sums(at);
      if (all_bytes + largest_step <= room) best = std::min(best, all_kl);
      more = false;
      for (size_t i = 0; i < at.size() && !more; ++i)
        if (++at[i] < groups[i].size()) more = true;
        else at[i] = 0;
    }
    EXPECT_LE(kl, best * (1 + 1e-9));
  }
}

TEST(FormatErrors, FormatsFitTheirRowsAndComeOnce) {
  for (const int64_t k : {64, 96, 576, 2048}) {
    const std::vector<WeightFormat> formats = candidate_formats(k);
    for (const WeightFormat format : formats) {
      EXPECT_EQ(k % format_info(format).block_weights, 0) << format_info(format).name;
      EXPECT_EQ(std::ranges::count(formats, format), 1) << format_info(format).name;
    }
    for (const double bits : {3.5, 5.0, 6.0, 8.5})
      EXPECT_TRUE(std::ranges::any_of(formats, [&](WeightFormat f) { return format_info(f).bits == bits; })) << k << ": " << bits;
    EXPECT_EQ(std::ranges::count(formats, q6_k), k % 256 == 0);
  }
  EXPECT_TRUE(candidate_formats(40).empty());
}

/// Weights [n, k], and the Hessian of inputs of which neighbours go together.
struct Problem {
  int64_t n, k;
  std::vector<float> weights, hessian;

  Problem(int64_t n, int64_t k) : n(n), k(k), hessian(static_cast<size_t>(k * k)) {
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < n * k; ++i) weights.push_back(0.02f * normal(rng()));
    for (int64_t i = 0; i < k; ++i)
      for (int64_t j = 0; j < k; ++j)
        hessian[static_cast<size_t>(i * k + j)] = std::pow(0.8f, static_cast<float>(std::abs(i - j)));
  }
  HostWeight weight() const {
    return {.name = "w", .n = n, .k = k, .bytes = {reinterpret_cast<const uint8_t*>(weights.data()), weights.size() * sizeof(float)}};
  }
};

TEST(FormatErrors, SomeRowsStandForAll) {
  const Problem p(1024, 256);
  const std::vector<WeightFormat> formats = {int3_g128, q5_0, q6_k, int8_g128};
  const auto errors = format_errors(p.weight(), formats, {.bits = 3}, {}, 2);
  ASSERT_TRUE(errors);
  const MatrixToQuantize whole{.name = "w", .n = p.n, .k = p.k, .weights = p.weights.data(), .threads = 2};
  for (size_t i = 0; i < formats.size(); ++i) {
    const auto integers = integer_format(formats[i]);
    const double lost =
        output_error(whole, integers ? quantize_outlier(whole, *integers, {.share = 0}) : encode_matrix(whole, formats[i])).lost;
    EXPECT_NEAR((*errors)[i], lost, 0.1 * lost) << format_info(formats[i]).name;
  }
  EXPECT_GT((*errors)[0], 8 * (*errors)[1]);
  EXPECT_GT((*errors)[1], 2 * (*errors)[2]);
}

TEST(FormatErrors, WhatGptqCannotRoundIntoLosesMoreBesideWhatItCan) {
  const Problem p(64, 256);
  const auto inputs = prepare_gptq("w", p.k, p.hessian, {}, 2);
  ASSERT_TRUE(inputs);
  const std::vector<WeightFormat> formats = {int3_g128, q5_0, q8_0};
  const KnownInputs known{.moments = inputs->moments};
  const auto nearest = format_errors(p.weight(), formats, {.bits = 3}, known, 2);
  const auto gptq = format_errors(p.weight(), formats, {.bits = 3}, {.moments = inputs->moments, .gptq = &*inputs}, 2);
  ASSERT_TRUE(nearest && gptq);
  EXPECT_EQ((*gptq)[0], (*nearest)[0]);
  EXPECT_EQ((*gptq)[2], (*nearest)[2]);  // 8-bit integers, too, are GPTQ's
  EXPECT_GT((*gptq)[1], 1.3 * (*nearest)[1]);
  EXPECT_LT((*gptq)[1], 10 * (*nearest)[1]);
}

const std::string kRoot = QUINTET_SOURCE_DIR;

std::string read_licence() {
  std::ifstream file(kRoot + "/LICENSE");
  return {std::istreambuf_iterator<char>(file), {}};
}

/// A place for a result that goes with what lies there.
class Destination {
 public:
  Destination() {
    std::string pattern = testing::TempDir() + "choose-XXXXXX";
    EXPECT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  ~Destination() { std::filesystem::remove_all(folder_); }
  std::string path() const { return folder_ + "/out"; }
  std::string folder() const { return folder_; }

 private:
  std::string folder_;
};

/// Of a tiny model.
Result<ChosenFormats> choose_for(const std::string& destination, const std::string& name, const QuantizeOptions& asked,
                                 const ChooseRequest& request, const std::string& calibration = read_licence()) {
  QuantizeOptions options = asked;
  options.method = QuantizeMethod::gptq;
  options.chosen_formats = true;
  options.threads = 1;
  options.calibration_text = calibration;
  const auto backend = make_cpu_backend({.threads = 1});
  // An absolute path stays what it is.
  return choose_formats(std::filesystem::path(kRoot + "/tests/golden/data/tiny") / name, destination, *backend, options, request);
}
Result<ChosenFormats> choose(const std::string& name, const QuantizeOptions& asked, const ChooseRequest& request,
                             const std::string& calibration = read_licence()) {
  const Destination destination;
  return choose_for(destination.path(), name, asked, request, calibration);
}

TEST(ChooseFormats, EveryTensorIsOfOneGroupAndWasTried) {
  for (const auto& [name, expected] : {std::pair("llama3", std::vector<std::string>{"q, k", "v"}), std::pair("phi3.gguf", std::vector<std::string>{"q, k, v"})}) {
    SCOPED_TRACE(name);
    const auto chosen = choose(name, {.samples = 4, .length = 64}, {.target_bytes = 60'000, .probe_tokens = 64});
    ASSERT_TRUE(chosen) << chosen.error().message;
    EXPECT_EQ(chosen->basis, ChoiceBasis::measured);
    std::vector<std::string> names, qkv;
    for (const FormatChoice& choice : chosen->choices) {
      names.insert(names.end(), choice.tensors.begin(), choice.tensors.end());
      EXPECT_GT(choice.probe_kl, 0) << choice.name;
      const bool layer = choice.name.starts_with("layer");
      EXPECT_EQ(integer_format(choice.probe)->bits, layer ? 3 : 4) << choice.name;
      if (choice.name.starts_with("layer 0: ")) qkv.push_back(choice.name.substr(9));
    }
    for (const std::string& part : expected) EXPECT_EQ(std::ranges::count(qkv, part), 1) << part;
    EXPECT_EQ(qkv.size(), expected.size() + 3);
    EXPECT_EQ(names.size(), chosen->overrides.size());
    std::ranges::sort(names);
    EXPECT_EQ(std::ranges::adjacent_find(names), names.end());
  }
}

TEST(ChooseFormats, NothingIsMeasuredWhereAllFitsInItsBestFormat) {
  const Destination destination;
  for (const char* name : {"llama3", "phi3.gguf"}) {
    SCOPED_TRACE(name);
    int steps = 0;
    ChooseRequest request{.target_bytes = 1'000'000, .probe_tokens = 64, .progress = [&](uint64_t, uint64_t) { return ++steps, true; }};
    const auto chosen = choose_for(destination.path(), name, {.samples = 4, .length = 64}, request);
    ASSERT_TRUE(chosen) << chosen.error().message;
    EXPECT_EQ(chosen->basis, ChoiceBasis::room);
    EXPECT_EQ(steps, 0);
    EXPECT_TRUE(std::filesystem::is_empty(destination.folder()));
    for (const FormatOverride& override : chosen->overrides) EXPECT_TRUE(override.stays) << override.pattern;
    // As many bytes are enough, and one less is not.
    request.target_bytes = chosen->bytes;
    EXPECT_EQ(choose(name, {.samples = 4, .length = 64}, request)->basis, ChoiceBasis::room);
    --request.target_bytes;
    const auto measured = choose(name, {.samples = 4, .length = 64}, request);
    ASSERT_TRUE(measured) << measured.error().message;
    EXPECT_EQ(measured->basis, ChoiceBasis::measured);
    EXPECT_GT(steps, 10);
    EXPECT_GT(measured->expected_kl, 0);
  }
}

TEST(ChooseFormats, TheSameCommandDoesNotMeasureAgain) {
  const Destination destination;
  const QuantizeOptions options{.samples = 4, .length = 64};
  int steps = 0;
  ChooseRequest request{.target_bytes = 50'000, .probe_tokens = 64, .progress = [&](uint64_t, uint64_t) { return ++steps, true; }};
  const auto first = choose_for(destination.path(), "llama3", options, request);
  ASSERT_TRUE(first) << first.error().message;
  EXPECT_EQ(first->basis, ChoiceBasis::measured);
  steps = 0;
  const auto again = choose_for(destination.path() + "/", "llama3", options, request);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->basis, ChoiceBasis::saved);
  EXPECT_EQ(steps, 0);
  EXPECT_EQ(again->bytes, first->bytes);
  EXPECT_EQ(again->expected_kl, first->expected_kl);
  ASSERT_EQ(again->choices.size(), first->choices.size());
  for (size_t i = 0; i < first->choices.size(); ++i) {
    const FormatChoice &one = first->choices[i], &two = again->choices[i];
    EXPECT_TRUE(one.name == two.name && one.tensors == two.tensors && one.format == two.format && one.changed == two.changed &&
                one.bytes == two.bytes && one.probe == two.probe && one.probe_kl == two.probe_kl && one.expected_kl == two.expected_kl)
        << one.name;
  }
  ASSERT_EQ(again->overrides.size(), first->overrides.size());
  for (size_t i = 0; i < first->overrides.size(); ++i) {
    const FormatOverride &one = first->overrides[i], &two = again->overrides[i];
    EXPECT_TRUE(one.pattern == two.pattern && one.format == two.format && one.stays == two.stays) << one.pattern;
  }

  // Another command is told that it is one, and costs nothing.
  const auto refused = [&](const QuantizeOptions& other, const ChooseRequest& asked, const std::string& part, const std::string& text = read_licence()) {
    const auto chosen = choose_for(destination.path(), "llama3", other, asked, text);
    ASSERT_FALSE(chosen) << part;
    EXPECT_NE(chosen.error().message.find("another " + part), std::string::npos) << chosen.error().message;
  };
  refused({.damping = 0.02, .samples = 4, .length = 64}, request, "method");
  refused({.overrides = {{.pattern = "*embed*", .format = f16}}, .samples = 4, .length = 64}, request, "method");
  refused(options, request, "calibration text", read_licence() + "more");
  ChooseRequest other = request;
  other.target_bytes = 50'001;
  refused(options, other, "target (50000 bytes)");
  other = request;
  other.probe_tokens = 65;
  refused(options, other, "number of probe tokens (64)");
  EXPECT_EQ(choose_for(destination.path(), "llama3", options, request)->basis, ChoiceBasis::saved);

  QuantizeOptions anew = options;
  anew.restart = true;
  EXPECT_EQ(choose_for(destination.path(), "llama3", anew, request)->basis, ChoiceBasis::measured);
  std::ofstream(destination.path() + ".partial/choice.json", std::ios::app) << " ";
  EXPECT_EQ(choose_for(destination.path(), "llama3", options, request)->basis, ChoiceBasis::saved);
  std::ofstream(destination.path() + ".partial/choice.json") << "{}";
  const auto damaged = choose_for(destination.path(), "llama3", options, request);
  ASSERT_FALSE(damaged);
  EXPECT_NE(damaged.error().message.find("--restart begins anew"), std::string::npos) << damaged.error().message;

  // What another command has begun is told before anything is measured.
  fs::rename(destination.path() + ".partial/choice.json", destination.path() + ".partial/state.json");
  steps = 0;
  const auto foreign = choose_for(destination.path(), "llama3", options, request);
  ASSERT_FALSE(foreign);
  EXPECT_NE(foreign.error().message.find("no formats to choose"), std::string::npos) << foreign.error().message;
  EXPECT_EQ(steps, 0);
  EXPECT_TRUE(fs::exists(destination.path() + ".partial/state.json"));
}

TEST(ChooseFormats, TensorsOfNamedFormatsAreNotChosenForButTakeTheirRoom) {
  const std::vector<FormatOverride> named = {{.pattern = "*embed*", .format = f16}, {.pattern = "*up_proj*", .format = int8}};
  const auto least_of = [](const QuantizeOptions& options) {
    const auto chosen = choose("llama3", options, {.target_bytes = 100});
    EXPECT_FALSE(chosen);
    if (chosen) return 0;
    const std::string& message = chosen.error().message;  // "..., allowed are 23.0 KiB (23552 bytes) and more"
    return std::stoi(message.substr(message.find('(', message.find("allowed")) + 1));
  };
  const int least = least_of({}), with_named = least_of({.overrides = named});
  // Embedding 272 x 32 in 16 bits instead of 3.5, and two tensors 64 x 32 in 8 bits and a scale of 4 bytes a row.
  EXPECT_EQ(with_named - least, 272 * 32 * (128 - 28) / 64 + 2 * 64 * (32 * (64 - 28) / 64 + 4));
  const auto chosen = choose("llama3", {.overrides = named, .samples = 4, .length = 64},
                             {.target_bytes = static_cast<uint64_t>(with_named + 4000), .probe_tokens = 64});
  ASSERT_TRUE(chosen) << chosen.error().message;
  EXPECT_LE(chosen->bytes, with_named + 4000u);
  EXPECT_GT(chosen->bytes, with_named + 2000u);
  for (const FormatChoice& choice : chosen->choices)
    for (const std::string& tensor : choice.tensors) {
      EXPECT_EQ(tensor.find("embed"), std::string::npos);
      EXPECT_EQ(tensor.find("up_proj"), std::string::npos);
    }
}

TEST(ChooseFormats, WhatItMeasuresWithHasNoNameThatAKilledProcessWouldLeave) {
  const Destination destination;
  int steps = 0;
  const auto looks = [&](uint64_t, uint64_t) {
    ++steps;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(destination.folder()))
      EXPECT_TRUE(entry.path().filename() == "out.partial" || entry.path().filename() == "lock") << entry.path();
    return steps < 12;
  };
  const auto chosen = choose_for(destination.path(), "llama3", {.samples = 4, .length = 64},
                                 {.target_bytes = 50'000, .probe_tokens = 64, .progress = looks});
  ASSERT_FALSE(chosen);
  EXPECT_EQ(chosen.error().kind, ErrorKind::cancelled);
  EXPECT_EQ(steps, 12);
  EXPECT_TRUE(std::filesystem::is_empty(destination.folder())) << "there is nothing to go on with";
}

TEST(ChooseFormats, LogitsThatAreNoNumbersAreRefusedRatherThanLosslessInEveryFormat) {
  const fs::path folder = testing::TempDir() + "choose-nan-" + std::to_string(::getpid());
  fs::copy(kRoot + "/tests/golden/data/tiny/qwen2", folder);
  const fs::path weights = folder / "model.safetensors";
  std::ifstream in(weights, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  const size_t entry = bytes.find("\"model.norm.weight\"");
  ASSERT_LT(entry, header);
  ASSERT_EQ(bytes.substr(bytes.find("\"dtype\"", entry), 14), "\"dtype\":\"BF16\"");
  size_t first = 0, last = 0;
  ASSERT_EQ(std::sscanf(bytes.c_str() + bytes.find("\"data_offsets\"", entry), "\"data_offsets\":[%zu,%zu]", &first, &last), 2);
  for (size_t i = first; i < last; i += 2) bytes.replace(sizeof header + header + i, 2, "\x00\x7f", 2);  // 1.7e38
  std::ofstream(weights, std::ios::binary) << bytes;
  const auto chosen = choose(folder, {.samples = 4, .length = 64}, {.target_bytes = 100'000, .probe_tokens = 64});
  fs::remove_all(folder);
  ASSERT_FALSE(chosen);
  EXPECT_NE(chosen.error().message.find("its logits on the calibration text are NaN or infinite, allowed are finite ones"), std::string::npos)
      << chosen.error().message;
}

TEST(ChooseFormats, TriesOnTextThatGptqDoesNotSeeWhereThereIsEnough) {
  const auto text = load_text(kRoot + "/tests/golden/data/tiny/llama3", {});
  ASSERT_TRUE(text);
  const std::string licence = read_licence();
  const auto first_tokens = [&](std::string_view from, size_t tokens) {
    size_t bytes = 0;
    while ((*text)->tokenizer->encode(from.substr(0, bytes), {}).size() < tokens) ++bytes;
    return std::string(from.substr(0, bytes));
  };
  // Five stretches of 64 tokens, the fifth of which is another in each text. All tensors get the smallest format: what that loses
  // beside the probe comes from the inputs that were calibrated on.
  const QuantizeOptions options{.samples = 4, .length = 64};
  const std::string begin = first_tokens(licence, 262);
  std::vector<std::vector<FormatChoice>> choices;
  for (const std::string& end : {first_tokens(licence.substr(2000), 80), first_tokens(licence.substr(5000), 80), std::string()}) {
    auto chosen = choose("llama3", options, {.target_bytes = 23'600, .probe_tokens = 64}, begin + end);
    ASSERT_TRUE(chosen) << chosen.error().message;
    choices.push_back(std::move(chosen->choices));
  }
  int others = 0, first = 0;
  for (size_t i = 0; i < choices[0].size(); ++i) {
    const FormatChoice &one = choices[0][i], &two = choices[1][i], &none = choices[2][i];
    EXPECT_EQ(one.format, two.format);
    EXPECT_NEAR(one.expected_kl / one.probe_kl, two.expected_kl / two.probe_kl, 1e-9) << one.name;
    others += one.probe_kl != two.probe_kl;
    first += one.probe_kl != none.probe_kl;
  }
  EXPECT_EQ(others, static_cast<int>(choices[0].size()));
  EXPECT_EQ(first, static_cast<int>(choices[0].size())) << "without a fifth stretch they are tried on the first one";
}

}  // namespace
}  // namespace quintet
