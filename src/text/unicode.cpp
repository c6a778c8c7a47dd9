// UTF-8, character classes and normal forms, over utf8proc's tables and the additions of later Unicode
// versions.
#include "text/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/check.h"

namespace quintet {
namespace {

struct Addition {
  uint32_t first, last;
  const char* category;
};
constexpr Addition kAdditions[] = {
#include "text/unicode_additions.inc"
};

struct Range {
  uint32_t first, last;
};

// Punctuation of Unicode 9 to 14, which the table of Hugging Face tokenizers (Unicode 8) lacks; found by
// asking it.
constexpr Range kLaterPunctuation[] = {
    {0x61D, 0x61D},     {0x9FD, 0x9FD},     {0xA76, 0xA76},     {0xC77, 0xC77},     {0xC84, 0xC84},
    {0x1B7D, 0x1B7E},   {0x2E43, 0x2E4F},   {0x2E52, 0x2E5D},   {0x10EAD, 0x10EAD}, {0x10F55, 0x10F59},
    {0x10F86, 0x10F89}, {0x1144B, 0x1144F}, {0x1145A, 0x1145B}, {0x1145D, 0x1145D}, {0x11660, 0x1166C},
    {0x116B9, 0x116B9}, {0x1183B, 0x1183B}, {0x11944, 0x11946}, {0x119E2, 0x119E2}, {0x11A3F, 0x11A46},
    {0x11A9A, 0x11A9C}, {0x11A9E, 0x11AA2}, {0x11C41, 0x11C45}, {0x11C70, 0x11C71}, {0x11EF7, 0x11EF8},
    {0x11FFF, 0x11FFF}, {0x12FF1, 0x12FF2}, {0x16E97, 0x16E9A}, {0x16FE2, 0x16FE2}, {0x1E95E, 0x1E95F}};

template <class Table>
const auto* find_range(const Table& table, uint32_t code_point) {
  const auto* at = std::upper_bound(std::begin(table), std::end(table), code_point,
                                    [](uint32_t value, const auto& range) { return value < range.first; });
  if (at == std::begin(table) || code_point > (at - 1)->last) return static_cast<decltype(at)>(nullptr);
  return at - 1;
}

const char* general_category(uint32_t code_point) {
  if (const Addition* addition = find_range(kAdditions, code_point)) return addition->category;
  return utf8proc_category_string(static_cast<utf8proc_int32_t>(code_point));
}

bool is_continuation(uint8_t byte) { return (byte & 0xC0) == 0x80; }

/// NFC leaves every text made of these alone: no combining mark, nothing that composes, nothing that
/// decomposes.
bool is_plain_for_nfc(uint32_t code_point) {
  return code_point < 0x300 || (code_point >= 0x4E00 && code_point <= 0x9FFF) ||
         (code_point >= 0xAC00 && code_point <= 0xD7A3) ||  // composed Hangul; the parts are not in this set
         (code_point >= 0x3000 && code_point <= 0x3098) || (code_point >= 0x30A0 && code_point <= 0x30FF) ||
         (code_point >= 0x400 && code_point <= 0x482) || (code_point >= 0x2010 && code_point <= 0x2027) ||
         (code_point >= 0xFF00 && code_point <= 0xFFEF) || (code_point >= 0x1F000 && code_point <= 0x1FAFF);
}

bool is_unchanged(std::string_view text, NormalForm form) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    if (form != NormalForm::nfc) return false;
    const Utf8Char character = decode_utf8(text, at);
    if (!is_plain_for_nfc(character.code_point)) return false;
    at += character.bytes;
  }
  return true;
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> uint32_t { return static_cast<uint8_t>(text[at + i]); };
  const uint32_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

Utf8Part next_utf8_part(std::string_view text, size_t at) {
  const auto lead = static_cast<uint8_t>(text[at]);
  if (lead < 0x80) return {1, true, false};
  uint32_t length = 0;
  uint8_t low = 0x80, high = 0xBF;  // what the second byte may be (Unicode 16, table 3-7)
  if (lead >= 0xC2 && lead <= 0xDF) {
    length = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    length = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    length = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {1, false, false};
  }
  for (uint32_t i = 1; i < length; ++i) {
    if (at + i >= text.size()) return {i, false, true};
    const auto byte = static_cast<uint8_t>(text[at + i]);
    if (i == 1 ? byte < low || byte > high : !is_continuation(byte)) return {i, false, false};
  }
  return {length, true, false};
}

bool is_valid_utf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    if (static_cast<uint8_t>(text[at]) < 0x80) {
      ++at;
      continue;
    }
    const Utf8Part part = next_utf8_part(text, at);
    if (!part.valid) return false;
    at += part.bytes;
  }
  return true;
}

std::string sanitize_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Part part = next_utf8_part(text, at);
    if (part.valid) {
      out.append(text, at, part.bytes);
    } else {
      append_utf8(out, kReplacementCharacter);
    }
    at += part.bytes;
  }
  return out;
}

void append_utf8(std::string& out, uint32_t code_point) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | code_point >> 6);
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | code_point >> 12);
    out += static_cast<char>(0x80 | (code_point >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | code_point >> 18);
    out += static_cast<char>(0x80 | (code_point >> 12 & 0x3F));
    out += static_cast<char>(0x80 | (code_point >> 6 & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  }
}

bool is_unicode_space(uint32_t c) {
  return (c >= 9 && c <= 13) || c == 32 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

bool is_unicode_number(uint32_t code_point) {
  if (code_point < 0x80) return code_point >= '0' && code_point <= '9';
  return general_category(code_point)[0] == 'N';
}

bool is_punctuation(uint32_t code_point) {
  if (code_point < 0x80) {
    return (code_point >= 33 && code_point <= 47) || (code_point >= 58 && code_point <= 64) ||
           (code_point >= 91 && code_point <= 96) || (code_point >= 123 && code_point <= 126);
  }
  if (code_point == 0x166D || code_point == 0x111C9) return true;  // were punctuation in Unicode 8
  return general_category(code_point)[0] == 'P' && find_range(kLaterPunctuation, code_point) == nullptr &&
         find_range(kAdditions, code_point) == nullptr;
}

bool is_word_character(uint32_t code_point) {
  const char* category = general_category(code_point);
  if (category[0] == 'L' || category[0] == 'M') return true;
  if (category[0] == 'N') return category[1] != 'o';
  return (category[0] == 'P' && category[1] == 'c') || code_point == 0x200C || code_point == 0x200D ||
         (code_point >= 0x24B6 && code_point <= 0x24E9) || (code_point >= 0x1F130 && code_point <= 0x1F149) ||
         (code_point >= 0x1F150 && code_point <= 0x1F169) || (code_point >= 0x1F170 && code_point <= 0x1F189);
}

std::string normalize_unicode(std::string_view text, NormalForm form) {
  if (is_unchanged(text, form)) return std::string(text);
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
                                                      (compatible ? UTF8PROC_COMPAT : 0));
  // utf8proc's own utf8proc_decompose() puts marks in order by a sort that is quadratic in their number; so
  // the characters are decomposed one by one and sorted here.
  std::vector<utf8proc_int32_t> points;
  points.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char character = decode_utf8(text, at);
    at += character.bytes;
    utf8proc_int32_t parts[32];  // the longest decomposition, of U+FDFA, has 18
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(character.code_point), parts,
                                               std::size(parts), options, &boundary);
    QUINTET_CHECK(count >= 0 && count <= static_cast<utf8proc_ssize_t>(std::size(parts)),
                  "decomposing U+{:04X} gave {}", character.code_point, count);
    points.insert(points.end(), parts, parts + count);
  }
  const auto combining = [](utf8proc_int32_t point) {
    // Hugging Face's normalizer knows Unicode 11: this mark of Unicode 12 stays where it was written, and models were
    // trained on texts normalized so.
    constexpr utf8proc_int32_t kLaoPaliVirama = 0xEBA;
    return point == kLaoPaliVirama ? 0 : utf8proc_get_property(point)->combining_class;
  };
  for (size_t at = 0; at < points.size();) {
    if (points[at] < 0x300 || combining(points[at]) == 0) {
      ++at;
      continue;
    }
    size_t end = at;
    while (end < points.size() && combining(points[end]) != 0) ++end;
    std::stable_sort(points.begin() + static_cast<ptrdiff_t>(at),
                     points.begin() + static_cast<ptrdiff_t>(end),
                     [&](auto a, auto b) { return combining(a) < combining(b); });
    at = end;
  }
  if (compose) {
    const auto length =
        utf8proc_normalize_utf32(points.data(), static_cast<utf8proc_ssize_t>(points.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    QUINTET_CHECK(length >= 0, "utf8proc refused to compose: {}", length);
    points.resize(static_cast<size_t>(length));
  }
  std::string out;
  out.reserve(text.size());
  for (const auto point : points) append_utf8(out, static_cast<uint32_t>(point));
  return out;
}

std::string lowercase_unicode(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char character = decode_utf8(text, at);
    at += character.bytes;
    if (character.code_point == 0x130) {  // the only letter whose lower case is two characters
      out += "i\u0307";
    } else {
      append_utf8(
          out, static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character.code_point))));
    }
  }
  return out;
}

std::vector<uint32_t> grapheme_ends(std::string_view text) {
  std::vector<uint32_t> ends;
  utf8proc_int32_t state = 0, previous = -1;
  for (size_t at = 0; at < text.size();) {
    const Utf8Char character = decode_utf8(text, at);
    const auto point = static_cast<utf8proc_int32_t>(character.code_point);
    if (previous >= 0 && utf8proc_grapheme_break_stateful(previous, point, &state)) {
      ends.push_back(static_cast<uint32_t>(at));
    }
    previous = point;
    at += character.bytes;
  }
  if (!text.empty()) ends.push_back(static_cast<uint32_t>(text.size()));
  return ends;
}

std::string unicode_additions_class(std::string_view category) {
  std::string out;
  for (const Addition& addition : kAdditions) {
    if (!std::string_view(addition.category).starts_with(category)) continue;
    out += fmt::format("\\x{{{:X}}}-\\x{{{:X}}}", addition.first, addition.last);
  }
  return out;
}

}  // namespace quintet
