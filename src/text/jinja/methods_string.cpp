// The methods of Python's str that change, cut or join text.
#include "text/jinja/methods_string.h"

#include <algorithm>

#include "text/jinja/unicode.h"

namespace quintet::jinja {
namespace {

/// A result of a method: Markup stays Markup.
Value same(Interpreter& in, const Value& self, std::string text) {
  return in.string(std::move(text), self.string().markup);
}

/// An argument that becomes part of Markup is escaped where it is plain.
std::string joined(const Value& self, const Value& part) {
  return self.string().markup && !part.string().markup ? escape_html(part.text()) : std::string(part.text());
}

std::string_view strip_set(std::string_view text, std::string_view set, bool left, bool right) {
  std::u32string members;
  for (size_t at = 0; at < set.size();) members += next_code_point(set, at);
  auto in_set = [&](char32_t c) { return members.find(c) != std::u32string::npos; };
  while (left && !text.empty()) {
    size_t at = 0;
    if (!in_set(next_code_point(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    size_t at = text.size();
    if (!in_set(previous_code_point(text, at))) break;
    text = text.substr(0, at);
  }
  return text;
}

template <bool left, bool right>
Value strip(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("strip", args, {"/chars"});
  return strip_text(in, self, bound[0], left, right);
}

template <bool right>
Value split(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound(right ? "rsplit" : "split", args, {"sep", "maxsplit"});
  int64_t limit = bound.integer(1, -1);
  std::string_view text = self.text();
  in.heap().spend_bytes(text.size() * (right ? 4 : 2));
  std::vector<std::string_view> parts;
  auto more = [&] { return limit < 0 || static_cast<int64_t>(parts.size()) < limit; };
  if (bound.some(0) == nullptr) {
    std::string_view rest = strip_space(text, !right, right);
    while (!rest.empty() && more()) {
      size_t at = right ? rest.size() : 0, word = at;
      while (right ? word > 0 : word < rest.size()) {
        size_t next = word;
        if (is_space(right ? previous_code_point(rest, next) : next_code_point(rest, next))) break;
        word = next;
      }
      parts.push_back(right ? rest.substr(word) : rest.substr(0, word));
      rest = right ? strip_space(rest.substr(0, word), false, true)
                   : strip_space(rest.substr(word), true, false);
      at = word;
    }
    if (!rest.empty()) parts.push_back(rest);
  } else {
    std::string_view separator = bound.text(0);
    if (separator.empty()) fail("empty separator");
    while (more()) {
      size_t at = right ? rfind_text(text, separator) : find_text(text, separator);
      if (at == std::string_view::npos) break;
      parts.push_back(right ? text.substr(at + separator.size()) : text.substr(0, at));
      text = right ? text.substr(0, at) : text.substr(at + separator.size());
    }
    parts.push_back(text);
  }
  if (right) std::reverse(parts.begin(), parts.end());
  std::vector<Value> items;
  items.reserve(parts.size());
  for (std::string_view part : parts) items.push_back(same(in, self, std::string(part)));
  in.heap().spend(static_cast<int64_t>(items.size()));
  return in.heap().list(std::move(items));
}

Value splitlines(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("splitlines", args, {"keepends"});
  std::vector<Value> lines;
  for (std::string_view line : split_lines(self.text(), bound.truth(0, false))) {
    in.heap().spend(1);
    lines.push_back(same(in, self, std::string(line)));
  }
  return in.heap().list(std::move(lines));
}

template <bool right>
Value partition(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("partition", args, {"/sep"}, 1);
  std::string_view text = self.text(), separator = bound.text(0);
  if (separator.empty()) fail("empty separator");
  in.heap().spend_bytes(text.size());
  size_t at = right ? rfind_text(text, separator) : find_text(text, separator);
  std::string_view before = text, middle, after;
  if (at != std::string_view::npos) {
    before = text.substr(0, at);
    middle = separator;
    after = text.substr(at + separator.size());
  } else if (right) {
    std::swap(before, after);
  }
  return in.heap().tuple({same(in, self, std::string(before)), same(in, self, std::string(middle)),
                          same(in, self, std::string(after))});
}

Value join(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("join", args, {"/iterable"}, 1);
  std::string out;
  size_t index = 0;
  for (const Value& item : in.collect(*bound[0])) {
    if (!item.is_string()) fail("sequence item {}: expected str instance, {} found", index, type_name(item));
    if (index++ > 0) out += self.text();
    out += joined(self, item);
    in.heap().check_text(out.size());
  }
  return same(in, self, std::move(out));
}

Value replace(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("replace", args, {"/old", "/new", "/count"}, 2);
  bound.text(0);
  bound.text(1);
  std::string replacement = joined(self, *bound[1]);
  return same(in, self, replace_text(in, self.text(), bound.text(0), replacement, bound.integer(2, -1)));
}

Value removeprefix(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("removeprefix", args, {"/prefix"}, 1);
  std::string_view text = self.text(), prefix = bound.text(0);
  return same(in, self, std::string(text.starts_with(prefix) ? text.substr(prefix.size()) : text));
}

Value removesuffix(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("removesuffix", args, {"/suffix"}, 1);
  std::string_view text = self.text(), suffix = bound.text(0);
  bool ends = !suffix.empty() && text.ends_with(suffix);
  return same(in, self, std::string(ends ? text.substr(0, text.size() - suffix.size()) : text));
}

Value upper(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("upper", args, {});
  in.heap().spend_bytes(self.text().size() * 4);
  return same(in, self, to_upper(self.text()));
}

Value lower(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("lower", args, {});
  in.heap().spend_bytes(self.text().size() * 4);
  return same(in, self, to_lower(self.text()));
}

Value fold(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("casefold", args, {});
  in.heap().spend_bytes(self.text().size() * 4);
  return same(in, self, casefold(self.text()));
}

Value capitalize(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("capitalize", args, {});
  return same(in, self, capitalize_text(in, self.text()));
}

Value title(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("title", args, {});
  std::string_view text = self.text();
  in.heap().spend_bytes(text.size() * 8);
  std::string out;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = next_code_point(text, at);
    if (!in_word)
      append_title(out, c);
    else
      append_lower_at(out, text, start);
    in_word = is_cased(c);
  }
  return same(in, self, std::move(out));
}

Value swapcase(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("swapcase", args, {});
  std::string_view text = self.text();
  in.heap().spend_bytes(text.size() * 8);
  std::string out;
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = next_code_point(text, at);
    if (is_upper(c))
      append_lower_at(out, text, start);
    else if (is_lower(c))
      append_upper(out, c);
    else
      append_code_point(out, c);
  }
  return same(in, self, std::move(out));
}

enum class Side { left, right, both };

template <Side side>
Value pad(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound(side == Side::both   ? "center"
              : side == Side::left ? "rjust"
                                   : "ljust",
              args, {"/width", "/fillchar"}, 1);
  std::string_view fill = bound[1] != nullptr ? bound.text(1) : " ";
  if (count_code_points(fill) != 1) fail("the fill character must be exactly one character long");
  int64_t room = bound.integer(0, 0) - self.string().length;
  if (room <= 0) return self;
  if (static_cast<uint64_t>(room) > kMaxTextBytes) in.heap().check_text(static_cast<size_t>(room));
  int64_t left = side == Side::left ? room : 0;
  if (side == Side::both) left = room / 2 + (room & bound.integer(0, 0) & 1);
  std::string out;
  for (int64_t i = 0; i < left; ++i) out += fill;
  out += self.text();
  for (int64_t i = left; i < room; ++i) out += fill;
  return same(in, self, std::move(out));
}

Value zfill(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("zfill", args, {"/width"}, 1);
  int64_t room = bound.integer(0, 0) - self.string().length;
  if (room <= 0) return self;
  in.heap().check_text(static_cast<size_t>(room));
  std::string_view text = self.text();
  size_t signs = text.starts_with('-') || text.starts_with('+') ? 1 : 0;
  return same(in, self,
              std::string(text.substr(0, signs)) + std::string(static_cast<size_t>(room), '0') +
                  std::string(text.substr(signs)));
}

Value expandtabs(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("expandtabs", args, {"tabsize"});
  int64_t size = bound.integer(0, 8);
  if (size > 4096) fail("expandtabs(): a tab size of {}; 4096 is allowed", size);
  std::string out;
  int64_t column = 0;
  for (char c : self.text()) {
    if (c == '\t') {
      int64_t spaces = size > 0 ? size - column % size : 0;
      out.append(static_cast<size_t>(spaces), ' ');
      column += spaces;
      in.heap().check_text(out.size());
    } else {
      out += c;
      if (c == '\n' || c == '\r')
        column = 0;
      else if ((static_cast<unsigned char>(c) & 0xC0) != 0x80)
        ++column;
    }
  }
  return same(in, self, std::move(out));
}

Value format(Interpreter& in, const Value& self, Arguments& args) {
  return same(in, self, format_braces(in, self.text(), args));
}

Value format_map(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("format_map", args, {"/mapping"}, 1);
  Arguments entries;
  if (!bound[0]->is(Type::dict)) fail("format_map() expects a dict, not {}", type_name(*bound[0]));
  for (const auto& [key, value] : bound[0]->dict().entries) {
    if (key.is_string()) entries.keywords.emplace_back(key.text(), value);
  }
  return same(in, self, format_braces(in, self.text(), entries));
}

}  // namespace

Value strip_text(Interpreter& in, const Value& self, const Value* chars, bool left, bool right) {
  in.heap().spend_bytes(self.text().size());
  if (chars == nullptr || chars->is_none())
    return same(in, self, std::string(strip_space(self.text(), left, right)));
  if (!chars->is_string()) fail("strip arg must be None or str, not {}", type_name(*chars));
  in.heap().spend(static_cast<int64_t>((chars->text().size() * self.text().size()) >> 6));
  return same(in, self, std::string(strip_set(self.text(), chars->text(), left, right)));
}

std::string capitalize_text(Interpreter& in, std::string_view text) {
  in.heap().spend_bytes(text.size() * 4);
  if (text.empty()) return {};
  size_t first = 0;
  std::string out;
  append_title(out, next_code_point(text, first));
  for (size_t at = first; at < text.size();) append_lower_at(out, text, at);
  return out;
}

std::vector<std::string_view> split_lines(std::string_view text, bool keep_ends) {
  std::vector<std::string_view> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    size_t end = at;
    char32_t c = next_code_point(text, at);
    bool breaks =
        (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!breaks) continue;
    if (c == '\r' && at < text.size() && text[at] == '\n') ++at;
    lines.push_back(text.substr(begin, (keep_ends ? at : end) - begin));
    begin = at;
  }
  if (begin < text.size()) lines.push_back(text.substr(begin));
  return lines;
}

std::string replace_text(Interpreter& in, std::string_view text, std::string_view old, std::string_view with,
                         int64_t count) {
  in.heap().spend_bytes(text.size() * 2);
  std::string out;
  auto grow = [&](std::string_view piece) {
    out += piece;
    in.heap().check_text(out.size());
  };
  size_t at = 0;
  if (old.empty()) {
    while (count != 0) {
      if (count > 0) --count;
      in.heap().spend(1);
      grow(with);
      if (at >= text.size()) return out;
      size_t start = at;
      next_code_point(text, at);
      grow(text.substr(start, at - start));
    }
  } else {
    while (count != 0) {
      size_t found = find_text(text, old, at);
      if (found == std::string_view::npos) break;
      if (count > 0) --count;
      grow(text.substr(at, found - at));
      grow(with);
      at = found + old.size();
    }
  }
  grow(text.substr(at));
  return out;
}

const std::vector<MethodEntry>& string_methods() {
  // Names without a function exist in Python, but are refused here when they are called.
  static const std::vector<MethodEntry> methods = [] {
    std::vector<MethodEntry> all = {
        {"capitalize", capitalize},
        {"casefold", fold},
        {"center", pad<Side::both>},
        {"encode", nullptr},
        {"expandtabs", expandtabs},
        {"format", format},
        {"format_map", format_map},
        {"join", join},
        {"ljust", pad<Side::right>},
        {"lower", lower},
        {"lstrip", strip<true, false>},
        {"maketrans", nullptr},
        {"partition", partition<false>},
        {"removeprefix", removeprefix},
        {"removesuffix", removesuffix},
        {"replace", replace},
        {"rjust", pad<Side::left>},
        {"rpartition", partition<true>},
        {"rsplit", split<true>},
        {"rstrip", strip<false, true>},
        {"split", split<false>},
        {"splitlines", splitlines},
        {"strip", strip<true, true>},
        {"swapcase", swapcase},
        {"title", title},
        {"translate", nullptr},
        {"upper", upper},
        {"zfill", zfill},
    };
    for (const MethodEntry& entry : string_queries()) all.push_back(entry);
    std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    return all;
  }();
  return methods;
}

}  // namespace quintet::jinja
