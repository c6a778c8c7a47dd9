// Reads the lines, and compares words and numbers.
#include "eval/tasks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>

#include "base/json_parse.h"
#include "base/printable.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::array<std::string_view, 3> kMetrics = {"exact", "f1", "number"};
constexpr int64_t kMostTokens = 1 << 20;

class LineReader {
 public:
  LineReader(const Json& line, std::string where) : line_(line), where_(std::move(where)) {}

  Result<TaskQuestion> run() {
    if (!line_.is_object())
      return bad_input(fmt::format("{}: found {}, allowed is a JSON object", where_,
                                   line_.is_discarded() ? "no JSON" : line_.type_name()));
    static constexpr std::array<std::string_view, 7> kFields = {"prompt",     "messages", "answer", "metric",
                                                                "max_tokens", "stop",     "task"};
    for (const auto& [key, value] : line_.items())
      if (std::find(kFields.begin(), kFields.end(), key) == kFields.end() && key != "id")
        return fault(printable(key), "a field that is not known",
                     "prompt, messages, answer, metric, max_tokens, stop, task and id");
    TaskQuestion question{.origin = where_};
    if (line_.contains("prompt") == line_.contains("messages"))
      return fault("prompt, messages", line_.contains("prompt") ? "both" : "neither", "one of them");
    if (line_.contains("messages")) {
      if (!line_["messages"].is_array())
        return fault("messages", line_["messages"].type_name(), "a list of messages");
      if (line_["messages"].empty()) return fault("messages", "an empty list", "one message and more");
      question.messages_json = line_["messages"].dump();
    } else {
      if (!line_["prompt"].is_string() || line_["prompt"].get<std::string>().empty())
        return fault("prompt", line_["prompt"].is_string() ? "an empty text" : line_["prompt"].type_name(),
                     "a text");
      question.prompt = line_["prompt"].get<std::string>();
    }
    if (line_.contains("task")) {
      if (!line_["task"].is_string()) return fault("task", line_["task"].type_name(), "a text");
      question.task = line_["task"].get<std::string>();
    }
    if (line_.contains("metric")) {
      const std::string name =
          line_["metric"].is_string() ? line_["metric"].get<std::string>() : line_["metric"].dump();
      const auto at = std::find(kMetrics.begin(), kMetrics.end(), name);
      if (at == kMetrics.end()) return fault("metric", printable(name), "exact, f1 or number");
      question.metric = static_cast<TaskMetric>(at - kMetrics.begin());
    }
    if (line_.contains("max_tokens")) {
      const Json& tokens = line_["max_tokens"];
      if (!tokens.is_number_integer() || tokens < 1 || tokens > kMostTokens)
        return fault("max_tokens", tokens.dump(), fmt::format("a whole number from 1 to {}", kMostTokens));
      question.max_tokens = tokens.get<int32_t>();
    }
    TRY_ASSIGN(question.answers, texts("answer", true));
    TRY_ASSIGN(question.stop, texts("stop", false));
    if (question.metric == TaskMetric::number)
      for (const std::string& answer : question.answers)
        if (!last_number(answer)) return fault("answer", printable(answer), "a text with a number in it");
    return question;
  }

  static std::optional<double> last_number(std::string_view text);

 private:
  Error fault(std::string_view field, std::string_view found, std::string_view allowed) const {
    return bad_input(fmt::format("{}: {}: found {}, allowed is {}", where_, field, found, allowed));
  }

  /// A text or number, or a list of them.
  Result<std::vector<std::string>> texts(const char* field, bool required) const {
    std::vector<std::string> all;
    if (!line_.contains(field)) {
      if (required) return fault(field, "nothing", "a text, a number, or a list of them");
      return all;
    }
    const Json& value = line_[field];
    for (const Json& one : value.is_array() ? value : Json::array({value})) {
      if (one.is_number() && required)
        all.push_back(one.dump());
      else if (one.is_string() && (required || !one.get<std::string>().empty()))
        all.push_back(one.get<std::string>());
      else
        return fault(field, one.is_string() ? "an empty text" : one.type_name(),
                     required ? "a text, a number, or a list of them" : "a text, or a list of them");
    }
    if (all.empty()) return fault(field, "an empty list", "one text and more");
    return all;
  }

  const Json& line_;
  std::string where_;
};

bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::optional<double> LineReader::last_number(std::string_view text) {
  std::optional<double> last;
  for (size_t i = 0; i < text.size();) {
    if (!is_digit(text[i])) {
      ++i;
      continue;
    }
    std::string digits;
    if (i > 0 && text[i - 1] == '-')
      digits = "-";
    else if (i > 1 && text[i - 1] == '.' && text[i - 2] == '-')
      digits = "-0.";
    else if (i > 0 && text[i - 1] == '.')
      digits = "0.";
    bool point = !digits.empty() && digits.back() == '.';
    for (; i < text.size(); ++i) {
      const bool more = i + 1 < text.size() && is_digit(text[i + 1]);
      if (is_digit(text[i])) {
        digits += text[i];
      } else if (text[i] == '.' && !point && more) {
        digits += '.', point = true;
      } else if (!(text[i] == ',' && !point && more)) {  // a comma between thousands
        break;
      }
    }
    double value = 0;
    const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (failed == std::errc()) last = value;
  }
  return last;
}

/// Words in lower case without punctuation and English articles; characters of scripts without spaces are
/// words of their own.
std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  const auto end = [&] {
    if (!word.empty() && word != "a" && word != "an" && word != "the") words.push_back(word);
    word.clear();
  };
  for (size_t i = 0; i < text.size();) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const size_t length = byte < 0x80 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
    const std::string_view one = text.substr(i, length);
    i += one.size();
    const bool ideograph = length >= 3 && one >= "\xE3\x80\x80";  // from U+3000 on
    if (ideograph) {
      end();
      if (one >= "\xE3\x80\x84" && !one.starts_with("\xEF\xBC"))
        words.emplace_back(one);  // no ideographic punctuation
    } else if (byte >= 0x80) {
      word += one;
    } else if ((byte >= 'a' && byte <= 'z') || is_digit(static_cast<char>(byte))) {
      word += one;
    } else if (byte >= 'A' && byte <= 'Z') {
      word += static_cast<char>(byte + 32);
    } else if (byte <= ' ') {
      end();
    }  // punctuation within a word goes, as in "don't"
  }
  end();
  return words;
}

float f1(const std::vector<std::string>& found, const std::vector<std::string>& wanted) {
  if (found.empty() || wanted.empty()) return found.empty() && wanted.empty() ? 1.0f : 0.0f;
  std::map<std::string_view, int> left;
  for (const std::string& word : wanted) ++left[word];
  int common = 0;
  for (const std::string& word : found)
    if (int& count = left[word]; count > 0) --count, ++common;
  return 2 * static_cast<float>(common) / static_cast<float>(found.size() + wanted.size());
}

}  // namespace

std::string_view metric_name(TaskMetric metric) { return kMetrics[static_cast<size_t>(metric)]; }

Result<std::vector<TaskQuestion>> parse_tasks(std::string_view lines, std::string_view origin) {
  std::vector<TaskQuestion> questions;
  for (int64_t number = 1; !lines.empty(); ++number) {
    const std::string_view line = lines.substr(0, lines.find('\n'));
    lines.remove_prefix(std::min(lines.size(), line.size() + 1));
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const Json json = parse_json_tree<Json>(line);
    TRY_ASSIGN(TaskQuestion question, LineReader(json, fmt::format("{}: line {}", origin, number)).run());
    questions.push_back(std::move(question));
  }
  if (questions.empty())
    return bad_input(fmt::format("{}: found no lines, allowed is a question a line", origin));
  return questions;
}

float score_answer(const TaskQuestion& question, std::string_view text) {
  float best = 0;
  for (const std::string& answer : question.answers) {
    if (question.metric == TaskMetric::number) {
      const auto found = LineReader::last_number(text), wanted = LineReader::last_number(answer);
      if (found && wanted && std::abs(*found - *wanted) <= 1e-6 * std::max(1.0, std::abs(*wanted))) return 1;
      continue;
    }
    const std::vector<std::string> found = words_of(text), wanted = words_of(answer);
    best = std::max(
        best, question.metric == TaskMetric::exact ? (found == wanted ? 1.0f : 0.0f) : f1(found, wanted));
  }
  return best;
}

}  // namespace quintet
