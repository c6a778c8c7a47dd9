// UTF-8, and character properties over utf8proc and our own tables.
#include "text/jinja/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <vector>

#include "text/jinja/unicode_tables.h"

namespace quintet::jinja {
namespace {

template <size_t N>
bool in_ranges(const CodePointRange (&ranges)[N], char32_t c) {
  auto at = std::lower_bound(std::begin(ranges), std::end(ranges), c,
                             [](const CodePointRange& r, char32_t x) { return r.last < x; });
  return at != std::end(ranges) && at->first <= c;
}

const SpecialCase* find_special(char32_t c) {
  auto at = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), c,
                             [](const SpecialCase& s, char32_t x) { return s.code_point < x; });
  return at != std::end(kSpecialCases) && at->code_point == c ? at : nullptr;
}

void append_all(std::string& out, const uint32_t (&code_points)[3]) {
  for (uint32_t c : code_points) {
    if (c != 0) append_code_point(out, c);
  }
}

utf8proc_category_t category(char32_t c) { return utf8proc_category(static_cast<utf8proc_int32_t>(c)); }

/// Case_Ignorable, near enough for the final sigma: marks, format characters, modifiers and a few signs.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: break;
  }
  return c == '\'' || c == '.' || c == ':' || c == 0xB7 || c == 0x387 || c == 0x2018 || c == 0x2019 ||
         c == 0x2024 || c == 0x2027;
}

/// Whether the capital sigma at [at, end) ends a word: a cased letter before it and none behind.
bool is_final_sigma(std::string_view text, size_t at, size_t end) {
  size_t i = at;
  bool cased_before = false;
  while (i > 0) {
    char32_t c = previous_code_point(text, i);
    if (is_case_ignorable(c)) continue;
    cased_before = is_cased(c);
    break;
  }
  if (!cased_before) return false;
  for (i = end; i < text.size();) {
    char32_t c = next_code_point(text, i);
    if (!is_case_ignorable(c)) return !is_cased(c);
  }
  return true;
}

}  // namespace

std::optional<size_t> find_invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    auto lead = static_cast<unsigned char>(text[i]);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                    : lead >= 0xE0 && lead < 0xF0 ? 3
                    : lead >= 0xF0 && lead < 0xF5 ? 4
                                                  : 0;
    if (length == 0 || text.size() - i < length) return i;
    for (size_t k = 1; k < length; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xC0) != 0x80) return i;
    }
    auto second = static_cast<unsigned char>(text[i + 1]);
    bool overlong_or_surrogate = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second >= 0xA0) ||
                                 (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second >= 0x90);
    if (overlong_or_surrogate) return i;
    i += length;
  }
  return std::nullopt;
}

int64_t count_code_points(std::string_view text) {
  int64_t count = 0;
  for (char c : text) count += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return count;
}

char32_t next_code_point(std::string_view text, size_t& at) {
  auto byte = [&](size_t i) { return static_cast<char32_t>(static_cast<unsigned char>(text[i])); };
  char32_t lead = byte(at);
  if (lead < 0x80) return ++at, lead;
  if (lead < 0xE0) return at += 2, (lead & 0x1F) << 6 | (byte(at - 1) & 0x3F);
  if (lead < 0xF0) return at += 3, (lead & 0x0F) << 12 | (byte(at - 2) & 0x3F) << 6 | (byte(at - 1) & 0x3F);
  at += 4;
  return (lead & 0x07) << 18 | (byte(at - 3) & 0x3F) << 12 | (byte(at - 2) & 0x3F) << 6 |
         (byte(at - 1) & 0x3F);
}

char32_t previous_code_point(std::string_view text, size_t& at) {
  do --at;
  while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
  size_t end = at;
  return next_code_point(text, end);
}

void append_code_point(std::string& out, char32_t c) {
  if (c < 0x80) {
    out += static_cast<char>(c);
  } else if (c < 0x800) {
    out += static_cast<char>(0xC0 | c >> 6);
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    out += static_cast<char>(0xE0 | c >> 12);
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | c >> 18);
    out += static_cast<char>(0x80 | (c >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (c >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (c & 0x3F));
  }
}

size_t byte_of_code_point(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xC0) != 0x80 && index-- == 0) return at;
  }
  return at;
}

bool is_space(char32_t c) {
  if (c <= 0x20) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_printable(char32_t c) {
  if (c < 0x7F) return c >= 0x20;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS: return false;
    default: return true;
  }
}

bool is_alpha(char32_t c) {
  utf8proc_category_t k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}
bool is_decimal(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_digit(char32_t c) { return is_decimal(c) || in_ranges(kOtherDigit, c); }
bool is_numeric(char32_t c) {
  utf8proc_category_t k = category(c);
  return (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO) || in_ranges(kOtherNumeric, c);
}
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL || in_ranges(kOtherLower, c); }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU || in_ranges(kOtherUpper, c); }
bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }
bool is_cased(char32_t c) { return is_lower(c) || is_upper(c) || is_title(c); }

bool is_identifier_start(char32_t c) {
  return c == '_' || is_alpha(c) || category(c) == UTF8PROC_CATEGORY_NL;
}
bool is_identifier_part(char32_t c) {
  utf8proc_category_t k = category(c);
  return is_identifier_start(c) || k == UTF8PROC_CATEGORY_MN || k == UTF8PROC_CATEGORY_MC ||
         k == UTF8PROC_CATEGORY_ND || k == UTF8PROC_CATEGORY_PC;
}

int decimal_value(char32_t c) {
  if (c < 0x80) return c >= '0' && c <= '9' ? static_cast<int>(c - '0') : -1;
  if (!is_decimal(c)) return -1;
  char32_t start = c;  // decimal digits come in runs of ten, several runs may touch
  while (is_decimal(start - 1)) --start;
  return static_cast<int>((c - start) % 10);
}

void append_upper(std::string& out, char32_t c) {
  if (c < 0x80)
    out += static_cast<char>(c >= 'a' && c <= 'z' ? c - 32 : c);
  else if (const SpecialCase* special = find_special(c))
    append_all(out, special->upper);
  else
    append_code_point(out, static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c))));
}

void append_lower(std::string& out, char32_t c) {
  if (c < 0x80)
    out += static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
  else if (c == 0x130)
    out += "i\xCC\x87";  // the one whose lower case is two code points
  else
    append_code_point(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
}

void append_title(std::string& out, char32_t c) {
  if (c < 0x80)
    append_upper(out, c);
  else if (const SpecialCase* special = find_special(c))
    append_all(out, special->title);
  else
    append_code_point(out, static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c))));
}

void append_lower_at(std::string& out, std::string_view text, size_t& at) {
  size_t start = at;
  char32_t c = next_code_point(text, at);
  if (c == 0x3A3)
    append_code_point(out, is_final_sigma(text, start, at) ? 0x3C2 : 0x3C3);
  else
    append_lower(out, c);
}

std::string to_upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) append_upper(out, next_code_point(text, i));
  return out;
}

std::string to_lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) append_lower_at(out, text, i);
  return out;
}

std::string casefold(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    utf8proc_int32_t folded[8];
    auto c = static_cast<utf8proc_int32_t>(next_code_point(text, i));
    int boundary = 0;
    utf8proc_ssize_t n = utf8proc_decompose_char(c, folded, 8, UTF8PROC_CASEFOLD, &boundary);
    for (utf8proc_ssize_t k = 0; k < std::min<utf8proc_ssize_t>(n, 8); ++k) {
      append_code_point(out, static_cast<char32_t>(folded[k]));
    }
  }
  return out;
}

size_t find_text(std::string_view text, std::string_view what, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (what.empty()) return from;
  const void* found =
      memmem(text.data() + from, text.size() - from, what.data(), what.size());  // two-way: linear
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

size_t rfind_text(std::string_view text, std::string_view what) {
  constexpr size_t kShort = 16;
  if (what.size() <= kShort || what.size() > text.size()) return text.rfind(what);
  // Knuth, Morris and Pratt, from the end of both.
  auto at = [](std::string_view s, size_t i) { return s[s.size() - 1 - i]; };
  std::vector<uint32_t> border(what.size() + 1, 0);
  for (size_t i = 1, k = 0; i < what.size(); ++i) {
    while (k > 0 && at(what, i) != at(what, k)) k = border[k];
    k += at(what, i) == at(what, k);
    border[i + 1] = static_cast<uint32_t>(k);
  }
  for (size_t i = 0, k = 0; i < text.size(); ++i) {
    while (k > 0 && at(text, i) != at(what, k)) k = border[k];
    k += at(text, i) == at(what, k);
    if (k == what.size()) return text.size() - 1 - i;
  }
  return std::string_view::npos;
}

std::string_view strip_space(std::string_view text, bool left, bool right) {
  while (left && !text.empty()) {
    size_t at = 0;
    if (!is_space(next_code_point(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    size_t at = text.size();
    if (!is_space(previous_code_point(text, at))) break;
    text = text.substr(0, at);
  }
  return text;
}

}  // namespace quintet::jinja
