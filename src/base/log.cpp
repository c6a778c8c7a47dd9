// Sets up the one logger of the process.
#include "base/log.h"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <unistd.h>

namespace quintet {

Status configure_logging(const LogOptions& options) {
  auto level = spdlog::level::from_str(options.level);
  // from_str answers "off" for words it does not know.
  if (level == spdlog::level::off && options.level != "off")
    return bad_input(fmt::format("--log-level: found '{}', allowed are trace, debug, info, warn, error, off", options.level));
  spdlog::sink_ptr sink;
  if (!options.file.empty()) {
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file, false);
    } catch (const spdlog::spdlog_ex& error) {
      return io_error(fmt::format("--log-file {}: {}", options.file, error.what()));
    }
  } else if (isatty(STDERR_FILENO)) {
    sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>();
  } else {
    auto plain = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(spdlog::color_mode::never);
    sink = plain;
  }
  auto logger = std::make_shared<spdlog::logger>("quintet", sink);
  logger->set_level(level);
  logger->set_pattern(options.file.empty() ? "%^%l%$ %v" : "%Y-%m-%dT%H:%M:%S.%f %l %v");
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace quintet
