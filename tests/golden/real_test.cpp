// SmolLM2, Gemma 3 and Qwen2.5 as their GGUF files have them, against Transformers in FP32: logits of a long
// text (past Gemma's window) and greedy continuations.
#include <fmt/format.h>

#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#include "golden/golden_data.h"
#include "sanitized.h"

namespace quintet::testing {
namespace {

struct RealCase {
  std::string name;
  std::string file;
  std::string fetch;             ///< what gets the file
  int32_t reference_tokens = 0;  ///< of the long text, for the slow backend
};

const std::vector<RealCase> kCases = {
    {"smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "make models", 320},
    {"gemma3", "gemma-3-270m.Q4_K_M.gguf", "make models", 576},
    {"qwen2", "qwen2.5-coder-0.5b-instruct.Q4_K_M.gguf", "make models-all", 96},
};

class RealTest : public ::testing::TestWithParam<RealCase> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(path()))
      GTEST_SKIP() << path() << " is absent: run `" << GetParam().fetch << "`";
  }
  static std::string path() { return kModels + "/" + GetParam().file; }
  static Fixture fixture(const std::string& kind) {
    return Fixture(kData + "/real/" + GetParam().name + "." + kind + ".safetensors");
  }
};

/// What a comparison with the kept logits found.
struct Distance {
  double largest = 0;  ///< of the differences of logits
  double mean_kl = 0;  ///< nats, the tokens that were not kept taken as one: a lower bound
  int32_t rows = 0;
};

/// `logits` [rows, vocabulary] of the first rows that the fixture kept.
Distance compare(const Fixture& fixture, std::span<const float> logits, size_t vocabulary) {
  const auto tokens = fixture.values<int32_t>("tokens");
  const auto wanted = fixture.values<float>("logits");
  const auto log_sums = fixture.values<float>("log_sums");
  const size_t kept = tokens.size() / log_sums.size();
  Distance distance{.rows = static_cast<int32_t>(logits.size() / vocabulary)};
  for (size_t i = 0; i < logits.size() / vocabulary; ++i) {
    const std::span row = logits.subspan(i * vocabulary, vocabulary);
    const double largest = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const float logit : row) sum += std::exp(logit - largest);
    const double log_sum = largest + std::log(sum);
    double other_p = 1, other_q = 1;
    for (size_t j = i * kept; j < (i + 1) * kept; ++j) {
      const double found = row[static_cast<size_t>(tokens[j])], expected = wanted[j];
      const double difference = std::abs(found - expected);
      distance.largest = std::isnan(difference) ? HUGE_VAL : std::max(distance.largest, difference);
      const double log_p = expected - log_sums[i], log_q = found - log_sum;
      distance.mean_kl += std::exp(log_p) * (log_p - log_q);
      other_p -= std::exp(log_p);
      other_q -= std::exp(log_q);
    }
    if (other_p > 0 && other_q > 0) distance.mean_kl += other_p * std::log(other_p / other_q);
  }
  distance.mean_kl /= distance.rows;
  return distance;
}

void record(const Distance& distance, double tolerated) {
  ::testing::Test::RecordProperty("largest", fmt::format("{}", distance.largest));
  ::testing::Test::RecordProperty("tolerated", fmt::format("{}", tolerated));
  ::testing::Test::RecordProperty("mean_kl", fmt::format("{}", distance.mean_kl));
}

TEST_P(RealTest, ReferenceLogits) {
  const Fixture wanted = fixture("logits");
  const auto backend = make_reference_backend();
  const auto model = load_network(path(), *backend);
  const double tolerated = tolerance(wanted.values<float>("noise")[0], backend->info());
  const auto ids = wanted.values<int32_t>("ids"), rows = wanted.values<int32_t>("rows");
  const int32_t tokens = GetParam().reference_tokens / kPart / 16 * 16;
  SingleSequence sequence(*backend, *model, tokens, rows[0] + 1);
  std::vector<float> logits;
  for (size_t i = 0; rows[i] < tokens; ++i) {  // a step ends at each row that was kept
    const auto step = std::span(ids).subspan(static_cast<size_t>(sequence.length()),
                                             static_cast<size_t>(rows[i] + 1 - sequence.length()));
    const std::vector<float> row = sequence.feed(step, 1);
    logits.insert(logits.end(), row.begin(), row.end());
  }
  const Distance distance = compare(wanted, logits, static_cast<size_t>(model->config.vocabulary));
  record(distance, tolerated);
  EXPECT_EQ(distance.rows, tokens / 16);
  EXPECT_LE(distance.largest, tolerated);
}

TEST_P(RealTest, CpuLogits) {
  const Fixture wanted = fixture("logits");
  const auto backend = make_cpu_backend({.threads = 2});
  const auto model = load_network(path(), *backend);
  const double tolerated = tolerance(wanted.values<float>("noise")[0], backend->info());
  auto ids = wanted.values<int32_t>("ids");
  ids.resize(ids.size() / kPart);
  const auto rows = wanted.values<int32_t>("rows"), best = wanted.values<int32_t>("best");
  const auto gaps = wanted.values<float>("gaps");
  const auto vocabulary = static_cast<size_t>(model->config.vocabulary);
  constexpr int32_t kChunk = 80;
  SingleSequence sequence(*backend, *model, static_cast<int32_t>(ids.size()), kChunk);
  std::vector<float> kept;
  int32_t other_best = 0;
  for (size_t begin = 0; begin < ids.size(); begin += kChunk) {
    const std::vector<float> logits = sequence.feed(std::span(ids).subspan(begin, kChunk), kChunk);
    for (size_t r = 0; r < kChunk; ++r) {
      const std::span row = std::span(logits).subspan(r * vocabulary, vocabulary);
      if (std::find(rows.begin(), rows.end(), static_cast<int32_t>(begin + r)) != rows.end())
        kept.insert(kept.end(), row.begin(), row.end());
      if (std::max_element(row.begin(), row.end()) - row.begin() != best[begin + r] &&
          gaps[begin + r] > 2 * tolerated)
        ++other_best;
    }
  }
  const Distance distance = compare(wanted, kept, vocabulary);
  record(distance, tolerated);
  EXPECT_EQ(distance.rows, 40 / kPart);
  EXPECT_LE(distance.largest, tolerated);
  EXPECT_LE(distance.mean_kl, 0.0005);  // eight-bit activations are at 0.0037
  EXPECT_EQ(other_best, 0);
}

/// Greedy continuations token by token. Where two logits are nearer than both sides' errors the runner-up is
/// as right; the fixture's token is fed then, so that every step of every prompt is compared.
TEST_P(RealTest, CpuContinuesGreedily) {
  const Fixture wanted = fixture("greedy");
  const auto backend = make_cpu_backend({.threads = 2});
  const auto model = load_network(path(), *backend);
  const double tie = 2 * tolerance(fixture("logits").values<float>("noise")[0], backend->info());
  const auto prompts = wanted.values<int32_t>("prompts"), lengths = wanted.values<int32_t>("lengths");
  const auto tokens = wanted.values<int32_t>("tokens"), seconds = wanted.values<int32_t>("seconds");
  const auto gaps = wanted.values<float>("gaps");
  const size_t steps = tokens.size() / lengths.size();
  ASSERT_EQ(lengths.size(), 20u);
  ASSERT_EQ(steps, 64u);
  size_t prompt_begin = 0;
  int32_t ties = 0;
  for (size_t p = 0; p < lengths.size() / kPart; ++p) {
    SingleSequence sequence(*backend, *model, lengths[p] + static_cast<int32_t>(steps), lengths[p]);
    std::vector<float> logits =
        sequence.feed(std::span(prompts).subspan(prompt_begin, static_cast<size_t>(lengths[p])), 1);
    prompt_begin += static_cast<size_t>(lengths[p]);
    for (size_t s = 0; s < steps; ++s) {
      const size_t at = p * steps + s;
      const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
      if (best != tokens[at]) {
        ++ties;
        EXPECT_LE(gaps[at], tie) << "prompt " << p << ", step " << s << ": " << best << " instead of "
                                 << tokens[at];
        EXPECT_EQ(best, seconds[at]) << "prompt " << p << ", step " << s;
      }
      if (s + 1 < steps) logits = sequence.feed(std::span(tokens).subspan(at, 1), 1);
    }
  }
  RecordProperty("near_ties", ties);
  EXPECT_LE(ties, 3);  // of 1280
}

INSTANTIATE_TEST_SUITE_P(Models, RealTest, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace quintet::testing
