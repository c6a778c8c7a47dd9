// Questions with free answers: a file of them, and what an answer is worth.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quintet {

/// exact: the same words as one of the answers. f1: the words that both have, as F1 (Rajpurkar et al.,
/// "SQuAD", 2016; case, punctuation and English articles do not count). number: the last number of the text
/// is the answer's (as GSM8K is judged, Cobbe et al., 2021).
enum class TaskMetric : uint8_t { exact, f1, number };
std::string_view metric_name(TaskMetric metric);

struct TaskQuestion {
  std::string origin;                ///< for messages: "FILE: line N"
  std::string task;                  ///< questions of a name are summed up together; may be empty
  std::string prompt;                ///< a text, or
  std::string messages_json;         ///< a conversation
  std::vector<std::string> answers;  ///< any of them is right
  TaskMetric metric = TaskMetric::exact;
  int32_t max_tokens = 64;
  std::vector<std::string> stop;
};

/// One JSON object a line: "prompt" or "messages", "answer" (a text, a number, or a list of them), and
/// perhaps "metric"
/// ("exact", "f1", "number"), "max_tokens", "stop" (a text or a list), "task". bad_input names line, field,
/// what was found and what is allowed.
Result<std::vector<TaskQuestion>> parse_tasks(std::string_view lines, std::string_view origin);

/// 0 to 1: the best over the question's answers.
float score_answer(const TaskQuestion& question, std::string_view text);

}  // namespace quintet
