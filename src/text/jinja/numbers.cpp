// Numbers from and to text, times, HTML escapes, and the matching of arguments to parameters.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <ctime>

#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {

Bound::Bound(std::string_view function, Arguments& args, std::initializer_list<std::string_view> names,
             size_t required)
    : function_(function) {
  std::copy(names.begin(), names.end(), names_);
  size_t count = names.size();
  if (args.positional.size() > count) {
    fail("{}() takes at most {} argument{} ({} given)", function, count, count == 1 ? "" : "s",
         args.positional.size());
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = &args.positional[i];
  for (const auto& [name, value] : args.keywords) {
    size_t i = static_cast<size_t>(std::find(names_, names_ + count, name) - names_);
    if (i == count) fail("{}() got an unexpected keyword argument '{}'", function, name);
    if (values_[i] != nullptr) fail("{}() got multiple values for argument '{}'", function, name);
    values_[i] = &value;
  }
  for (size_t i = 0; i < count; ++i) {
    if (names_[i].starts_with('/')) names_[i].remove_prefix(1);
    if (i < required && values_[i] == nullptr) fail("{}() is missing the argument '{}'", function, names_[i]);
  }
}

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  if (values_[i] == nullptr) return otherwise;
  if (values_[i]->is_undefined()) fail("{}", values_[i]->as<Undefined>().hint);
  if (values_[i]->is(Type::big)) fail("{}(): the argument '{}' is beyond 64 bits", function_, names_[i]);
  if (!values_[i]->is_int()) {
    fail("{}(): the argument '{}' must be an integer, not {}", function_, names_[i], type_name(*values_[i]));
  }
  return values_[i]->as_int();
}

std::string_view Bound::text(size_t i) const {
  if (!values_[i]->is_string()) {
    fail("{}(): the argument '{}' must be str, not {}", function_, names_[i], type_name(*values_[i]));
  }
  return values_[i]->text();
}

bool Bound::truth(size_t i, bool otherwise) const {
  return values_[i] != nullptr ? Interpreter::truth(*values_[i]) : otherwise;
}

std::string escape_html(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&#34;"; break;
      case '\'': out += "&#39;"; break;
      default: out += c;
    }
  }
  return out;
}

std::string format_time(std::string_view format, int64_t unix_s) {
  constexpr size_t kMaxFormatBytes = 1024, kMaxTimeBytes = 16384;
  constexpr int64_t kMaxUnixS = 253402300799;  // the end of the year 9999
  if (format.size() > kMaxFormatBytes)
    fail("a time format of {} bytes; {} are allowed", format.size(), kMaxFormatBytes);
  auto when = static_cast<time_t>(std::clamp<int64_t>(unix_s, 0, kMaxUnixS));
  std::tm parts{};
  gmtime_r(&when, &parts);
  std::string cleaned;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%') {
      cleaned += format[i];
      continue;
    }
    char next = i + 1 < format.size() ? format[i + 1] : '\0';
    if (next == '\0') {
      cleaned += "%%";
    } else if (next == 'Z' || next == 'z') {
      ++i;  // a time without a zone
    } else if (next == 'f') {
      cleaned += "000000";
      ++i;
    } else {
      cleaned += '%';
      cleaned += next;
      ++i;
    }
  }
  cleaned += ' ';  // so that an empty result differs from one that does not fit
  std::string out(kMaxTimeBytes, '\0');
  size_t bytes = std::strftime(out.data(), out.size(), cleaned.c_str(), &parts);
  if (bytes == 0) fail("a time format whose result is longer than {} bytes", kMaxTimeBytes);
  out.resize(bytes - 1);
  return out;
}

namespace {

/// Decimal digits of any script as ASCII, single underscores between digits gone; false where they stand
/// wrong.
bool plain_digits(std::string_view text, std::string& out) {
  text = strip_space(text);
  char32_t before = 0;
  for (size_t at = 0; at < text.size();) {
    char32_t c = next_code_point(text, at);
    if (c == '_') {
      size_t next = at;
      bool digit_before =
          (before < 0x80 && std::isalnum(static_cast<int>(before))) || decimal_value(before) >= 0;
      if (!digit_before || next >= text.size()) return false;
      char32_t after = next_code_point(text, next);
      if (!(after < 0x80 && std::isalnum(static_cast<int>(after))) && decimal_value(after) < 0) return false;
    } else if (int digit = decimal_value(c); digit >= 0) {
      out += static_cast<char>('0' + digit);
    } else if (c < 0x80) {
      out += static_cast<char>(c);
    } else {
      return false;
    }
    before = c;
  }
  return !out.empty();
}

}  // namespace

bool parse_real(std::string_view text, double& out) {
  std::string plain;
  constexpr size_t kMaxNumberBytes = 65536;
  if (text.size() > kMaxNumberBytes)
    fail("a number of {} bytes; {} are allowed", text.size(), kMaxNumberBytes);
  if (!plain_digits(text, plain)) return false;
  std::string_view rest = plain;
  double sign = 1;
  if (rest.starts_with('-') || rest.starts_with('+')) {
    sign = rest[0] == '-' ? -1 : 1;
    rest.remove_prefix(1);
  }
  std::string lower = to_lower(rest);
  if (lower == "inf" || lower == "infinity") return out = sign * HUGE_VAL, true;
  if (lower == "nan") return out = std::nan(""), true;
  if (rest.empty() || !((rest[0] >= '0' && rest[0] <= '9') || rest[0] == '.')) return false;
  double value = 0;
  auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (end != rest.data() + rest.size() || error == std::errc::invalid_argument) return false;
  if (error == std::errc::result_out_of_range) value = std::strtod(std::string(rest).c_str(), nullptr);
  out = sign * value;
  return true;
}

bool parse_int(Interpreter& in, std::string_view text, int base, Value& out) {
  if (base != 0 && (base < 2 || base > 36)) fail("int() base must be >= 2 and <= 36, or 0");
  std::string plain;
  if (!plain_digits(text, plain)) return false;
  std::string_view rest = plain;
  bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.size() > 2 && rest[0] == '0') {
    char letter = static_cast<char>(rest[1] | 0x20);
    int prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      base = prefix;
      rest.remove_prefix(2);
    }
  }
  if (base == 0) {
    if (rest.size() > 1 && rest[0] == '0' && rest.find_first_not_of('0') != std::string_view::npos)
      return false;
    base = 10;
  }
  if (rest.empty() || rest[0] == '-' || rest[0] == '+') return false;
  uint64_t value = 0;
  auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value, base);
  if (error == std::errc::invalid_argument || end != rest.data() + rest.size()) return false;
  if (error == std::errc() && (value <= INT64_MAX || (negative && value == 1ull << 63))) {
    out = Value::integer(negative ? static_cast<int64_t>(0 - value) : static_cast<int64_t>(value));
    return true;
  }
  if (base != 10) fail("an integer beyond 64 bits in base {}", base);
  constexpr size_t kMaxDigits = 4300;  // as Python limits it
  rest.remove_prefix(std::min(rest.find_first_not_of('0'), rest.size()));
  if (rest.size() > kMaxDigits) return false;
  std::string digits = (negative ? "-" : "") + std::string(rest);
  size_t bytes = digits.size();
  out = Value(Type::big, in.heap().make<Big>(bytes, std::move(digits)));
  return true;
}

Value int_of_real(Interpreter& in, double d) {
  if (std::isnan(d)) fail("cannot convert float NaN to integer");
  if (std::isinf(d)) fail("cannot convert float infinity to integer");
  double whole = std::trunc(d);
  if (whole >= -9223372036854775808.0 && whole < 9223372036854775808.0)
    return Value::integer(static_cast<int64_t>(whole));
  std::string digits = fmt::format("{:.0f}", whole);
  size_t bytes = digits.size();
  return Value(Type::big, in.heap().make<Big>(bytes, std::move(digits)));
}

}  // namespace quintet::jinja
