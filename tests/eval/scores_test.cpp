// Scores of rows against the definition in double, and the file of reference rows.
#include "eval/scores.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>

namespace quintet {
namespace {

std::mt19937& rng() {
  static std::mt19937 engine{std::random_device{}()};
  return engine;
}

std::vector<float> random_logits(size_t count, float spread) {
  std::normal_distribution<float> normal(0, spread);
  std::vector<float> logits(count);
  for (float& logit : logits) logit = normal(rng());
  return logits;
}

std::vector<double> log_softmax(const std::vector<float>& logits) {
  double top = -INFINITY, sum = 0;
  for (const float logit : logits) top = std::max<double>(top, logit);
  for (const float logit : logits) sum += std::exp(logit - top);
  std::vector<double> out;
  for (const float logit : logits) out.push_back(logit - top - std::log(sum));
  return out;
}

TEST(RowScore, EqualsTheDefinition) {
  for (const float spread : {0.01f, 1.0f, 6.0f})
    for (const size_t vocabulary : {size_t{2}, size_t{300}, size_t{50'000}}) {
      SCOPED_TRACE(testing::Message() << vocabulary << " entries, spread " << spread);
      const auto p_logits = random_logits(vocabulary, spread);
      auto q_logits = p_logits;
      const auto change = random_logits(vocabulary, 0.3f);
      for (size_t i = 0; i < vocabulary; ++i) q_logits[i] += change[i];
      const auto target = static_cast<TokenId>(rng()() % vocabulary);
      LogProbRow row;
      ASSERT_TRUE(make_log_prob_row(p_logits, target, row));
      const RowScore score = score_row(q_logits, target, &row);
      const auto p = log_softmax(p_logits), q = log_softmax(q_logits);
      double kl = 0;
      for (size_t i = 0; i < vocabulary; ++i) kl += std::exp(p[i]) * (p[i] - q[i]);
      // Codes are off by at most half a step of 1 / 2048 nat; logits of up to 30 carry 2e-6 in float.
      EXPECT_NEAR(score.kl, kl, 0.5 / kLogProbSteps * std::sqrt(kl) + 1e-6);
      EXPECT_NEAR(score.nll, -q[static_cast<size_t>(target)], 1e-5);
      EXPECT_NEAR(row.target, p[static_cast<size_t>(target)], 1e-5);
    }
}

TEST(RowScore, OfEqualModelsIsZero) {
  const auto logits = random_logits(150'000, 3);
  LogProbRow row;
  ASSERT_TRUE(make_log_prob_row(logits, 5, row));
  const RowScore score = score_row(logits, 5, &row);
  EXPECT_LT(score.kl, 1e-6);
  EXPECT_TRUE(score.same_top);
}

TEST(RowScore, LogitsThatAreNotFiniteAreSeen) {
  LogProbRow row;
  for (const float bad : {NAN, INFINITY}) {
    auto logits = random_logits(100, 1);
    logits[42] = bad;
    EXPECT_FALSE(std::isfinite(score_row(logits, 7, nullptr).nll)) << bad;
    EXPECT_FALSE(make_log_prob_row(logits, 7, row)) << bad;
  }
}

TEST(LogProbFile, GivesBackWhatWasAppended) {
  const auto folder = std::filesystem::temp_directory_path() / ("quintet_logp_" + std::to_string(rng()()));
  std::filesystem::create_directory(folder);
  const std::string path = (folder / "rows").string();
  const LogProbFile::Shape shape{.key = 99, .rows = 5, .vocabulary = 77};
  std::vector<LogProbRow> rows(5);
  for (auto& row : rows) ASSERT_TRUE(make_log_prob_row(random_logits(77, 2), 3, row));

  for (const std::string& name : {std::string(), path}) {
    auto made = LogProbFile::create(name, shape);
    ASSERT_TRUE(made) << made.error().message;
    for (const auto& row : rows) ASSERT_TRUE(made->append(row));
    EXPECT_FALSE(std::filesystem::exists(name)) << "before it is whole";
    ASSERT_TRUE(made->finish());
    auto opened = name.empty() ? std::move(made) : LogProbFile::open(path, shape);
    ASSERT_TRUE(opened) << opened.error().message;
    for (const int64_t i : {4, 0, 2}) {
      LogProbRow row;
      ASSERT_TRUE(opened->read(i, row));
      EXPECT_EQ(row.codes, rows[static_cast<size_t>(i)].codes);
      EXPECT_EQ(row.top, rows[static_cast<size_t>(i)].top);
      EXPECT_EQ(row.target, rows[static_cast<size_t>(i)].target);
    }
  }

  for (const LogProbFile::Shape& other : {LogProbFile::Shape{98, 5, 77}, LogProbFile::Shape{99, 6, 77}}) {
    const auto wrong = LogProbFile::open(path, other);
    ASSERT_FALSE(wrong);
    EXPECT_EQ(wrong.error().kind, ErrorKind::bad_input);
    EXPECT_NE(wrong.error().message.find(path), std::string::npos);
  }
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  EXPECT_FALSE(LogProbFile::open(path, shape));
  EXPECT_EQ(LogProbFile::open(path + "x", shape).error().kind, ErrorKind::not_found);
  {
    auto unfinished = LogProbFile::create(path + "y", shape);
    ASSERT_TRUE(unfinished);
  }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1) << "an unfinished one stayed";
  std::filesystem::remove_all(folder);
}

TEST(Summary, FiguresAreThoseOfTheTokens) {
  TokenScores scores;
  for (int i = 0; i < 100; ++i) {
    scores.nll.push_back(2 + 0.01f * static_cast<float>(i % 10));
    scores.reference_nll.push_back(2);
    scores.kl.push_back(i == 7 ? 3.0f : 0.5f);
    scores.same_top.push_back(i % 4 == 0 ? 0 : 1);
  }
  const Summary s = summarize(scores);
  EXPECT_EQ(s.tokens, 100);
  EXPECT_NEAR(s.ppl, std::exp(2.045), 1e-5);
  EXPECT_NEAR(s.ppl_ratio, std::exp(0.045), 1e-5);
  EXPECT_NEAR(s.kl_mean, 0.525, 1e-6);
  EXPECT_NEAR(s.kl_max, 3, 1e-6);
  EXPECT_NEAR(s.top1, 0.75, 1e-6);
  EXPECT_LE(s.kl_interval.low, s.kl_mean);
  EXPECT_GE(s.kl_interval.high, s.kl_mean);
}

}  // namespace
}  // namespace quintet
