// UTF-8, character classes and normal forms, by Unicode 16 (the version of Hugging Face tokenizers' pattern
// engine).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quintet {

/// A code point and how many bytes it took.
struct Utf8Char {
  uint32_t code_point = 0;
  uint32_t bytes = 0;
};

inline constexpr uint32_t kReplacementCharacter = 0xFFFD;

/// Decodes the character at `at` < text.size(). The text must be valid UTF-8.
Utf8Char decode_utf8(std::string_view text, size_t at);

/// How many bytes from `at` on make one character (`valid`), or one maximal part of a broken one, to be
/// replaced by one U+FFFD (Unicode 16, section 3.9). `incomplete`: the text ended where more bytes could
/// still have completed it.
struct Utf8Part {
  uint32_t bytes = 0;
  bool valid = false;
  bool incomplete = false;
};
Utf8Part next_utf8_part(std::string_view text, size_t at);

bool is_valid_utf8(std::string_view text);

/// Each maximal broken part becomes U+FFFD.
std::string sanitize_utf8(std::string_view text);

void append_utf8(std::string& out, uint32_t code_point);

/// White_Space.
bool is_unicode_space(uint32_t code_point);
/// General category N.
bool is_unicode_number(uint32_t code_point);
/// ASCII punctuation and symbols, and category P as the table of Hugging Face tokenizers (Unicode 8) has it.
bool is_punctuation(uint32_t code_point);
/// What \w means at the edge of a single_word token: letters, marks, numbers and connectors.
bool is_word_character(uint32_t code_point);

enum class NormalForm : uint8_t { nfc, nfd, nfkc, nfkd };

/// Linear time, but for sorting runs of combining marks (n log n). `text` must be valid UTF-8.
std::string normalize_unicode(std::string_view text, NormalForm form);

/// Full lower case as Rust's str::to_lowercase but for the final sigma, which becomes a plain one.
std::string lowercase_unicode(std::string_view text);

/// Ends of the extended grapheme clusters of valid UTF-8, in bytes.
std::vector<uint32_t> grapheme_ends(std::string_view text);

/// Extra members that Unicode 15 and 16 gave to a category ("L", "Lu", "N", ...) after Unicode 14, as the
/// inside of a character class ("\x{1C89}\x{1C8A}..."): PCRE2 10.42 knows Unicode 14.
std::string unicode_additions_class(std::string_view category);

}  // namespace quintet
