// The methods of Python's str that ask and search.
#include <algorithm>

#include "text/jinja/methods_string.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {
namespace {

/// The part of a text between the code points `start` and `end`, clipped as Python clips them.
struct Region {
  std::string_view text;
  int64_t offset = 0;  ///< code points before it
  bool valid = true;   ///< false where start lies behind end: then nothing is found, not even ""
};

Region region(Interpreter& in, const Value& self, const Bound& bound, size_t start_at) {
  int64_t length = self.string().length;
  auto clip = [&](size_t i, int64_t otherwise) {
    if (bound.some(i) == nullptr) return otherwise;
    int64_t at = bound.integer(i, 0);
    return at < 0 ? std::max<int64_t>(at + length, 0) : at;
  };
  int64_t start = clip(start_at, 0), end = std::min(clip(start_at + 1, length), length);
  if (start > end) return {{}, 0, false};
  std::string_view text = self.text();
  in.heap().spend_bytes(text.size());
  if (self.string().ascii())
    return {text.substr(static_cast<size_t>(start), static_cast<size_t>(end - start)), start, true};
  size_t from = byte_of_code_point(text, start);
  return {text.substr(from, byte_of_code_point(text.substr(from), end - start)), start, true};
}

int64_t find_in(Interpreter& in, const Value& self, const Bound& bound, bool from_right) {
  std::string_view what = bound.text(0);
  Region r = region(in, self, bound, 1);
  if (!r.valid) return -1;
  if (from_right) in.heap().spend_bytes(r.text.size() * 4);
  size_t at = from_right ? rfind_text(r.text, what) : find_text(r.text, what);
  return at == std::string_view::npos ? -1 : r.offset + count_code_points(r.text.substr(0, at));
}

template <bool from_right>
Value find(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound(from_right ? "rfind" : "find", args, {"/sub", "/start", "/end"}, 1);
  return Value::integer(find_in(in, self, bound, from_right));
}

template <bool from_right>
Value index(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound(from_right ? "rindex" : "index", args, {"/sub", "/start", "/end"}, 1);
  int64_t at = find_in(in, self, bound, from_right);
  if (at < 0) fail("substring not found");
  return Value::integer(at);
}

Value count(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("count", args, {"/sub", "/start", "/end"}, 1);
  std::string_view what = bound.text(0);
  Region r = region(in, self, bound, 1);
  if (!r.valid) return Value::integer(0);
  if (what.empty()) return Value::integer(count_code_points(r.text) + 1);
  int64_t n = 0;
  for (size_t at = find_text(r.text, what); at != std::string_view::npos;
       at = find_text(r.text, what, at + what.size())) {
    ++n;
  }
  return Value::integer(n);
}

template <bool ends>
Value starts_or_ends(Interpreter& in, const Value& self, Arguments& args) {
  std::string_view name = ends ? "endswith" : "startswith";
  Bound bound(name, args, {"/prefix", "/start", "/end"}, 1);
  Region r = region(in, self, bound, 1);
  auto matches = [&](const Value& v) {
    if (!v.is_string()) fail("{} first arg must be str or a tuple of str, not {}", name, type_name(v));
    return r.valid && (ends ? r.text.ends_with(v.text()) : r.text.starts_with(v.text()));
  };
  if (!bound[0]->is(Type::tuple)) return Value::boolean(matches(*bound[0]));
  for (const Value& v : bound[0]->items()) {
    if (matches(v)) return Value::boolean(true);
  }
  return Value::boolean(false);
}

/// Whether the text is not empty and a property holds for all of its characters.
template <bool (*property)(char32_t)>
Value all_are(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("is...", args, {});
  std::string_view text = self.text();
  in.heap().spend_bytes(text.size() * 4);
  for (size_t at = 0; at < text.size();) {
    if (!property(next_code_point(text, at))) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

bool is_alphanumeric(char32_t c) { return is_alpha(c) || is_decimal(c) || is_digit(c) || is_numeric(c); }

Value isprintable(Interpreter& in, const Value& self, Arguments& args) {
  if (self.text().empty()) return Value::boolean(true);
  return all_are<is_printable>(in, self, args);
}

Value isascii(Interpreter&, const Value& self, Arguments& args) {
  Bound bound("isascii", args, {});
  return Value::boolean(self.string().ascii());
}

Value islower(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("islower", args, {});
  in.heap().spend_bytes(self.text().size() * 4);
  return Value::boolean(is_lower_text(self.text()));
}

Value isupper(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("isupper", args, {});
  in.heap().spend_bytes(self.text().size() * 4);
  return Value::boolean(is_upper_text(self.text()));
}

Value istitle(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("istitle", args, {});
  std::string_view text = self.text();
  in.heap().spend_bytes(text.size() * 4);
  bool cased = false, before = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = next_code_point(text, at);
    if (is_upper(c) || is_title(c)) {
      if (before) return Value::boolean(false);
      cased = before = true;
    } else if (is_lower(c)) {
      if (!before) return Value::boolean(false);
      cased = before = true;
    } else {
      before = false;
    }
  }
  return Value::boolean(cased);
}

Value isidentifier(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("isidentifier", args, {});
  std::string_view text = self.text();
  in.heap().spend_bytes(text.size() * 4);
  for (size_t at = 0; at < text.size();) {
    bool first = at == 0;
    char32_t c = next_code_point(text, at);
    if (first ? !is_identifier_start(c) : !is_identifier_part(c)) return Value::boolean(false);
  }
  return Value::boolean(!text.empty());
}

}  // namespace

bool is_lower_text(std::string_view text) {
  bool cased = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = next_code_point(text, at);
    if (is_upper(c) || is_title(c)) return false;
    cased |= is_lower(c);
  }
  return cased;
}

bool is_upper_text(std::string_view text) {
  bool cased = false;
  for (size_t at = 0; at < text.size();) {
    char32_t c = next_code_point(text, at);
    if (is_lower(c) || is_title(c)) return false;
    cased |= is_upper(c);
  }
  return cased;
}

std::vector<MethodEntry> string_queries() {
  return {
      {"count", count},
      {"endswith", starts_or_ends<true>},
      {"find", find<false>},
      {"index", index<false>},
      {"isalnum", all_are<is_alphanumeric>},
      {"isalpha", all_are<is_alpha>},
      {"isascii", isascii},
      {"isdecimal", all_are<is_decimal>},
      {"isdigit", all_are<is_digit>},
      {"isidentifier", isidentifier},
      {"islower", islower},
      {"isnumeric", all_are<is_numeric>},
      {"isprintable", isprintable},
      {"isspace", all_are<is_space>},
      {"istitle", istitle},
      {"isupper", isupper},
      {"rfind", find<true>},
      {"rindex", index<true>},
      {"startswith", starts_or_ends<false>},
  };
}

}  // namespace quintet::jinja
