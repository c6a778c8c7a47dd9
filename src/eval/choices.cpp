// Reads the CSV files, builds prompts, and compares four logits.
#include "eval/choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>

#include "base/printable.h"
#include "engine/engine_client.h"
#include "io/mapped_file.h"

namespace quintet {
namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMaxFileBytes = uint64_t{64} << 20;
constexpr int32_t kChunk_tokens = 256;
constexpr std::string_view kLetters = "ABCD";

/// The columns of question, options and answer.
struct Columns {
  size_t question = 0, option = 1, answer = 5;
};

std::string without(std::string name, std::string_view ending) {
  if (name.ends_with(ending)) name.resize(name.size() - ending.size());
  return name;
}

Result<std::vector<ChoiceQuestion>> read_file(const std::string& path, bool required, bool& has_header) {
  TRY_ASSIGN(const std::string text, read_text_file(path, kMaxFileBytes));
  std::string_view body = text;
  if (body.starts_with("\xEF\xBB\xBF")) body.remove_prefix(3);
  TRY_ASSIGN(const auto lines, parse_csv(body, path));
  Columns columns;
  size_t first = 0;
  if (!lines.empty()) {
    const auto at = std::find(lines[0].begin(), lines[0].end(), "Question");
    if (at != lines[0].end()) {
      has_header = true;
      first = 1;
      columns.question = static_cast<size_t>(at - lines[0].begin());
      columns.option = columns.question + 1;
      columns.answer = columns.question + 5;
    }
  }
  std::vector<ChoiceQuestion> questions;
  for (size_t i = first; i < lines.size(); ++i) {
    const auto& line = lines[i];
    const auto fault = [&](std::string_view found, std::string_view allowed) {
      return bad_input(fmt::format("{}: entry {}: found {}, allowed is {}", path, i + 1, found, allowed));
    };
    if (line.size() <= columns.answer)
      return fault(fmt::format("{} fields", line.size()), fmt::format("at least {}", columns.answer + 1));
    ChoiceQuestion question{.question = line[columns.question]};
    for (size_t j = 0; j < 4; ++j) question.options[j] = line[columns.option + j];
    const std::string& letter = line[columns.answer];
    const size_t answer = letter.size() == 1 ? kLetters.find(letter[0]) : std::string_view::npos;
    if (answer == kLetters.npos) return fault(fmt::format("the answer {}", printable(letter)), "A, B, C or D");
    question.answer = static_cast<int>(answer);
    questions.push_back(std::move(question));
  }
  if (questions.empty() && required) return bad_input(fmt::format("{}: found no questions, allowed are one and more", path));
  return questions;
}

Result<std::map<std::string, std::vector<ChoiceQuestion>>> read_half(const std::string& folder, std::string_view half,
                                                                     bool& has_header) {
  const std::string path = fmt::format("{}/{}", folder, half);
  std::error_code error;
  std::map<std::string, std::vector<ChoiceQuestion>> subjects;
  for (fs::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    if (entry->path().extension() != ".csv") continue;
    const std::string name = without(entry->path().stem().string(), fmt::format("_{}", half));
    TRY_ASSIGN(subjects[name], read_file(entry->path().string(), half == "test", has_header));
  }
  if (error) return bad_input(fmt::format("{}: cannot list the folder: {}", path, error.message()));
  if (subjects.empty()) return bad_input(fmt::format("{}: found no .csv files, allowed is one a subject", path));
  return subjects;
}

std::string spaced(std::string name) {
  std::replace(name.begin(), name.end(), '_', ' ');
  return name;
}

std::string one(const ChoiceSet& set, const ChoiceQuestion& question, bool answered) {
  std::string text = (set.chinese ? "题目：" : "") + question.question;
  for (size_t i = 0; i < 4; ++i) text += fmt::format("\n{}. {}", kLetters[i], question.options[i]);
  text += set.chinese ? "\n答案是：" : "\nAnswer:";
  if (answered) text += fmt::format("{}{}\n\n", set.chinese ? "" : " ", kLetters[static_cast<size_t>(question.answer)]);
  return text;
}

/// The token that a letter is behind a prompt.
Result<std::array<TokenId, 4>> letter_tokens(const Tokenizer& tokenizer, bool chinese) {
  std::array<TokenId, 4> tokens{};
  for (size_t i = 0; i < 4; ++i) {
    const auto ids = tokenizer.encode(fmt::format("{}{}", chinese ? "：" : "Answer: ", kLetters[i]), {.add_bos = false});
    if (ids.empty()) return bad_input("the tokenizer has no token for the letters A to D");
    tokens[i] = ids.back();
  }
  return tokens;
}

}  // namespace

Result<std::vector<std::vector<std::string>>> parse_csv(std::string_view text, std::string_view origin) {
  std::vector<std::vector<std::string>> lines;
  std::vector<std::string> line;
  std::string field;
  bool quoted = false, any = false;
  size_t number = 1, opened = 0;
  const auto end_line = [&] {
    line.push_back(std::move(field));
    field.clear();
    if (line.size() > 1 || !line[0].empty()) lines.push_back(std::move(line));
    line.clear();
    any = false;
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    number += c == '\n';
    if (quoted) {
      if (c != '"') {
        field += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        field += c, ++i;
      } else {
        quoted = false;
      }
    } else if (c == '"' && field.empty()) {
      quoted = any = true, opened = number;
    } else if (c == ',') {
      line.push_back(std::move(field));
      field.clear();
      any = true;
    } else if (c == '\n') {
      end_line();
    } else if (c != '\r') {
      field += c, any = true;
    }
  }
  if (quoted) return bad_input(fmt::format("{}: line {}: found a quote that does not end", origin, opened));
  if (any) end_line();
  return lines;
}

Result<ChoiceSet> read_choices(const std::string& folder) {
  ChoiceSet set;
  TRY_ASSIGN(auto shots, read_half(folder, "dev", set.chinese));
  TRY_ASSIGN(auto questions, read_half(folder, "test", set.chinese));
  for (auto& [name, asked] : questions) {
    const auto shown = shots.find(name);
    set.subjects.push_back({.name = name,
                            .shots = shown == shots.end() ? std::vector<ChoiceQuestion>{} : std::move(shown->second),
                            .questions = std::move(asked)});
  }
  return set;
}

std::string choice_prompt(const ChoiceSet& set, const ChoiceSubject& subject, const ChoiceQuestion& question, int shots) {
  std::string prompt =
      set.chinese ? fmt::format("以下是关于{}的单项选择题，请直接给出正确答案的选项。\n\n", spaced(subject.name))
                  : fmt::format("The following are multiple choice questions (with answers) about {}.\n\n", spaced(subject.name));
  const size_t shown = std::min(subject.shots.size(), static_cast<size_t>(shots));
  for (size_t i = 0; i < shown; ++i) prompt += one(set, subject.shots[i], true);
  return prompt + one(set, question, false);
}

Result<std::vector<ChoiceScore>> score_choices(Backend& backend, const Model& model, const ChoiceSet& set,
                                               const ChoiceOptions& options) {
  TRY_ASSIGN(const auto letters, letter_tokens(*model.tokenizer, set.chinese));
  const auto asked_of = [&](const ChoiceSubject& subject) {
    const auto all = static_cast<int64_t>(subject.questions.size());
    return options.questions > 0 ? std::min(options.questions, all) : all;
  };
  int64_t all = 0, done = 0;
  for (const ChoiceSubject& subject : set.subjects) all += asked_of(subject);
  std::vector<ChoiceScore> scores;
  for (const ChoiceSubject& subject : set.subjects) {
    ChoiceScore score{.subject = subject.name};
    for (int64_t i = 0; i < asked_of(subject); ++i) {
      const ChoiceQuestion& question = subject.questions[static_cast<size_t>(i)];
      std::vector<TokenId> tokens;
      for (int shots = options.shots; shots >= 0; --shots) {
        tokens = model.tokenizer->encode(choice_prompt(set, subject, question, shots), {});
        if (static_cast<int64_t>(tokens.size()) <= model.config.context) break;
      }
      if (static_cast<int64_t>(tokens.size()) > model.config.context)
        return bad_input(fmt::format("{}, question {}: found {} tokens, allowed are {} (the model's context)", subject.name,
                                     i + 1, tokens.size(), model.config.context));
      const auto last = static_cast<int32_t>(tokens.size()) - 1;
      int best = 0;
      TRY(prompt_logits(backend, model, tokens, kChunk_tokens, [&](int32_t first, int32_t rows, const float* logits) {
        if (last < first || last >= first + rows) return Status();
        const float* row = logits + int64_t{last - first} * model.config.vocabulary;
        for (const TokenId letter : letters)
          if (!std::isfinite(row[letter]))
            return Status(internal_error(fmt::format("{}: the logits of {}, question {} are not finite", model.path, subject.name, i + 1)));
        for (int j = 1; j < 4; ++j)
          if (row[letters[static_cast<size_t>(j)]] > row[letters[static_cast<size_t>(best)]]) best = j;
        return Status();
      }));
      score.right.push_back(best == question.answer ? 1.0f : 0.0f);
      if (options.progress && !options.progress(++done, all)) return Error{ErrorKind::cancelled, "stopped by a signal"};
    }
    scores.push_back(std::move(score));
  }
  return scores;
}

}  // namespace quintet
