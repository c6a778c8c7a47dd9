// UTF-8 and the character properties that Python's str methods go by.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quintet::jinja {

/// The byte at which text stops being valid UTF-8, if it does.
std::optional<size_t> find_invalid_utf8(std::string_view text);

/// Code points of valid UTF-8.
int64_t count_code_points(std::string_view text);
/// The code point at byte `at` of valid UTF-8; moves `at` behind it.
char32_t next_code_point(std::string_view text, size_t& at);
/// The code point that ends before byte `at`; moves `at` to its first byte.
char32_t previous_code_point(std::string_view text, size_t& at);
void append_code_point(std::string& out, char32_t c);
/// The byte where the index-th code point starts; the size where there are fewer.
size_t byte_of_code_point(std::string_view text, int64_t index);

bool is_space(char32_t c);      ///< str.isspace, and \s of the pattern language
bool is_printable(char32_t c);  ///< str.isprintable: what repr() leaves as it is
bool is_alpha(char32_t c);
bool is_decimal(char32_t c);
bool is_digit(char32_t c);
bool is_numeric(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_title(char32_t c);
bool is_cased(char32_t c);
bool is_identifier_start(char32_t c);
bool is_identifier_part(char32_t c);
int decimal_value(char32_t c);  ///< 0-9 of a decimal digit of any script, else -1

/// Full case mappings: one code point can become up to three.
void append_upper(std::string& out, char32_t c);
void append_lower(std::string& out, char32_t c);
void append_title(std::string& out, char32_t c);
/// The lower case of the code point at byte `at`, which moves behind it; the final sigma looks at its
/// neighbours.
void append_lower_at(std::string& out, std::string_view text, size_t& at);
std::string to_upper(std::string_view text);
std::string to_lower(std::string_view text);  ///< with the final sigma
std::string casefold(std::string_view text);

/// find and rfind in time linear in the text, whatever the two are.
size_t find_text(std::string_view text, std::string_view what, size_t from = 0);
size_t rfind_text(std::string_view text, std::string_view what);

std::string_view strip_space(std::string_view text, bool left = true, bool right = true);

}  // namespace quintet::jinja
