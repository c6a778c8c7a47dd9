// The byte table of GPT-2: 188 printable Latin-1 bytes stand for themselves, the other 68 for U+0100 and up.
#include "text/bpe_bytes.h"

#include <array>

#include "text/unicode.h"

namespace quintet {
namespace {

constexpr bool is_printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

constexpr uint32_t kStandIns = 256 + 68;

struct Tables {
  std::array<uint16_t, 256> to{};
  std::array<int16_t, kStandIns> from{};
};

constexpr Tables make_tables() {
  Tables tables;
  for (auto& byte : tables.from) byte = -1;
  uint32_t next = 256;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const uint32_t point = is_printable(byte) ? byte : next++;
    tables.to[byte] = static_cast<uint16_t>(point);
    tables.from[point] = static_cast<int16_t>(byte);
  }
  return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

uint32_t byte_stand_in(uint8_t byte) { return kTables.to[byte]; }

std::optional<uint8_t> stand_in_byte(uint32_t code_point) {
  if (code_point >= kStandIns || kTables.from[code_point] < 0) return std::nullopt;
  return static_cast<uint8_t>(kTables.from[code_point]);
}

std::string to_stand_ins(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (const char byte : bytes) append_utf8(out, byte_stand_in(static_cast<uint8_t>(byte)));
  return out;
}

bool append_from_stand_ins(std::string_view text, std::string& out) {
  for (size_t at = 0; at < text.size();) {
    // All stand-ins have one or two bytes; this runs for every token and merge of a vocabulary.
    const auto lead = static_cast<uint8_t>(text[at]);
    uint32_t point = lead;
    if (lead < 0x80) {
      ++at;
    } else {
      if (lead < 0xC2 || lead > 0xDF || at + 1 >= text.size()) return false;
      const auto second = static_cast<uint8_t>(text[at + 1]);
      if ((second & 0xC0) != 0x80) return false;
      point = static_cast<uint32_t>(lead & 0x1F) << 6 | (second & 0x3F);
      at += 2;
    }
    if (point >= kStandIns || kTables.from[point] < 0) return false;
    out += static_cast<char>(kTables.from[point]);
  }
  return true;
}

std::optional<std::string> from_stand_ins(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (!append_from_stand_ins(text, out)) return std::nullopt;
  return out;
}

}  // namespace quintet
