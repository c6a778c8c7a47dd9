// Scores of questions as `quintet eval` prints them, with intervals, and beside another model's.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

namespace quintet {

/// One number from 0 to 1 a question, of questions in groups.
struct QuestionScores {
  std::string kind;         ///< "accuracy", "score"
  std::string groups_name;  ///< "subjects", "tasks"
  std::vector<float> all;
  std::map<std::string, std::vector<float>> groups;
  std::map<std::string, std::set<std::string>> metrics;  ///< of a group, where questions are judged in several ways
  std::vector<std::string> answers;  ///< texts, where there are any

  void add(const std::string& group, float score) {
    all.push_back(score);
    groups[group].push_back(score);
  }
};

struct QuestionsOf {
  std::string path;  ///< of the model
  uint64_t bytes = 0;
  std::string beside;  ///< the first model's path
  bool json = false;
};

/// Lines for people, or one JSON object. Intervals are over questions. `first`: of the first model, which the
/// others are compared with, question by question; filled in where empty.
std::string print_questions(const QuestionScores& scores, const QuestionsOf& of, std::vector<float>& first);

}  // namespace quintet
