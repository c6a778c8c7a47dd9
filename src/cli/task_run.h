// Asks a model questions with free answers (eval/tasks.h).
#pragma once

#include <functional>
#include <vector>

#include "base/result.h"
#include "cli/interrupt.h"
#include "cli/session.h"
#include "eval/tasks.h"

namespace quintet {

struct TaskRunOptions {
  bool raw = false;  ///< prompts are continued as they are, also where the model has a chat template
  int32_t at_once = 16;
  std::function<void(uint64_t tokens)> on_tokens;  ///< generated so far
};

struct TaskAnswer {
  std::string text;
  float score = 0;
};

/// The ids of every question. A prompt is a user's message where the model has a chat template, unless `raw`. bad_input,
/// named by the question's file and line, where the template fails or one does not fit into the model's context.
Result<std::vector<std::vector<TokenId>>> encode_tasks(const Model& model, const std::vector<TaskQuestion>& questions, bool raw);

/// Greedy answers to all questions, several at once, in their order. Errors as encode_tasks().
Result<std::vector<TaskAnswer>> ask_tasks(Session& session, const std::vector<TaskQuestion>& questions,
                                          const TaskRunOptions& options, const Interrupts& interrupts);

}  // namespace quintet
