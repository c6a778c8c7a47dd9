// The checks: what goes into headers and log lines must not be able to end them.
#include "server/options_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/printable.h"

namespace quintet {
namespace {

constexpr size_t kMaxIdBytes = 256;

bool is_visible_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

}  // namespace

Status check_server_options(const ServerOptions& options) {
  if (options.model_alias.size() > kMaxIdBytes ||
      one_line(options.model_alias, kMaxIdBytes) != options.model_alias)
    return bad_input(
        fmt::format("--model-name: found {}, allowed are up to {} bytes of UTF-8 without control characters",
                    printable(options.model_alias), kMaxIdBytes));
  const std::string& origin = options.cors_origin;
  const bool is_origin =
      origin.empty() || origin == "*" || origin == "null" ||
      (origin.size() <= kMaxIdBytes && is_visible_ascii(origin) && origin.find("://") != origin.npos);
  if (!is_origin)
    return bad_input(
        fmt::format("--cors-origin: found {}, allowed are '*' and one origin, as 'https://example.org'",
                    printable(origin)));
  return {};
}

std::string authority(std::string_view host, uint16_t port) {
  const bool is_ipv6 = host.find(':') != host.npos && !host.starts_with('[');
  return is_ipv6 ? fmt::format("[{}]:{}", host, port) : fmt::format("{}:{}", host, port);
}

}  // namespace quintet
