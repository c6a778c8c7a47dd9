// How values print: Python's str() and repr(), and json.dumps.
#include <algorithm>
#include <charconv>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {
namespace {

void append_string_repr(std::string& out, const String& s) {
  if (s.markup) out += "Markup(";
  char quote = s.text.find('\'') != std::string::npos && s.text.find('"') == std::string::npos ? '"' : '\'';
  out += quote;
  for (size_t at = 0; at < s.text.size();) {
    size_t start = at;
    char32_t c = next_code_point(s.text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out += '\\';
      out += static_cast<char>(c);
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out.append(s.text, start, at - start);
    } else if (c < 0x100) {
      out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
    } else if (c < 0x10000) {
      out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
    } else {
      out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
    }
  }
  out += quote;
  if (s.markup) out += ')';
}

void append_json_string(std::string& out, std::string_view text, bool ensure_ascii) {
  out += '"';
  for (size_t at = 0; at < text.size();) {
    size_t start = at;
    char32_t c = next_code_point(text, at);
    switch (c) {
      case '"': out += "\\\""; continue;
      case '\\': out += "\\\\"; continue;
      case '\n': out += "\\n"; continue;
      case '\r': out += "\\r"; continue;
      case '\t': out += "\\t"; continue;
      case '\f': out += "\\f"; continue;
      case '\b': out += "\\b"; continue;
      default: break;
    }
    auto code = static_cast<uint32_t>(c);
    if (code < 0x20 || (ensure_ascii && code > 0x7E && code < 0x10000)) {
      out += fmt::format("\\u{:04x}", code);
    } else if (ensure_ascii && code >= 0x10000) {
      code -= 0x10000;
      out += fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (code >> 10), 0xDC00 + (code & 0x3FF));
    } else {
      out.append(text, start, at - start);
    }
  }
  out += '"';
}

std::string json_real(double d) {
  if (std::isnan(d)) return "NaN";
  if (std::isinf(d)) return d > 0 ? "Infinity" : "-Infinity";
  return real_repr(d);
}

/// A dict's key as JSON writes it; the same text serves the check that keys can be sorted.
std::string json_key(const Value& key) {
  switch (key.type()) {
    case Type::string: return std::string(key.text());
    case Type::none: return "null";
    case Type::boolean: return key.as_bool() ? "true" : "false";
    case Type::integer: return fmt::format("{}", key.as_int());
    case Type::big: return key.as<Big>().digits;
    case Type::real: return json_real(key.as_real());
    default: fail("keys must be str, int, float, bool or None, not {}", type_name(key));
  }
}

void check_printed(Interpreter& in, const std::string& out, int depth) {
  in.heap().spend(1);
  in.heap().check_text(out.size());
  if (depth > kMaxDataDepth) fail("values nested more than {} deep cannot be printed", kMaxDataDepth);
}

}  // namespace

std::string real_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d > 0 ? "inf" : "-inf";
  char buffer[64];
  auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, d, std::chars_format::scientific);
  std::string_view text(buffer, static_cast<size_t>(end - buffer));
  size_t e = text.find('e');
  int exponent = 0;
  std::string_view power = text.substr(e + 1);
  if (power.starts_with('+')) power.remove_prefix(1);
  std::from_chars(power.data(), power.data() + power.size(), exponent);
  std::string digits;
  bool negative = text.starts_with('-');
  for (char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits += c;
  }
  std::string out = negative ? "-" : "";
  auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  auto whole = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, whole) + "." + digits.substr(whole);
}

std::string Interpreter::str(const Value& v) {
  std::string out;
  append_str(*this, out, v);
  return out;
}

void append_str(Interpreter& in, std::string& out, const Value& v) {
  if (v.is_string()) {
    in.heap().spend_bytes(v.text().size());
    out += v.text();
  } else if (!v.is_undefined()) {
    append_repr(in, out, v);
  }
}

void append_repr(Interpreter& in, std::string& out, const Value& v, int depth) {
  check_printed(in, out, depth);
  auto append_items = [&](const std::vector<Value>& items) {
    for (size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out += ", ";
      append_repr(in, out, items[i], depth + 1);
    }
  };
  switch (v.type()) {
    case Type::none: out += "None"; return;
    case Type::boolean: out += v.as_bool() ? "True" : "False"; return;
    case Type::integer: out += fmt::format("{}", v.as_int()); return;
    case Type::big: out += v.as<Big>().digits; return;
    case Type::real: out += real_repr(v.as_real()); return;
    case Type::undefined: out += "Undefined"; return;
    case Type::string:
      in.heap().spend_bytes(v.text().size() * 4);
      append_string_repr(out, v.string());
      in.heap().check_text(out.size());
      return;
    case Type::list:
      out += '[';
      append_items(v.items());
      out += ']';
      return;
    case Type::tuple:
      out += '(';
      append_items(v.items());
      out += v.items().size() == 1 ? ",)" : ")";
      return;
    case Type::dict: {
      out += '{';
      bool first = true;
      for (const auto& [key, value] : v.dict().entries) {
        if (!first) out += ", ";
        first = false;
        append_repr(in, out, key, depth + 1);
        out += ": ";
        append_repr(in, out, value, depth + 1);
      }
      out += '}';
      return;
    }
    case Type::range: {
      const Range& r = v.as<Range>();
      out += r.step == 1 ? fmt::format("range({}, {})", r.start, r.stop)
                         : fmt::format("range({}, {}, {})", r.start, r.stop, r.step);
      return;
    }
    case Type::view:
      out += fmt::format("{}([", type_name(v));
      append_items(in.collect(v));
      out += "])";
      return;
    case Type::space: {
      out += "<Namespace {";
      bool first = true;
      for (const auto& [name, value] : v.as<Namespace>().attributes) {
        if (!first) out += ", ";
        first = false;
        append_repr(in, out, in.string(name), depth + 1);
        out += ": ";
        append_repr(in, out, value, depth + 1);
      }
      out += "}>";
      return;
    }
    case Type::macro: {
      const std::string& name = v.as<Macro>().def->text;
      out += name.empty() ? "<Macro anonymous>" : fmt::format("<Macro '{}'>", name);
      return;
    }
    case Type::loop: {
      const Loop& loop = v.as<Loop>();
      out += fmt::format("<LoopContext {}/{}>", loop.index0 + 1, in.attribute(v, "length").as_int());
      return;
    }
    case Type::function: out += fmt::format("<function {}>", v.as<Function>().name); return;
    case Type::method:
      out += fmt::format("<built-in method {} of {} object>", v.as<Method>().name,
                         type_name(v.as<Method>().self));
      return;
    case Type::iterator: out += fmt::format("<{} object>", v.as<Iterator>().type_name); return;
    case Type::frame: return;
  }
}

void append_json(Interpreter& in, std::string& out, const Value& v, const JsonOptions& options, int depth) {
  check_printed(in, out, depth);
  auto new_line = [&](int levels) {
    if (!options.has_indent) return;
    out += '\n';
    for (int i = 0; i < levels; ++i) out += options.indent;
    in.heap().check_text(out.size());
  };
  switch (v.type()) {
    case Type::none: out += "null"; return;
    case Type::boolean: out += v.as_bool() ? "true" : "false"; return;
    case Type::integer: out += fmt::format("{}", v.as_int()); return;
    case Type::big: out += v.as<Big>().digits; return;
    case Type::real: out += json_real(v.as_real()); return;
    case Type::string:
      in.heap().spend_bytes(v.text().size() * 4);
      append_json_string(out, v.text(), options.ensure_ascii);
      in.heap().check_text(out.size());
      return;
    case Type::list:
    case Type::tuple: {
      if (v.items().empty()) {
        out += "[]";
        return;
      }
      out += '[';
      bool first = true;
      for (const Value& item : v.items()) {
        if (!first) out += options.item_separator;
        first = false;
        new_line(depth + 1);
        append_json(in, out, item, options, depth + 1);
      }
      new_line(depth);
      out += ']';
      return;
    }
    case Type::dict: {
      const auto& entries = v.dict().entries;
      if (entries.empty()) {
        out += "{}";
        return;
      }
      std::vector<const std::pair<Value, Value>*> order;
      order.reserve(entries.size());
      for (const auto& entry : entries) order.push_back(&entry);
      if (options.sort_keys) {
        std::stable_sort(order.begin(), order.end(),
                         [&](auto* a, auto* b) { return in.is_less(a->first, b->first); });
      }
      out += '{';
      bool first = true;
      for (const auto* entry : order) {
        if (!first) out += options.item_separator;
        first = false;
        new_line(depth + 1);
        append_json_string(out, json_key(entry->first), options.ensure_ascii);
        out += options.key_separator;
        append_json(in, out, entry->second, options, depth + 1);
      }
      new_line(depth);
      out += '}';
      return;
    }
    default: fail("Object of type {} is not JSON serializable", type_name(v));
  }
}

}  // namespace quintet::jinja
