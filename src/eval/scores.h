// What a model makes of a text, token by token, and how far that is from a reference model.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "eval/log_prob_file.h"
#include "eval/statistics.h"
#include "eval/windows.h"
#include "model/model.h"

namespace quintet {

/// By scored token, in the text's order.
struct TokenScores {
  std::vector<float> nll;            ///< -log p of the token that the text has, in nats
  std::vector<float> kl;             ///< KL(reference || model); empty without a reference
  std::vector<float> same_top;       ///< 1 where both have the same likeliest token
  std::vector<float> reference_nll;  ///< of the reference
};

struct ScoreOptions {
  int threads = 0;                   ///< of the statistics; 0: one a core
  LogProbFile* reference = nullptr;  ///< compare with these rows
  LogProbFile* record = nullptr;     ///< append this model's rows here (it is the reference)
  std::function<bool(int64_t done, int64_t total)> progress;  ///< false: stop (cancelled)
};

/// Reads the text's windows one after the other. internal where logits are not finite.
Result<TokenScores> score_text(Backend& backend, const Model& model, const ScoredText& text,
                               const ScoreOptions& options);

/// KL(reference || model) of one row of logits, in nats, and the model's -log p of `target`.
struct RowScore {
  float nll = 0, kl = 0;
  bool same_top = false;
};
/// `reference` may be null: kl is 0 then. Not finite logits give a NaN nll.
RowScore score_row(std::span<const float> logits, TokenId target, const LogProbRow* reference);

/// The figures of a table or of --json.
struct Summary {
  int64_t tokens = 0;
  double ppl = 0;
  Interval ppl_interval;
  bool compared = false;
  double kl_mean = 0, kl_p99 = 0, kl_max = 0, top1 = 0, ppl_ratio = 1;
  Interval kl_interval, top1_interval, ppl_ratio_interval;
};
Summary summarize(const TokenScores& scores);

}  // namespace quintet
