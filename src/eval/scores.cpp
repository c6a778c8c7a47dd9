// Runs windows through a model and compares rows of logits.
#include "eval/scores.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>

#include "base/parallel.h"
#include "engine/engine_client.h"

namespace quintet {
namespace {

constexpr int32_t kChunk_tokens = 512;

/// exp(-code / kLogProbSteps) of every code.
const std::vector<float>& code_weights() {
  static const std::vector<float> table = [] {
    std::vector<float> weights(65536);
    for (size_t code = 0; code < weights.size(); ++code)
      weights[code] = std::exp(-static_cast<float>(code) / kLogProbSteps);
    weights.back() = 0;  // anything below 32 nats
    return weights;
  }();
  return table;
}

class Scorer {
 public:
  Scorer(Backend& backend, const Model& model, const ScoredText& text, const ScoreOptions& options)
      : backend_(backend), model_(model), text_(text), options_(options), total_(text.scored_tokens()) {
    scores_.nll.resize(static_cast<size_t>(total_));
    if (!options.reference) return;
    for (auto* series : {&scores_.kl, &scores_.same_top, &scores_.reference_nll})
      series->resize(static_cast<size_t>(total_));
  }

  Result<TokenScores> run() {
    for (const Window& window : text_.windows) TRY(score_window(window));
    return std::move(scores_);
  }

 private:
  Status score_window(const Window& window) {
    const int64_t lead = text_.bos ? 1 : 0;
    std::vector<TokenId> tokens(static_cast<size_t>(lead + window.end - window.begin));
    if (text_.bos) tokens.front() = *text_.bos;
    std::copy(text_.tokens.begin() + window.begin, text_.tokens.begin() + window.end, tokens.begin() + lead);
    return prompt_logits(
        backend_, model_, tokens, kChunk_tokens,
        [&](int32_t first, int32_t rows, const float* logits) -> Status {
          // Row r predicts the token after it; the window's last row predicts nothing here.
          const int64_t low = std::max<int64_t>(first, window.scored - window.begin + lead - 1);
          const int64_t high = std::min<int64_t>(first + rows, static_cast<int64_t>(tokens.size()) - 1);
          if (low >= high) return {};
          return score_rows(logits + (low - first) * model_.config.vocabulary, high - low,
                            tokens.data() + low + 1);
        });
  }

  Status score_rows(const float* logits, int64_t rows, const TokenId* targets) {
    const auto vocabulary = static_cast<size_t>(model_.config.vocabulary);
    const auto row_of = [&](int64_t i) {
      return std::span(logits + static_cast<size_t>(i) * vocabulary, vocabulary);
    };
    rows_.resize(std::max(rows_.size(), static_cast<size_t>(rows)));
    if (options_.reference)
      for (int64_t i = 0; i < rows; ++i)
        TRY(options_.reference->read(done_ + i, rows_[static_cast<size_t>(i)]));
    std::vector<RowScore> made(static_cast<size_t>(rows));
    parallel_for(rows, options_.threads, [&](int64_t i) {
      LogProbRow& row = rows_[static_cast<size_t>(i)];
      made[static_cast<size_t>(i)] = score_row(row_of(i), targets[i], options_.reference ? &row : nullptr);
      if (options_.record) make_log_prob_row(row_of(i), targets[i], row);
    });
    for (int64_t i = 0; i < rows; ++i) {
      const RowScore& score = made[static_cast<size_t>(i)];
      if (!std::isfinite(score.nll))
        return internal_error(
            fmt::format("{}: the logits of scored token {} are not finite", model_.path, done_ + i));
      if (options_.record) TRY(options_.record->append(rows_[static_cast<size_t>(i)]));
      const auto at = static_cast<size_t>(done_ + i);
      scores_.nll[at] = score.nll;
      if (!options_.reference) continue;
      scores_.kl[at] = score.kl;
      scores_.same_top[at] = score.same_top ? 1.0f : 0.0f;
      scores_.reference_nll[at] = -rows_[static_cast<size_t>(i)].target;
    }
    done_ += rows;
    if (options_.progress && !options_.progress(done_, total_))
      return Error{ErrorKind::cancelled, "stopped by a signal"};
    return {};
  }

  Backend& backend_;
  const Model& model_;
  const ScoredText& text_;
  const ScoreOptions& options_;
  int64_t total_, done_ = 0;
  TokenScores scores_;
  std::vector<LogProbRow> rows_;  ///< reused from chunk to chunk
};

}  // namespace

RowScore score_row(std::span<const float> logits, TokenId target, const LogProbRow* reference) {
  const auto likeliest = std::max_element(logits.begin(), logits.end());
  const float top = *likeliest;
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  const double log_sum = std::log(sum);
  RowScore score;
  score.nll = static_cast<float>(log_sum - (logits[static_cast<size_t>(target)] - top));
  if (!reference) return score;

  // sum p (log p - log q), with p as codes: exp(-code / steps) / z.
  const std::vector<float>& weight_of = code_weights();
  double z = 0, difference = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const float weight = weight_of[reference->codes[i]];
    z += weight;
    difference += static_cast<double>(weight) *
                  (-static_cast<float>(reference->codes[i]) / kLogProbSteps - (logits[i] - top));
  }
  score.kl = static_cast<float>(std::max(0.0, difference / z - std::log(z) + log_sum));
  score.same_top = reference->codes[static_cast<size_t>(likeliest - logits.begin())] == 0;
  return score;
}

Result<TokenScores> score_text(Backend& backend, const Model& model, const ScoredText& text,
                               const ScoreOptions& options) {
  return Scorer(backend, model, text, options).run();
}

Summary summarize(const TokenScores& scores) {
  Summary summary{.tokens = static_cast<int64_t>(scores.nll.size())};
  summary.ppl = std::exp(mean(scores.nll));
  const auto exp_of_first = [](std::span<const double> means) { return std::exp(means[0]); };
  summary.ppl_interval = bootstrap({scores.nll}, exp_of_first);
  if (scores.kl.empty()) return summary;
  const auto first = [](std::span<const double> means) { return means[0]; };
  summary.compared = true;
  summary.kl_mean = mean(scores.kl);
  summary.kl_interval = bootstrap({scores.kl}, first);
  summary.kl_p99 = quantile(scores.kl, 0.99);
  summary.kl_max = quantile(scores.kl, 1);
  summary.top1 = mean(scores.same_top);
  summary.top1_interval = bootstrap({scores.same_top}, first);
  summary.ppl_ratio = std::exp(mean(scores.nll) - mean(scores.reference_nll));
  summary.ppl_ratio_interval =
      bootstrap({scores.nll, scores.reference_nll},
                [](std::span<const double> means) { return std::exp(means[0] - means[1]); });
  return summary;
}

}  // namespace quintet
