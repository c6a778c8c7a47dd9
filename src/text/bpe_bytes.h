// The stand-in characters by which byte-level vocabularies (GPT-2) write bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quintet {

/// The code point that stands for a byte: itself where it is printable Latin-1, else 256 + its place among
/// the others.
uint32_t byte_stand_in(uint8_t byte);

/// The byte for which a code point stands.
std::optional<uint8_t> stand_in_byte(uint32_t code_point);

/// Bytes -> UTF-8 of stand-ins.
std::string to_stand_ins(std::string_view bytes);

/// Appends the bytes for which a UTF-8 text of stand-ins stands; false where a character stands for no byte
/// (or the text is no UTF-8), `out` is then of no use.
bool append_from_stand_ins(std::string_view text, std::string& out);

/// UTF-8 of stand-ins -> bytes; nothing where a character stands for no byte (or the text is no UTF-8).
std::optional<std::string> from_stand_ins(std::string_view text);

}  // namespace quintet
