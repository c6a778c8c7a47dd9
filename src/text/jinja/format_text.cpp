// The two ways of filling in a text: "%s" % values, and "{}".format(values).
#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {

std::string ascii_repr(Interpreter& in, const Value& v) {
  std::string repr, out;
  append_repr(in, repr, v);
  for (size_t at = 0; at < repr.size();) {
    char32_t c = next_code_point(repr, at);
    auto code = static_cast<uint32_t>(c);
    if (code < 0x80)
      out += static_cast<char>(code);
    else if (code < 0x100)
      out += fmt::format("\\x{:02x}", code);
    else if (code < 0x10000)
      out += fmt::format("\\u{:04x}", code);
    else
      out += fmt::format("\\U{:08x}", code);
  }
  return out;
}

namespace {

/// One conversion of a % format.
struct Conversion {
  bool left = false, plus = false, space = false, alternate = false, zero = false;
  int64_t width = 0;
  int precision = -1;
  char type = '\0';
};

class PercentFormat {
 public:
  PercentFormat(Interpreter& in, const Value& format, const Value& arguments)
      : in_(in), text_(format.text()), markup_(format.string().markup), arguments_(arguments) {
    if (arguments.is(Type::tuple))
      values_ = arguments.items();
    else
      values_ = {arguments};
    is_mapping_ = arguments.is(Type::dict) || arguments.is(Type::list) || arguments.is(Type::range) ||
                  arguments.is_undefined();
  }

  std::string run() {
    while (at_ < text_.size()) {
      size_t percent = std::min(text_.find('%', at_), text_.size());
      out_ += text_.substr(at_, percent - at_);
      at_ = percent;
      if (at_ < text_.size()) convert();
      in_.heap().check_text(out_.size());
    }
    if (next_ < values_.size() && !is_mapping_) fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  char current() const {
    if (at_ >= text_.size()) fail("incomplete format");
    return text_[at_];
  }

  Value take() {
    if (next_ >= values_.size()) fail("not enough arguments for format string");
    return values_[next_++];
  }

  int64_t number_or_star(int64_t limit) {
    if (current() == '*') {
      ++at_;
      Value v = take();
      if (!v.is_int()) fail("* wants int");
      if (v.as_int() > limit || v.as_int() < -limit)
        fail("a width or precision beyond {} in a format", limit);
      return v.as_int();
    }
    int64_t n = 0;
    while (current() >= '0' && current() <= '9') {
      n = n * 10 + (text_[at_++] - '0');
      if (n > limit) fail("a width or precision beyond {} in a format", limit);
    }
    return n;
  }

  void convert() {
    constexpr int64_t kMaxWidth = 1 << 20, kMaxPrecision = 1 << 20;
    ++at_;
    in_.heap().spend(1);
    Conversion c;
    if (current() == '(') {
      size_t start = ++at_;
      for (int open = 1; open > 0; ++at_) {
        if (at_ >= text_.size()) fail("incomplete format key");
        open += text_[at_] == '(' ? 1 : text_[at_] == ')' ? -1 : 0;
      }
      std::string_view key = text_.substr(start, at_ - start - 1);
      if (!is_mapping_) fail("format requires a mapping");
      if (arguments_.is_undefined()) in_.fail_undefined(arguments_);
      const Value* found = arguments_.is(Type::dict) ? arguments_.dict().find(key) : nullptr;
      if (found == nullptr) fail("the key '{}' of a format is missing", key);
      values_ = {*found};  // and nothing else from now on
      next_ = 0;
    }
    for (;; ++at_) {
      char flag = current();
      if (flag == '-')
        c.left = true;
      else if (flag == '+')
        c.plus = true;
      else if (flag == ' ')
        c.space = true;
      else if (flag == '#')
        c.alternate = true;
      else if (flag == '0')
        c.zero = true;
      else
        break;
    }
    c.width = number_or_star(kMaxWidth);
    if (c.width < 0) {
      c.left = true;
      c.width = -c.width;
    }
    if (current() == '.') {
      ++at_;
      c.precision = static_cast<int>(std::max<int64_t>(number_or_star(kMaxPrecision), 0));
    }
    if (current() == 'h' || current() == 'l' || current() == 'L') ++at_;
    c.type = current();
    ++at_;
    if (c.type == '%') {
      out_ += '%';
      return;
    }
    append(c, take());
  }

  void append(const Conversion& c, const Value& value) {
    std::string sign, body;
    bool number = false;
    switch (c.type) {
      case 's':
      case 'r':
      case 'a': {
        body = c.type == 's' ? in_.str(value) : c.type == 'a' ? ascii_repr(in_, value) : repr(value);
        bool safe = c.type == 's' && value.is_string() && value.string().markup;
        if (markup_ && !safe) body = escape_html(body);
        if (c.precision >= 0) body.resize(byte_of_code_point(body, c.precision));
        break;
      }
      case 'c': body = character(value); break;
      case 'd':
      case 'i':
      case 'u':
      case 'o':
      case 'x':
      case 'X':
        number = true;
        body = integer(c, value, sign);
        break;
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G': {
        number = true;
        if (value.is_undefined()) in_.fail_undefined(value);
        if (!value.is_number() || value.is(Type::big)) fail("must be real number, not {}", type_name(value));
        double d = value.is(Type::real) ? value.as_real() : static_cast<double>(value.as_int());
        if (std::signbit(d) && !std::isnan(d)) sign = "-";
        bool upper = c.type < 'a';
        if (std::isnan(d))
          body = upper ? "NAN" : "nan";
        else if (std::isinf(d))
          body = upper ? "INF" : "inf";
        else
          body = real_digits(std::abs(d), c.type, c.precision < 0 ? 6 : c.precision, c.alternate);
        break;
      }
      default: fail("unsupported format character '{}'", c.type);
    }
    if (number && sign.empty()) sign = c.plus ? "+" : c.space ? " " : "";
    std::string prefix;
    if (c.alternate && (c.type == 'x' || c.type == 'X' || c.type == 'o')) prefix = std::string("0") + c.type;
    int64_t room = c.width - count_code_points(body) - static_cast<int64_t>(sign.size() + prefix.size());
    auto fill = static_cast<size_t>(std::max<int64_t>(room, 0));
    if (number && c.zero && !c.left)
      out_ += sign + prefix + std::string(fill, '0') + body;
    else if (c.left)
      out_ += sign + prefix + body + std::string(fill, ' ');
    else
      out_ += std::string(fill, ' ') + sign + prefix + body;
  }

  std::string repr(const Value& v) {
    std::string out;
    append_repr(in_, out, v);
    return out;
  }

  std::string character(const Value& v) {
    if (v.is_string() && v.string().length == 1) return std::string(v.text());
    if (!v.is_int()) fail("%c requires int or char");
    int64_t code = v.as_int();
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
      fail("%c arg not in range(0x110000)");
    std::string out;
    append_code_point(out, static_cast<char32_t>(code));
    return out;
  }

  std::string integer(const Conversion& c, const Value& value, std::string& sign) {
    Value v = value;
    if (v.is_undefined()) in_.fail_undefined(v);
    bool decimal = c.type == 'd' || c.type == 'i' || c.type == 'u';
    if (v.is(Type::real) && decimal) v = int_of_real(in_, v.as_real());
    if (!v.is_int() && !v.is(Type::big)) {
      fail("%{} format: {} is required, not {}", c.type, decimal ? "a real number" : "an integer",
           type_name(value));
    }
    std::string digits = int_digits(v, decimal ? 10 : c.type == 'o' ? 8 : 16, c.type == 'X');
    if (is_negative(v)) sign = "-";
    auto precision = static_cast<size_t>(std::max(c.precision, 0));
    if (digits.size() < precision) digits.insert(0, precision - digits.size(), '0');
    return digits;
  }

  Interpreter& in_;
  std::string_view text_;
  bool markup_;
  const Value& arguments_;
  std::vector<Value> values_;
  bool is_mapping_ = false;
  size_t next_ = 0, at_ = 0;
  std::string out_;
};

class BraceFormat {
 public:
  BraceFormat(Interpreter& in, Arguments& args) : in_(in), args_(args) {}

  std::string run(std::string_view text, int depth) {
    if (depth < 0) fail("max string recursion exceeded in a format");
    std::string out;
    for (size_t at = 0; at < text.size();) {
      char c = text[at];
      if (c != '{' && c != '}') {
        out += c;
        ++at;
        continue;
      }
      if (at + 1 < text.size() && text[at + 1] == c) {
        out += c;
        at += 2;
        continue;
      }
      if (c == '}') fail("single '}}' encountered in format string");
      size_t end = field_end(text, at + 1);
      out += field(text.substr(at + 1, end - at - 1), depth);
      in_.heap().check_text(out.size());
      at = end + 1;
    }
    return out;
  }

 private:
  /// The '}' that closes the field that starts at `at`.
  static size_t field_end(std::string_view text, size_t at) {
    int open = 1;
    bool in_brackets = false;
    bool in_spec = false;
    for (; at < text.size(); ++at) {
      char c = text[at];
      if (in_brackets && c != ']') continue;
      if (c == '[' && !in_spec)
        in_brackets = true;
      else if (c == ']')
        in_brackets = false;
      else if (c == ':' || c == '!')
        in_spec = true;
      else if (c == '{')
        ++open;
      else if (c == '}' && --open == 0)
        return at;
    }
    fail("expected '}}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    in_.heap().spend(1);
    size_t name_end = 0;
    for (bool in_brackets = false; name_end < text.size(); ++name_end) {
      char c = text[name_end];
      if (c == '[')
        in_brackets = true;
      else if (c == ']')
        in_brackets = false;
      else if (!in_brackets && (c == ':' || c == '!'))
        break;
      else if (!in_brackets && c == '{')
        fail("unexpected '{{' in field name");
    }
    std::string_view name = text.substr(0, name_end), rest = text.substr(name_end);
    char conversion = '\0';
    if (rest.starts_with('!')) {
      if (rest.size() < 2) fail("end of string while looking for conversion specifier");
      conversion = rest[1];
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    }
    Value v = look_up(name);
    std::string converted;
    switch (conversion) {
      case '\0': break;
      case 's': v = in_.string(in_.str(v)); break;
      case 'r':
        append_repr(in_, converted, v);
        v = in_.string(std::move(converted));
        break;
      case 'a': v = in_.string(ascii_repr(in_, v)); break;
      default: fail("unknown conversion specifier '{}'", conversion);
    }
    std::string spec = rest.empty() ? "" : run(rest.substr(1), depth - 1);
    return format_value(in_, v, spec);
  }

  static bool is_number(std::string_view text) {
    return !text.empty() && text.size() < 10 &&
           std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
  }

  static int64_t number(std::string_view text) {
    int64_t n = 0;
    for (char c : text) n = n * 10 + (c - '0');
    return n;
  }

  Value look_up(std::string_view name) {
    size_t end = std::min(name.find_first_of(".["), name.size());
    std::string_view first = name.substr(0, end);
    Value v;
    if (first.empty() || is_number(first)) {
      if (first.empty() ? numbering_ == 'm' : numbering_ == 'a') {
        fail("cannot switch between manual field specification and automatic field numbering");
      }
      numbering_ = first.empty() ? 'a' : 'm';
      auto index = static_cast<size_t>(first.empty() ? next_++ : number(first));
      if (index >= args_.positional.size())
        fail("Replacement index {} out of range for positional args tuple", index);
      v = args_.positional[index];
    } else {
      auto at = std::find_if(args_.keywords.begin(), args_.keywords.end(),
                             [&](const auto& k) { return k.first == first; });
      if (at == args_.keywords.end()) fail("the key '{}' of a format is missing", first);
      v = at->second;
    }
    std::string_view rest = name.substr(end);
    while (!rest.empty()) {
      if (rest[0] == '.') {
        rest.remove_prefix(1);
        size_t stop = std::min(rest.find_first_of(".["), rest.size());
        if (stop == 0) fail("empty attribute in format string");
        v = in_.attribute(v, rest.substr(0, stop));
        rest.remove_prefix(stop);
      } else if (rest[0] == '[') {
        size_t stop = rest.find(']');
        if (stop == std::string_view::npos) fail("missing ']' in format string");
        std::string_view key = rest.substr(1, stop - 1);
        if (key.empty()) fail("empty attribute in format string");
        v = in_.item(v, is_number(key) ? Value::integer(number(key)) : in_.string(std::string(key)));
        rest.remove_prefix(stop + 1);
      } else {
        fail("only '.' or '[' may follow ']' in format field specifier");
      }
    }
    return v;
  }

  Interpreter& in_;
  Arguments& args_;
  int64_t next_ = 0;
  char numbering_ = '\0';  ///< 'a' automatic, 'm' manual
};

}  // namespace

Value format_percent_value(Interpreter& in, const Value& format, const Value& arguments) {
  in.heap().spend_bytes(format.text().size());
  return in.string(PercentFormat(in, format, arguments).run(), format.string().markup);
}

std::string format_braces(Interpreter& in, std::string_view format, Arguments& args) {
  in.heap().spend_bytes(format.size());
  return BraceFormat(in, args).run(format, 2);
}

}  // namespace quintet::jinja
