// Bytes and times as people read them.
#pragma once

#include <cstdint>
#include <string>

namespace quintet {

/// "1.5 GiB", "512 B": binary units, at most one decimal.
std::string format_bytes(uint64_t bytes);

/// Microseconds of a clock that never goes back.
int64_t now_us();

}  // namespace quintet
