// Formats events: each line of the data gets its field name.
#include "server/sse.h"

namespace quintet {

std::string sse_event(std::string_view data) {
  std::string event;
  event.reserve(data.size() + 8);
  for (;;) {
    // CR, LF and CRLF end a line for the reader, so none may go out inside one.
    const size_t end = data.find_first_of("\r\n");
    event += "data: ";
    event += data.substr(0, end);
    event += '\n';
    if (end == std::string_view::npos) break;
    data.remove_prefix(end + (data.substr(end).starts_with("\r\n") ? 2 : 1));
  }
  event += '\n';
  return event;
}

}  // namespace quintet
