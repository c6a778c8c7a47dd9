// What a server may be told, checked before a model is loaded for it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "server/server.h"

namespace quintet {

/// Errors name the flag: a model id that a log line or a header could not hold, an origin that is none.
Status check_server_options(const ServerOptions& options);

/// "host:port" as URLs write it: an IPv6 address in brackets.
std::string authority(std::string_view host, uint16_t port);

}  // namespace quintet
