// Stop strings over text that comes in pieces: holds back what may become one, lets no part of one out.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quintet {

/// The first stop string to be complete ends the text; of several that end at the same byte, the one that
/// begins first. The result does not depend on how the text is cut into pieces. Time linear in the text for
/// each stop string (Knuth, Morris, Pratt 1977).
class StopMatcher {
 public:
  /// None of `stops` is empty (check_stop_strings); no stops at all is fine.
  explicit StopMatcher(std::vector<std::string> stops);

  /// Text that is certain to come before any stop string. Once stopped, always empty.
  std::string push(std::string_view piece);
  /// What was held back, at the end of a text that did not stop.
  std::string finish();

  bool stopped() const { return matched_.has_value(); }
  /// The stop string that ended the text.
  const std::string& matched() const { return stops_[*matched_].text; }

 private:
  struct Stop {
    std::string text;
    std::vector<size_t> fallback;  ///< [i]: length of the longest proper border of the first i + 1 bytes
    size_t state = 0;              ///< bytes of it that the text ends with
  };

  std::vector<Stop> stops_;
  std::string held_;  ///< a suffix of the text that is a prefix of a stop string
  std::optional<size_t> matched_;
};

}  // namespace quintet
