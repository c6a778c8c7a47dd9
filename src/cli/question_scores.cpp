// Means, paired differences, and their intervals.
#include "cli/question_scores.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "eval/statistics.h"

namespace quintet {

std::string print_questions(const QuestionScores& scores, const QuestionsOf& of, std::vector<float>& first) {
  using Json = nlohmann::ordered_json;
  constexpr size_t kMostNameBytes = 200;
  if (scores.all.empty()) return {};
  const auto interval_of = [](const std::vector<std::span<const float>>& series) {
    return bootstrap(
        series,
        [](std::span<const double> means) { return means.size() == 1 ? means[0] : means[1] - means[0]; }, 1);
  };
  const Interval interval = interval_of({scores.all});
  const bool paired = first.size() == scores.all.size();
  const Interval difference = paired ? interval_of({first, scores.all}) : Interval{};
  const double more = paired ? mean(scores.all) - mean(first) : 0;
  Json groups = Json::object();
  std::string text;
  for (const auto& [name, group] : scores.groups) {
    groups[name] = {{scores.kind, mean(group)}, {"questions", group.size()}};
    text += fmt::format("{:>7.3f} {:>6}  {}", mean(group), group.size(), one_line(name, kMostNameBytes));
    if (const auto metrics = scores.metrics.find(name); metrics != scores.metrics.end()) {
      groups[name]["metrics"] = metrics->second;
      text += fmt::format(" ({})", fmt::join(metrics->second, ", "));
    }
    text += "\n";
  }
  text += fmt::format("{:>7.3f} ({:.3f}-{:.3f}) of {} questions", mean(scores.all), interval.low,
                      interval.high, scores.all.size());
  if (paired)
    text += fmt::format(", {:+.3f} ({:+.3f} to {:+.3f}) beside {}", more, difference.low, difference.high,
                        of.beside);
  text += fmt::format("  {}\n", of.path);
  Json line = {{"path", of.path},
               {"bytes", of.bytes},
               {scores.kind, mean(scores.all)},
               {scores.kind + "_ci", {interval.low, interval.high}},
               {"questions", scores.all.size()},
               {scores.groups_name, groups}};
  if (paired) {
    line["difference"] = more;
    line["difference_ci"] = {difference.low, difference.high};
  }
  if (!scores.answers.empty()) line["answers"] = scores.answers;
  if (first.empty()) first = scores.all;
  return of.json ? line.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n" : text;
}

}  // namespace quintet
