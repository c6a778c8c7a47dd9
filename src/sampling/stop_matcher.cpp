// One automaton a stop string, all fed the same bytes.
#include "sampling/stop_matcher.h"

#include <algorithm>

#include "base/check.h"

namespace quintet {

StopMatcher::StopMatcher(std::vector<std::string> stops) {
  for (std::string& text : stops) {
    QUINTET_CHECK(!text.empty(), "an empty stop string");
    Stop stop{.text = std::move(text)};
    stop.fallback.resize(stop.text.size());
    for (size_t i = 1, border = 0; i < stop.text.size(); ++i) {
      while (border > 0 && stop.text[i] != stop.text[border]) border = stop.fallback[border - 1];
      if (stop.text[i] == stop.text[border]) ++border;
      stop.fallback[i] = border;
    }
    stops_.push_back(std::move(stop));
  }
}

std::string StopMatcher::push(std::string_view piece) {
  if (stopped()) return {};
  if (stops_.empty()) return std::string(piece);
  std::string text = std::move(held_);
  held_.clear();
  for (char byte : piece) {
    text += byte;
    for (size_t i = 0; i < stops_.size(); ++i) {
      Stop& stop = stops_[i];
      while (stop.state > 0 && stop.text[stop.state] != byte) stop.state = stop.fallback[stop.state - 1];
      if (stop.text[stop.state] == byte) ++stop.state;
      if (stop.state < stop.text.size()) continue;
      if (!matched_ || stop.text.size() > stops_[*matched_].text.size()) matched_ = i;
      stop.state = 0;  // read no further
    }
    if (matched_) {
      text.resize(text.size() - matched().size());
      return text;
    }
  }
  size_t held_bytes = 0;
  for (const Stop& stop : stops_) held_bytes = std::max(held_bytes, stop.state);
  held_ = text.substr(text.size() - held_bytes);
  text.resize(text.size() - held_bytes);
  return text;
}

std::string StopMatcher::finish() {
  std::string text = std::move(held_);
  held_.clear();
  for (Stop& stop : stops_) stop.state = 0;
  return text;
}

}  // namespace quintet
