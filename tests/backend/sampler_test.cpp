// Sampling against a plain restatement of its transforms, its noise against published vectors, its draws
// against the distribution that they claim.
#include "backend/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>

namespace quintet {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::mt19937& rng() {
  static std::mt19937 engine{std::random_device{}()};
  return engine;
}
float normal(float sigma) { return std::normal_distribution<float>(0, sigma)(rng()); }
int uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng()); }

TEST(Philox,
     KnownAnswers) {  // from the test vectors of the paper's own distribution (Random123, kat_vectors)
  using Four = std::array<uint32_t, 4>;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}), (Four{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox4x32({~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}),
            (Four{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox4x32({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Four{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

/// A step of one logit row, with the lists that its parameters point into.
struct Row {
  SampleParams params;
  std::vector<TokenId> history, bias_token;
  std::vector<float> bias_value;
  std::vector<uint32_t> mask;
  StepView step() {
    params.history_end = static_cast<int32_t>(history.size());
    params.bias_end = static_cast<int32_t>(bias_token.size());
    return {.logit_rows = 1,
            .sample = &params,
            .history = history.data(),
            .bias_token = bias_token.data(),
            .bias_value = bias_value.data(),
            .mask = mask.data()};
  }
};

/// Steps 1 to 4 of the documented order, token by token.
std::vector<double> transformed(Row& row, const std::vector<float>& logits) {
  std::map<TokenId, int> count;
  for (TokenId t : row.history) ++count[t];
  std::vector<double> out(logits.begin(), logits.end());
  const SampleParams& p = row.params;
  for (auto [t, c] : count) {
    double& l = out[static_cast<size_t>(t)];
    l = l > 0 ? l / p.repeat_penalty : l * p.repeat_penalty;
    l -= c * p.frequency_penalty + p.presence_penalty;
  }
  for (size_t i = 0; i < row.bias_token.size(); ++i)
    out[static_cast<size_t>(row.bias_token[i])] += row.bias_value[i];
  if (p.mask_row >= 0)
    for (size_t t = 0; t < out.size(); ++t)
      if (!(row.mask[t / 32] >> (t % 32) & 1)) out[t] = -kInf;
  return out;
}

/// Steps 5 to 8: tokens that may be drawn, most probable first; `near` says that a cut fell too close to call
/// in float.
std::vector<TokenId> kept(const SampleParams& p, const std::vector<double>& l, bool& near) {
  std::vector<TokenId> ids(l.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::erase_if(ids, [&](TokenId t) { return l[static_cast<size_t>(t)] == -kInf; });
  const auto at = [&](TokenId t) { return l[static_cast<size_t>(t)]; };
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) { return at(a) > at(b); });
  near = false;
  const auto weight = [&](TokenId t) { return std::exp((at(t) - at(ids[0])) / p.temperature); };
  if (p.top_k > 0 && static_cast<size_t>(p.top_k) < ids.size()) {
    const auto k = static_cast<size_t>(p.top_k);
    near |= at(ids[k - 1]) - at(ids[k]) < 1e-5;
    ids.resize(k);
  }
  if (p.top_p < 1) {
    double total = 0, sum = 0;
    for (TokenId t : ids) total += weight(t);
    for (size_t i = 0; i < ids.size(); ++i) {
      near |= std::abs(sum / total - p.top_p) < 1e-5;
      sum += weight(ids[i]);
      if (sum >= p.top_p * total) {
        ids.resize(i + 1);
        break;
      }
    }
    near |= std::abs(sum / total - p.top_p) < 1e-5;
  }
  if (p.min_p > 0) {
    for (TokenId t : ids) near |= std::abs(weight(t) - p.min_p) < 1e-5;
    std::erase_if(ids, [&](TokenId t) { return weight(t) < p.min_p; });
  }
  return ids;
}

TEST(Sampler, EqualsAPlainRestatement) {
  int compared = 0;
  for (int trial = 0; trial < 400; ++trial) {
    const int vocabulary = trial % 10 == 0 ? uniform(4000, 9000) : uniform(1, 300);
    Row row;
    SampleParams& p = row.params;
    p.temperature = std::exp(normal(0.7f));
    if (uniform(0, 1)) p.top_k = uniform(1, vocabulary + 3);
    if (uniform(0, 1)) p.top_p = std::uniform_real_distribution<float>(0.01f, 1)(rng());
    if (uniform(0, 1)) p.min_p = std::uniform_real_distribution<float>(0, 0.5f)(rng());
    if (uniform(0, 1)) p.repeat_penalty = std::exp(normal(0.3f));
    if (uniform(0, 1)) p.presence_penalty = normal(1);
    if (uniform(0, 1)) p.frequency_penalty = normal(0.5f);
    for (int i = uniform(0, 50); i > 0; --i) row.history.push_back(uniform(0, vocabulary - 1));
    for (int i = uniform(0, 5); i > 0; --i) {
      row.bias_token.push_back(uniform(0, vocabulary - 1));
      row.bias_value.push_back(normal(5));
    }
    row.mask.assign(static_cast<size_t>(vocabulary + 31) / 32, 0);
    for (auto& word : row.mask) word = rng()() | rng()();
    row.mask[0] |= 1;
    if (uniform(0, 1)) p.mask_row = 0;
    p.seed = (uint64_t{rng()()} << 32) | rng()();
    p.position = uniform(0, 1 << 20);
    p.logprobs = uniform(0, 20);

    std::vector<float> logits(static_cast<size_t>(vocabulary));
    for (float& l : logits) l = normal(3);
    const auto l = transformed(row, logits);
    bool near = false;
    const auto ids = kept(p, l, near);
    // The Gumbel-max winner and its margin.
    TokenId expected = -1;
    double best = -kInf, second = -kInf;
    for (TokenId t : ids) {
      const double u = (sample_noise(p.seed, p.position, t) + 0.5) / 4294967296.0;
      const double score = l[static_cast<size_t>(t)] / p.temperature - std::log(-std::log(u));
      if (score > best) {
        second = best;
        best = score;
        expected = t;
      } else if (score > second) {
        second = score;
      }
    }
    const auto step = row.step();
    RowSampler sampler(vocabulary);
    std::array<Alternative, kAlternatives> alternatives;
    auto used = logits;
    const Sampled got = sampler.sample(step, 0, used, alternatives.data());
    auto again = logits;
    const Sampled repeat = sampler.sample(step, 0, again, nullptr);
    EXPECT_EQ(got.token, repeat.token);
    EXPECT_EQ(got.status, 0u);
    // Logits carry float rounding of penalties: relative 2^-22 of their size, divided by the temperature.
    const double slack = 1e-5 * (1 + 1 / p.temperature);
    if (!near && best - second > slack) {
      EXPECT_EQ(got.token, expected) << "vocabulary " << vocabulary;
      ++compared;
    }
    double total = 0;
    for (double x : l) total += std::exp(x);
    EXPECT_NEAR(got.logprob, l[static_cast<size_t>(got.token)] - std::log(total), 2e-5);
    auto sorted = l;
    std::sort(sorted.rbegin(), sorted.rend());
    for (int i = 0; i < kAlternatives; ++i) {
      const auto& a = alternatives[static_cast<size_t>(i)];
      if (i < p.logprobs && i < vocabulary && sorted[static_cast<size_t>(i)] > -kInf)
        EXPECT_NEAR(a.logprob, sorted[static_cast<size_t>(i)] - std::log(total), 2e-5);
      else
        EXPECT_EQ(a.token, -1);
    }
  }
  EXPECT_GT(compared, 300);  // near-ties are rare, or the comparison says nothing
}

TEST(Sampler, GreedyTakesTheLowestIdOfEquals) {
  Row row;
  const auto step = row.step();
  RowSampler sampler(100);
  std::vector<float> logits(100, -1.0f);
  logits[37] = logits[80] = 2;
  EXPECT_EQ(sampler.sample(step, 0, logits, nullptr).token, 37);
}

TEST(Sampler, DrawsFollowTheDistribution) {
  constexpr int kTokens = 37, kDraws = 20000;
  Row row;
  row.params.temperature = 1.7f;
  row.params.seed = rng()();
  std::vector<float> logits(kTokens);
  for (float& l : logits) l = normal(2);
  double total = 0;
  for (float l : logits) total += std::exp(static_cast<double>(l) / 1.7);
  std::vector<int> count(kTokens);
  RowSampler sampler(kTokens);
  for (int i = 0; i < kDraws; ++i) {
    row.params.position = i;
    const auto step = row.step();
    auto used = logits;
    ++count[static_cast<size_t>(sampler.sample(step, 0, used, nullptr).token)];
  }
  double chi = 0;
  int cells = 0;
  for (int t = 0; t < kTokens; ++t) {
    const double expected =
        kDraws * std::exp(static_cast<double>(logits[static_cast<size_t>(t)]) / 1.7) / total;
    if (expected < 5) continue;
    chi += (count[static_cast<size_t>(t)] - expected) * (count[static_cast<size_t>(t)] - expected) / expected;
    ++cells;
  }
  // Chi-square with `cells` degrees of freedom: mean cells, variance 2 cells; six sigma is one in 1e6 or so.
  EXPECT_LT(chi, cells + 6 * std::sqrt(2.0 * cells) + 10);
}

TEST(Sampler, SeedAndPositionAreTheWholeState) {
  std::vector<float> logits(5000);
  for (float& l : logits) l = normal(1);
  RowSampler sampler(5000);
  Row row;
  row.params.temperature = 1;
  std::map<TokenId, int> by_seed, by_position;
  for (int i = 0; i < 200; ++i) {
    row.params.seed = uint64_t{1} << 32 << (i % 20);  // high words of the seed count
    row.params.position = i;
    auto used = logits;
    ++by_seed[sampler.sample(row.step(), 0, used, nullptr).token];
    row.params.seed = 1;
    row.params.position = int64_t{i} << 32;
    used = logits;
    ++by_position[sampler.sample(row.step(), 0, used, nullptr).token];
  }
  EXPECT_GT(by_seed.size(), 100u);
  EXPECT_GT(by_position.size(), 100u);
}

TEST(Sampler, NotFinite) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), kInf}) {
    for (size_t where : {size_t{0}, size_t{15}, size_t{16}, size_t{98}}) {
      std::vector<float> logits(99, 0.5f);
      logits[where] = bad;
      Row row;
      EXPECT_EQ(RowSampler(99).sample(row.step(), 0, logits, nullptr).status, kSampleNotFinite);
    }
  }
  std::vector<float> logits(99, -kInf);
  Row row;
  EXPECT_EQ(RowSampler(99).sample(row.step(), 0, logits, nullptr).status, kSampleNotFinite);
  logits[98] = -3;  // -Inf beside it is a token of no probability
  row.params.temperature = 0.5f;
  const auto got = RowSampler(99).sample(row.step(), 0, logits, nullptr);
  EXPECT_EQ(got.status, 0u);
  EXPECT_EQ(got.token, 98);
  EXPECT_NEAR(got.logprob, 0, 1e-6);
  row.params.mask_row = 0;
  row.mask.assign(4, 0);
  EXPECT_EQ(RowSampler(99).sample(row.step(), 0, logits, nullptr).status, kSampleNotFinite);
}

TEST(Sampler, TinyTemperatureIsGreedy) {
  Row row;
  row.params.temperature = 1e-38f;
  row.params.top_p = 0.9f;
  std::vector<float> logits(50);
  for (float& l : logits) l = normal(1);
  logits[20] = 9;
  EXPECT_EQ(RowSampler(50).sample(row.step(), 0, logits, nullptr).token, 20);
}

}  // namespace
}  // namespace quintet
