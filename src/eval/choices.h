// Multiple choice in the form of MMLU (Hendrycks et al., 2021) and CMMLU (Li et al., 2023): folders of CSV files, few-shot
// prompts, and the likeliest of four letters.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "eval/statistics.h"
#include "model/model.h"

namespace quintet {

struct ChoiceQuestion {
  std::string question;
  std::array<std::string, 4> options;
  int answer = 0;  ///< 0 to 3
};

/// One subject: what the prompt shows, and what is asked.
struct ChoiceSubject {
  std::string name;
  std::vector<ChoiceQuestion> shots, questions;
};

struct ChoiceSet {
  bool chinese = false;  ///< CMMLU's wording
  std::vector<ChoiceSubject> subjects;
};

/// Fields of the lines of a CSV text; quoted fields may hold commas, doubled quotes and line ends. bad_input names the
/// line of a quote that does not end.
Result<std::vector<std::vector<std::string>>> parse_csv(std::string_view text, std::string_view origin);

/// DIR/dev and DIR/test with a file a subject, as both sets are published: MMLU's subject_dev.csv of question, four options
/// and letter; CMMLU's subject.csv with a first line that names the columns. bad_input names file, line, found and allowed.
Result<ChoiceSet> read_choices(const std::string& folder);

/// The prompt of a question behind at most `shots` answered ones.
std::string choice_prompt(const ChoiceSet& set, const ChoiceSubject& subject, const ChoiceQuestion& question, int shots);

struct ChoiceOptions {
  int shots = 5;
  int64_t questions = 0;  ///< of each subject; 0: all
  std::function<bool(int64_t done, int64_t all)> progress;  ///< false: stop (cancelled)
};

struct ChoiceScore {
  std::string subject;
  std::vector<float> right;  ///< 1 or 0 a question
};

/// Asks every question: the letter whose token is likeliest behind the prompt is the answer. Shots are left out from the
/// front where the prompt is longer than the model's context; bad_input where not even the question fits.
Result<std::vector<ChoiceScore>> score_choices(Backend& backend, const Model& model, const ChoiceSet& set,
                                               const ChoiceOptions& options);

}  // namespace quintet
