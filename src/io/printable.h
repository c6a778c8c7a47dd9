// Names and texts of untrusted files, made safe to show in a message.
#pragma once

#include <string>
#include <string_view>

namespace quintet {

/// In single quotes; bytes that are not printable ASCII or part of valid UTF-8 as \xNN; cut after
/// `limit_bytes` with
/// "..." behind.
std::string printable(std::string_view text, size_t limit_bytes = 80);

}  // namespace quintet
