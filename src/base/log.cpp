// Sets up the one logger of the process.
#include "base/log.h"

#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_color_sinks.h>

#include <unistd.h>

#include "base/output_file.h"
#include "base/printable.h"
#include "base/status_line.h"

namespace quintet {
namespace {

/// The message of a log line. What it quotes from files and requests must not look like other lines.
class SafePayload : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& message, const std::tm&, spdlog::memory_buf_t& out) override {
    constexpr size_t kMostBytes = 4096;
    const std::string text = one_line({message.payload.data(), message.payload.size()}, kMostBytes);
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override { return std::make_unique<SafePayload>(); }
};

/// Log lines on a terminal, which take a progress bar away first.
class TerminalSink : public spdlog::sinks::stderr_color_sink_mt {
 public:
  void log(const spdlog::details::log_msg& message) override {
    write_over_status_line([&] { spdlog::sinks::stderr_color_sink_mt::log(message); });
  }
};

}  // namespace

Status configure_logging(const LogOptions& options) {
  auto level = spdlog::level::from_str(options.level);
  // from_str answers "off" for words it does not know.
  if (level == spdlog::level::off && options.level != "off")
    return bad_input(fmt::format("--log-level: found '{}', allowed are trace, debug, info, warn, error, off", options.level));
  spdlog::sink_ptr sink;
  if (!options.file.empty()) {
    // spdlog would make the folders that are missing.
    if (auto status = OutputFile::check(options.file); !status)
      return bad_input(fmt::format("--log-file {}", status.error().message));
    try {
      sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(options.file, false);
    } catch (const spdlog::spdlog_ex& error) {
      return bad_input(fmt::format("--log-file {}: {}", options.file, error.what()));
    }
  } else if (isatty(STDERR_FILENO)) {
    sink = std::make_shared<TerminalSink>();
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_color_sink_mt>(spdlog::color_mode::never);
  }
  auto logger = std::make_shared<spdlog::logger>("quintet", sink);
  logger->set_level(level);
  auto formatter = std::make_unique<spdlog::pattern_formatter>();
  formatter->add_flag<SafePayload>('v').set_pattern(options.file.empty() ? "%^%l%$ %v"
                                                                         : "%Y-%m-%dT%H:%M:%S.%f %l %v");
  logger->set_formatter(std::move(formatter));
  logger->flush_on(spdlog::level::warn);
  spdlog::set_default_logger(std::move(logger));
  return {};
}

}  // namespace quintet
