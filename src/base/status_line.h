// The unfinished line at the end of a terminal's stderr (a progress bar), which every whole line must take
// away first.
#pragma once

#include <functional>
#include <string_view>

namespace quintet {

/// Draws `text` over what stands in stderr's last line. Thread-safe, as are the others.
void show_status_line(std::string_view text);
/// Takes it away, where there is one.
void clear_status_line();
/// Takes it away and runs `write`; nothing is drawn meanwhile.
void write_over_status_line(const std::function<void()>& write);

}  // namespace quintet
