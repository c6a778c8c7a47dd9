// Logging for every folder. Library code logs, it never prints; the command line decides where the log goes.
#pragma once

#include <spdlog/fmt/fmt.h>
#include <spdlog/spdlog.h>

#include <string>

#include "base/result.h"

namespace quintet {

struct LogOptions {
  std::string level = "info";  ///< trace, debug, info, warn, error, off
  std::string file;            ///< empty: stderr
};

/// Sets the process's logger. Call once, before threads start; an unknown level or an unwritable file is an error.
Status configure_logging(const LogOptions& options);

}  // namespace quintet

#define LOG_DEBUG(...) QUINTET_LOG_(debug, __VA_ARGS__)
#define LOG_INFO(...) QUINTET_LOG_(info, __VA_ARGS__)
#define LOG_WARN(...) QUINTET_LOG_(warn, __VA_ARGS__)
#define LOG_ERROR(...) QUINTET_LOG_(error, __VA_ARGS__)
#define QUINTET_LOG_(level, ...) ::spdlog::level(__VA_ARGS__)
