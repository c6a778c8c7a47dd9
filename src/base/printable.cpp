// Escapes and cuts.
#include "base/printable.h"

#include <fmt/format.h>

namespace quintet {

namespace {

/// Length of the valid UTF-8 character of two to four bytes at the start of `text`, 0 where there is none.
size_t utf8_length(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  const size_t length = lead >= 0xF0 && lead <= 0xF4  ? 4
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xC2 && lead < 0xE0 ? 2
                                                      : 0;
  if (length == 0 || text.size() < length) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const bool overlong = (lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xF0 && byte(1) < 0x90);
  const bool surrogate_or_beyond = (lead == 0xED && byte(1) >= 0xA0) || (lead == 0xF4 && byte(1) >= 0x90);
  const bool control = lead == 0xC2 && byte(1) < 0xA0;
  return overlong || surrogate_or_beyond || control ? 0 : length;
}

}  // namespace

std::string one_line(std::string_view text, size_t limit_bytes) {
  std::string out;
  size_t i = 0;
  while (i < text.size() && i < limit_bytes) {
    const auto byte = static_cast<uint8_t>(text[i]);
    size_t taken = 1;
    if (byte >= 0x20 && byte < 0x7F) {
      out += text[i];
    } else if (byte == '\n') {
      out += "\\n";
    } else if (byte == '\t') {
      out += "\\t";
    } else if (const size_t length = byte < 0x80 ? 0 : utf8_length(text.substr(i)); length > 0) {
      out += text.substr(i, length);
      taken = length;
    } else {
      out += fmt::format("\\x{:02x}", byte);
    }
    i += taken;
  }
  if (i < text.size()) out += "...";
  return out;
}

std::string printable(std::string_view text, size_t limit_bytes) {
  std::string out = "'" + one_line(text, limit_bytes);
  const bool cut = text.size() > limit_bytes && out.ends_with("...");
  if (!cut) return out + "'";
  out.insert(out.size() - 3, "'");
  return out;
}

}  // namespace quintet
