// The table of ranges.
#include "sampling/params.h"

#include <fmt/format.h>

#include <cmath>

namespace quintet {
namespace {

struct Range {
  std::string_view name;
  double value;
  double min, max;
};

}  // namespace

Status check_sampling(const SampleParams& params) {
  // The penalties' and the temperature's limits are OpenAI's where it has any, wider where other engines
  // allow more.
  const Range ranges[] = {
      {"temperature", params.temperature, 0, 100},
      {"top_k", static_cast<double>(params.top_k), 0, 1 << 30},
      {"top_p", params.top_p, 0, 1},
      {"min_p", params.min_p, 0, 1},
      {"repeat_penalty", params.repeat_penalty, 0.01, 100},
      {"presence_penalty", params.presence_penalty, -2, 2},
      {"frequency_penalty", params.frequency_penalty, -2, 2},
      {"logprobs", static_cast<double>(params.logprobs), 0, 20},
  };
  // Written so that NaN fails too. float limits: 0.01f as a double lies a little below 0.01.
  for (const Range& range : ranges)
    if (!(range.value >= static_cast<float>(range.min) && range.value <= range.max))
      return bad_input(fmt::format("{}: found {:g}, allowed are {:g} to {:g}", range.name, range.value,
                                   range.min, range.max));
  return {};
}

Status check_stop_strings(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStopStrings)
    return bad_input(fmt::format("found {} strings, allowed are at most {}", stops.size(), kMaxStopStrings));
  for (const std::string& stop : stops)
    if (stop.empty() || stop.size() > kMaxStopBytes)
      return bad_input(
          fmt::format("found a string of {} bytes, allowed are 1 to {}", stop.size(), kMaxStopBytes));
  return {};
}

}  // namespace quintet
