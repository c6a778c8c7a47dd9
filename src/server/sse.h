// Server-sent events (WHATWG HTML, 9.2), as OpenAI streams use them.
#pragma once

#include <string>
#include <string_view>

namespace quintet {

/// One event. `data` may span lines.
std::string sse_event(std::string_view data);
/// The event that ends a stream.
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
/// A comment, which clients skip: it keeps proxies from closing a connection that waits.
inline constexpr std::string_view kSseKeepAlive = ": waiting\n\n";

}  // namespace quintet
