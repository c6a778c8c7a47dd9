// Broken invariants stop the process with a message: they are faults of this program, never of its input.
#pragma once

#include <fmt/format.h>

#include <string>

namespace quintet {

/// Prints the place and the message to stderr and aborts.
[[noreturn]] void check_failed(const char* file, int line, const char* condition, const std::string& message);

}  // namespace quintet

/// QUINTET_CHECK(condition, "format", arguments...): always on; keep it out of inner loops.
#define QUINTET_CHECK(condition, ...)                                                        \
  do {                                                                                       \
    if (!(condition)) [[unlikely]]                                                           \
      ::quintet::check_failed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)); \
  } while (false)
