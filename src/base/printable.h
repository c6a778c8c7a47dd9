// Names and texts of untrusted files and requests, made safe to show at a terminal and in a log.
#pragma once

#include <string>
#include <string_view>

namespace quintet {

/// One line: bytes that are not printable ASCII or part of valid UTF-8 as \n, \t or \xNN, so that nothing
/// moves a terminal's cursor or looks like a second line; cut after `limit_bytes` with "..." behind.
std::string one_line(std::string_view text, size_t limit_bytes);

/// The same in single quotes, which end before the "...".
std::string printable(std::string_view text, size_t limit_bytes = 80);

}  // namespace quintet
