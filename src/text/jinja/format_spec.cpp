// Python's format(value, spec): [[fill]align][sign][#][0][width][grouping][.precision][type].
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {
namespace {

constexpr int kMaxPrecision = 1000;
constexpr int64_t kMaxWidth = 1 << 20;

struct Spec {
  std::string fill = " ";
  char align = '\0', sign = '-', grouping = '\0', type = '\0';
  bool alternate = false, zero = false, no_negative_zero = false, has_sign = false;
  int64_t width = 0;
  int precision = -1;
};

bool is_align(char c) { return c == '<' || c == '>' || c == '=' || c == '^'; }

int64_t take_number(std::string_view& rest, int64_t limit, const char* what) {
  int64_t n = 0;
  while (!rest.empty() && rest[0] >= '0' && rest[0] <= '9') {
    n = n * 10 + (rest[0] - '0');
    if (n > limit) fail("a {} beyond {} in a format", what, limit);
    rest.remove_prefix(1);
  }
  return n;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  std::string_view rest = text;
  size_t first = 0;
  if (!rest.empty()) next_code_point(rest, first);
  if (first > 0 && first < rest.size() && is_align(rest[first])) {
    spec.fill = rest.substr(0, first);
    spec.align = rest[first];
    rest.remove_prefix(first + 1);
  } else if (!rest.empty() && is_align(rest[0])) {
    spec.align = rest[0];
    rest.remove_prefix(1);
  }
  auto skip = [&](char c) {
    if (!rest.starts_with(c)) return false;
    rest.remove_prefix(1);
    return true;
  };
  if (!rest.empty() && (rest[0] == '+' || rest[0] == '-' || rest[0] == ' ')) {
    spec.sign = rest[0];
    spec.has_sign = true;
    rest.remove_prefix(1);
  }
  spec.no_negative_zero = skip('z');
  spec.alternate = skip('#');
  bool has_fill = spec.align != '\0';
  if (skip('0')) {
    spec.zero = true;
    if (!has_fill) spec.fill = "0";
    if (!has_fill) spec.align = '\1';  // '=' for numbers, '<' for text
  }
  spec.width = take_number(rest, kMaxWidth, "width");
  if (skip(','))
    spec.grouping = ',';
  else if (skip('_'))
    spec.grouping = '_';
  if (skip('.')) {
    if (rest.empty() || rest[0] < '0' || rest[0] > '9') fail("a format without its precision: '{}'", text);
    spec.precision = static_cast<int>(take_number(rest, kMaxTextBytes, "precision"));
  }
  if (!rest.empty()) {
    spec.type = rest[0];
    rest.remove_prefix(1);
  }
  if (!rest.empty()) fail("an invalid format specifier: '{}'", text);
  return spec;
}

std::string pad(const Spec& spec, std::string sign_and_prefix, std::string body, char default_align) {
  char align = spec.align == '\0'   ? default_align
               : spec.align == '\1' ? (default_align == '<' ? '<' : '=')
                                    : spec.align;
  int64_t room = spec.width - count_code_points(sign_and_prefix) - count_code_points(body);
  auto fill = [&](int64_t n) {
    std::string out;
    for (int64_t i = 0; i < n; ++i) out += spec.fill;
    return out;
  };
  room = std::max<int64_t>(room, 0);
  if (align == '=') return sign_and_prefix + fill(room) + body;
  if (align == '<') return sign_and_prefix + body + fill(room);
  if (align == '^') return fill(room / 2) + sign_and_prefix + body + fill(room - room / 2);
  return fill(room) + sign_and_prefix + body;
}

/// Separators between groups of digits; zeros that fill the width take part in it.
std::string group(std::string digits, char separator, size_t size, int64_t min_width) {
  size_t whole = 0;
  while (whole < digits.size() && std::isxdigit(static_cast<unsigned char>(digits[whole]))) {
    if (size == 3 && !(digits[whole] >= '0' && digits[whole] <= '9')) break;  // the e of an exponent
    ++whole;
  }
  std::string tail = digits.substr(whole);
  std::string out;
  size_t count = 0;
  auto push = [&](char c) {
    if (count > 0 && count % size == 0) out += separator;
    out += c;
    ++count;
  };
  for (size_t i = whole; i-- > 0;) push(digits[i]);
  while (static_cast<int64_t>(out.size() + tail.size()) < min_width) push('0');
  std::reverse(out.begin(), out.end());
  return out + tail;
}

std::string finish_number(const Spec& spec, bool negative, std::string prefix, std::string digits,
                          size_t group_size) {
  std::string sign = negative ? "-" : spec.sign == '+' ? "+" : spec.sign == ' ' ? " " : "";
  if (spec.grouping != '\0') {
    bool zeros = spec.fill == "0" && (spec.align == '=' || spec.align == '\1');
    int64_t min_width = zeros ? spec.width - static_cast<int64_t>(sign.size() + prefix.size()) : 0;
    digits = group(std::move(digits), spec.grouping, group_size, min_width);
  }
  return pad(spec, sign + prefix, std::move(digits), '>');
}

std::string format_real(const Spec& spec, double d, std::string_view text) {
  char type = spec.type;
  bool negative = std::signbit(d) && !std::isnan(d);
  double magnitude = std::abs(d);
  std::string digits, suffix;
  if (type == '%') {
    magnitude *= 100;
    suffix = "%";
  }
  bool upper = type == 'E' || type == 'F' || type == 'G';
  if (!std::isfinite(magnitude)) {
    digits = std::isnan(magnitude) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
  } else if (type == '\0') {
    if (spec.precision < 0) {
      digits = real_repr(magnitude);
    } else {
      digits = real_digits(magnitude, 'g', std::max(spec.precision, 1), spec.alternate);
      // One digit behind the point at least, and an exponent from the precision on: repr's rule, not %g's.
      if (digits.find_first_of(".e") == std::string::npos) {
        digits = static_cast<int>(digits.size()) >= std::max(spec.precision, 1) && magnitude >= 1
                     ? real_digits(magnitude, 'e', std::max(spec.precision - 1, 0), spec.alternate)
                     : digits + ".0";
        if (size_t e = digits.find('e'); e != std::string::npos && digits.find('.') != std::string::npos) {
          size_t end = digits.find_last_not_of('0', e - 1);
          if (digits[end] == '.') --end;
          digits = digits.substr(0, end + 1) + digits.substr(e);
        }
      }
    }
  } else if (type == 'n' || std::string_view("eEfFgG%").find(type) != std::string_view::npos) {
    char style = type == 'n' ? 'g' : type == '%' ? 'f' : type;
    digits = real_digits(magnitude, style, spec.precision < 0 ? 6 : spec.precision, spec.alternate);
  } else {
    fail("unknown format code '{}' for a float: '{}'", type, text);
  }
  if (spec.no_negative_zero && negative && digits.find_first_of("123456789") == std::string::npos)
    negative = false;
  return finish_number(spec, negative, "", digits + suffix, 3);
}

std::string format_integer(Interpreter& in, const Spec& spec, const Value& v, std::string_view text) {
  switch (spec.type) {
    case 'e':
    case 'E':
    case 'f':
    case 'F':
    case 'g':
    case 'G':
    case '%':
      if (v.is(Type::big)) fail("an integer beyond 64 bits cannot be formatted as a float");
      return format_real(spec, static_cast<double>(v.as_int()), text);
    default: break;
  }
  if (spec.precision >= 0) fail("precision not allowed in integer format specifier");
  if (spec.type == 'c') {
    if (spec.has_sign || spec.grouping != '\0') fail("sign not allowed with integer format specifier 'c'");
    int64_t code = v.is(Type::big) ? -1 : v.as_int();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) fail("%c arg not in range");
    std::string character;
    append_code_point(character, static_cast<char32_t>(code));
    return pad(spec, "", std::move(character), '>');
  }
  int base = 10;
  switch (spec.type) {
    case '\0':
    case 'd':
    case 'n': break;
    case 'b': base = 2; break;
    case 'o': base = 8; break;
    case 'x':
    case 'X': base = 16; break;
    default: fail("unknown format code '{}' for an int: '{}'", spec.type, text);
  }
  if (spec.grouping == ',' && base != 10) fail("cannot specify ',' with '{}'", spec.type);
  if (spec.grouping != '\0' && spec.type == 'n') fail("cannot specify '{}' with 'n'", spec.grouping);
  if (spec.no_negative_zero) fail("negative zero coercion (z) not allowed in an integer format");
  (void)in;
  std::string prefix;
  if (spec.alternate && base != 10) prefix = std::string("0") + spec.type;
  return finish_number(spec, is_negative(v), prefix, int_digits(v, base, spec.type == 'X'),
                       base == 10 ? 3 : 4);
}

}  // namespace

bool is_negative(const Value& v) {
  return v.is(Type::big) ? v.as<Big>().digits.starts_with('-') : v.as_int() < 0;
}

std::string int_digits(const Value& v, int base, bool upper) {
  if (v.is(Type::big)) {
    if (base != 10) fail("an integer beyond 64 bits has only decimal digits here");
    std::string_view digits = v.as<Big>().digits;
    return std::string(digits.substr(digits.starts_with('-')));
  }
  int64_t value = v.as_int();
  uint64_t magnitude = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  switch (base) {
    case 2: return fmt::format("{:b}", magnitude);
    case 8: return fmt::format("{:o}", magnitude);
    case 16: return upper ? fmt::format("{:X}", magnitude) : fmt::format("{:x}", magnitude);
    default: return fmt::format("{}", magnitude);
  }
}

std::string real_digits(double d, char style, int precision, bool alternate) {
  if (precision > kMaxPrecision) fail("a precision of {}; {} is allowed", precision, kMaxPrecision);
  char format[] = {'%', alternate ? '#' : '.', '*', style, '\0', '\0'};
  if (alternate) {
    format[2] = '.';
    format[3] = '*';
    format[4] = style;
  }
  std::string out(static_cast<size_t>(precision) + 400, '\0');
  int n = std::snprintf(out.data(), out.size(), format, precision, d);
  out.resize(static_cast<size_t>(n));
  return out;
}

std::string format_value(Interpreter& in, const Value& v, std::string_view text) {
  if (text.empty()) return in.str(v);
  in.heap().spend_bytes(text.size());
  if (v.is_string()) {
    Spec spec = parse_spec(text);
    if (spec.type != '\0' && spec.type != 's') fail("unknown format code '{}' for a str", spec.type);
    if (spec.has_sign || spec.alternate || spec.grouping != '\0' || spec.align == '=' ||
        spec.no_negative_zero) {
      fail("a format for numbers on a str: '{}'", text);
    }
    std::string_view shown = v.text();
    if (spec.precision >= 0) shown = shown.substr(0, byte_of_code_point(shown, spec.precision));
    return pad(spec, "", std::string(shown), '<');
  }
  if (v.is_int() || v.is(Type::big)) return format_integer(in, parse_spec(text), v, text);
  if (v.is(Type::real)) return format_real(parse_spec(text), v.as_real(), text);
  fail("unsupported format string passed to {}.__format__", type_name(v));
}

}  // namespace quintet::jinja
