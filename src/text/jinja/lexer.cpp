// The lexer: text and tags, whitespace control, then the tokens inside the tags.
#include "text/jinja/lexer.h"

#include <fmt/core.h>

#include <array>

#include "text/jinja/unicode.h"

namespace quintet::jinja {
namespace {

/// Each may cost some hundred bytes once parsed; real templates have some thousands.
constexpr size_t kMaxTemplateTokens = 100'000;

struct Operator {
  std::string_view text;
  TokenKind kind;
};

// Longer ones first.
constexpr std::array kOperators = {
    Operator{"//", TokenKind::floordiv}, Operator{"**", TokenKind::pow},
    Operator{"==", TokenKind::eq},       Operator{"!=", TokenKind::ne},
    Operator{">=", TokenKind::gteq},     Operator{"<=", TokenKind::lteq},
    Operator{"+", TokenKind::add},       Operator{"-", TokenKind::sub},
    Operator{"/", TokenKind::div},       Operator{"*", TokenKind::mul},
    Operator{"%", TokenKind::mod},       Operator{"~", TokenKind::tilde},
    Operator{"[", TokenKind::lbracket},  Operator{"]", TokenKind::rbracket},
    Operator{"(", TokenKind::lparen},    Operator{")", TokenKind::rparen},
    Operator{"{", TokenKind::lbrace},    Operator{"}", TokenKind::rbrace},
    Operator{">", TokenKind::gt},        Operator{"<", TokenKind::lt},
    Operator{"=", TokenKind::assign},    Operator{".", TokenKind::dot},
    Operator{":", TokenKind::colon},     Operator{"|", TokenKind::pipe},
    Operator{",", TokenKind::comma},     Operator{";", TokenKind::semicolon},
};

bool is_digit_char(char c) { return c >= '0' && c <= '9'; }
bool is_word_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}

/// Line ends become \n, and the last one goes (keep_trailing_newline is off).
std::string normalize(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
      out += '\n';
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)), text_(source_) {}

  std::vector<Token> run() {
    while (at_ < text_.size()) lex_text();
    add(TokenKind::end, {});
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(std::string message) const { throw SyntaxFault{line_, std::move(message)}; }

  void add(TokenKind kind, std::string text) {
    if (tokens_.size() >= kMaxTemplateTokens)
      throw SyntaxFault{line_, fmt::format("more than {} words and signs in tags", kMaxTemplateTokens)};
    tokens_.push_back({kind, line_, std::move(text)});
  }

  bool looking_at(std::string_view what) const { return text_.substr(at_).starts_with(what); }

  /// Moves over `bytes`, counting lines; remembers whether they ended one.
  void advance(size_t bytes) {
    for (char c : text_.substr(at_, bytes)) line_ += c == '\n';
    at_ += bytes;
    line_starting_ = at_ > 0 && text_[at_ - 1] == '\n';
  }

  size_t skip_space(size_t at) const {
    while (at < text_.size()) {
      size_t next = at;
      if (!is_space(next_code_point(text_, next))) break;
      at = next;
    }
    return at;
  }

  /// The text before a tag, without what the tag's sign or lstrip_blocks takes from it.
  std::string_view strip_before(std::string_view text, char sign, bool is_variable) const {
    if (sign == '-') return strip_space(text, false, true);
    if (sign == '+' || is_variable) return text;
    size_t newline = text.rfind('\n');
    size_t start = newline == std::string_view::npos ? 0 : newline + 1;
    if (start == 0 && !line_starting_) return text;
    std::string_view tail = text.substr(start);
    if (!tail.empty() && strip_space(tail).empty()) return text.substr(0, start);
    return text;
  }

  /// Bytes of a tag's end at `at` ("%}", "-%}" with the space behind it, "+%}"), 0 where there is none. A
  /// newline behind it belongs to it where blocks are trimmed.
  size_t tag_end(size_t at, std::string_view mark, bool trims, bool plus) const {
    std::string_view rest = text_.substr(at);
    if (rest.starts_with(mark)) {
      size_t n = mark.size();
      return n + (trims && rest.substr(n).starts_with('\n'));
    }
    if (rest.starts_with('-') && rest.substr(1).starts_with(mark))
      return skip_space(at + 1 + mark.size()) - at;
    if (plus && rest.starts_with('+') && rest.substr(1).starts_with(mark)) return 1 + mark.size();
    return 0;
  }

  /// Text up to the next tag, and that tag.
  void lex_text() {
    size_t begin = at_;
    for (size_t open = text_.find('{', begin);; open = text_.find('{', open + 1)) {
      if (open == std::string_view::npos || open + 1 >= text_.size()) {
        add(TokenKind::data, std::string(text_.substr(begin)));
        advance(text_.size() - begin);
        return;
      }
      char kind = text_[open + 1];
      if (kind != '{' && kind != '%' && kind != '#') continue;
      char sign = open + 2 < text_.size() ? text_[open + 2] : '\0';
      if (sign != '-' && sign != '+') sign = '\0';
      std::string_view text = strip_before(text_.substr(begin, open - begin), sign, kind == '{');
      if (!text.empty()) add(TokenKind::data, std::string(text));
      advance(open - begin);
      size_t after = open + 2 + (sign != '\0');
      if (kind == '#') return lex_comment(after);
      if (kind == '%' && lex_raw(after)) return;
      add(kind == '{' ? TokenKind::variable_begin : TokenKind::block_begin, {});
      advance(after - open);
      return lex_tag(kind == '{');
    }
  }

  void lex_comment(size_t at) {
    for (size_t close = text_.find("#}", at);;) {
      if (close == std::string_view::npos) fail("a comment without its end '#}'");
      // The sign stands before the mark, but not before the comment's own start.
      size_t end = close > at && (text_[close - 1] == '-' || text_[close - 1] == '+') ? close - 1 : close;
      advance(end + tag_end(end, "#}", true, true) - at_);
      return;
    }
  }

  /// {% raw %} up to its {% endraw %}; false where the tag is another one.
  bool lex_raw(size_t at) {
    size_t name = skip_space(at);
    if (!text_.substr(name).starts_with("raw")) return false;
    size_t close = skip_space(name + 3);
    size_t bytes = tag_end(close, "%}", false, false);
    if (bytes == 0) return false;
    advance(close + bytes - at_);
    size_t begin = at_;
    for (size_t open = text_.find("{%", begin); open != std::string_view::npos;
         open = text_.find("{%", open + 1)) {
      char sign = open + 2 < text_.size() ? text_[open + 2] : '\0';
      if (sign != '-' && sign != '+') sign = '\0';
      size_t word = skip_space(open + 2 + (sign != '\0'));
      if (!text_.substr(word).starts_with("endraw")) continue;
      size_t end = skip_space(word + 6);
      size_t end_bytes = tag_end(end, "%}", true, true);
      if (end_bytes == 0) continue;
      std::string_view text = strip_before(text_.substr(begin, open - begin), sign, false);
      if (!text.empty()) add(TokenKind::data, std::string(text));
      advance(end + end_bytes - at_);
      return true;
    }
    fail("{% raw %} without its {% endraw %}");
  }

  /// The tokens of a tag, up to and with its end.
  void lex_tag(bool is_variable) {
    std::string_view mark = is_variable ? "}}" : "%}";
    std::string open_brackets;
    while (true) {
      if (at_ >= text_.size()) return;  // the parser says what it still expects
      if (open_brackets.empty()) {
        if (size_t bytes = tag_end(at_, mark, !is_variable, !is_variable)) {
          add(is_variable ? TokenKind::variable_end : TokenKind::block_end, {});
          return advance(bytes);
        }
      }
      if (size_t after = skip_space(at_); after != at_) {
        advance(after - at_);
        continue;
      }
      char c = text_[at_];
      if (is_digit_char(c))
        lex_number();
      else if (is_word_start(c))
        lex_name();
      else if (c == '\'' || c == '"')
        lex_string(c);
      else
        lex_operator(open_brackets);
    }
  }

  /// Digits with single underscores between them, from `at`; gives where they end.
  size_t digits_end(size_t at, bool (*is_one)(char)) const {
    while (at < text_.size()) {
      if (is_one(text_[at]))
        ++at;
      else if (text_[at] == '_' && at + 1 < text_.size() && is_one(text_[at + 1]))
        at += 2;
      else
        break;
    }
    return at;
  }

  std::string without_underscores(size_t end) const {
    std::string out;
    for (char c : text_.substr(at_, end - at_)) {
      if (c != '_') out += c;
    }
    return out;
  }

  void lex_number() {
    size_t whole = digits_end(at_, is_digit_char);
    size_t end = whole;
    bool after_dot = at_ > 0 && text_[at_ - 1] == '.';
    if (!after_dot && end + 1 < text_.size() && text_[end] == '.' && is_digit_char(text_[end + 1])) {
      end = digits_end(end + 1, is_digit_char);
    }
    if (!after_dot && end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
      size_t exponent = end + 1;
      if (exponent < text_.size() && (text_[exponent] == '+' || text_[exponent] == '-')) ++exponent;
      if (exponent < text_.size() && is_digit_char(text_[exponent]))
        end = digits_end(exponent, is_digit_char);
    }
    if (end != whole) {
      add(TokenKind::real, without_underscores(end));
      return advance(end - at_);
    }
    if (text_[at_] == '0') {
      char base = at_ + 1 < text_.size() ? static_cast<char>(text_[at_ + 1] | 0x20) : '\0';
      auto is_one = base == 'x'
                        ? [](char c) { return is_digit_char(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); }
                    : base == 'o' ? [](char c) { return c >= '0' && c <= '7'; }
                    : base == 'b' ? [](char c) { return c == '0' || c == '1'; }
                                  : static_cast<bool (*)(char)>(nullptr);
      if (is_one != nullptr) end = digits_end(at_ + 2, is_one);
      if (is_one == nullptr || end == at_ + 2) end = digits_end(at_, [](char c) { return c == '0'; });
    }
    add(TokenKind::integer, without_underscores(end));
    advance(end - at_);
  }

  void lex_name() {
    size_t end = at_;
    for (bool first = true; end < text_.size(); first = false) {
      size_t next = end;
      char32_t c = next_code_point(text_, next);
      if (first ? !is_identifier_start(c) : !is_identifier_part(c)) break;
      end = next;
    }
    if (end == at_) fail_character();
    add(TokenKind::name, std::string(text_.substr(at_, end - at_)));
    advance(end - at_);
  }

  [[noreturn]] void fail_character() const {
    size_t end = at_;
    next_code_point(text_, end);
    fail(fmt::format("unexpected character '{}'", text_.substr(at_, end - at_)));
  }

  void lex_operator(std::string& open_brackets) {
    for (const Operator& op : kOperators) {
      if (!looking_at(op.text)) continue;
      char c = op.text[0];
      if (c == '(' || c == '[' || c == '{') {
        open_brackets += c == '(' ? ')' : c == '[' ? ']' : '}';
      } else if (c == ')' || c == ']' || c == '}') {
        if (open_brackets.empty()) fail(fmt::format("unexpected '{}'", c));
        if (open_brackets.back() != c)
          fail(fmt::format("unexpected '{}', expected '{}'", c, open_brackets.back()));
        open_brackets.pop_back();
      }
      add(op.kind, std::string(op.text));
      return advance(op.text.size());
    }
    fail_character();
  }

  void lex_string(char quote) {
    size_t end = at_ + 1;
    while (end < text_.size() && text_[end] != quote) end += text_[end] == '\\' ? 2 : 1;
    if (end >= text_.size()) fail("a string without its closing quote");
    std::string value;
    for (size_t i = at_ + 1; i < end;) {
      if (text_[i] == '\\')
        i = append_escape(value, i + 1, end);
      else
        value += text_[i++];
    }
    add(TokenKind::string, std::move(value));
    advance(end + 1 - at_);
  }

  /// The escape behind the backslash before `i`, as in Python's string literals; gives where it ends.
  size_t append_escape(std::string& value, size_t i, size_t end) const {
    char c = text_[i];
    switch (c) {
      case '\n': return i + 1;
      case '\\':
      case '\'':
      case '"': value += c; return i + 1;
      case 'a': value += '\a'; return i + 1;
      case 'b': value += '\b'; return i + 1;
      case 'f': value += '\f'; return i + 1;
      case 'n': value += '\n'; return i + 1;
      case 'r': value += '\r'; return i + 1;
      case 't': value += '\t'; return i + 1;
      case 'v': value += '\v'; return i + 1;
      case 'x': return append_hex(value, i + 1, end, 2);
      case 'u': return append_hex(value, i + 1, end, 4);
      case 'U': return append_hex(value, i + 1, end, 8);
      case 'N': fail("the escape \\N{...} is not supported");
      default: break;
    }
    if (c < '0' || c > '7') {
      value += '\\';  // an unknown escape stays as it is
      return i;
    }
    char32_t code = 0;
    size_t stop = std::min(end, i + 3);
    while (i < stop && text_[i] >= '0' && text_[i] <= '7')
      code = code * 8 + static_cast<char32_t>(text_[i++] - '0');
    append_code_point(value, code);
    return i;
  }

  size_t append_hex(std::string& value, size_t i, size_t end, size_t digits) const {
    if (end - i < digits) fail("a truncated escape in a string");
    char32_t code = 0;
    for (size_t k = 0; k < digits; ++k) {
      char c = text_[i + k];
      int digit = is_digit_char(c)                         ? c - '0'
                  : (c | 0x20) >= 'a' && (c | 0x20) <= 'f' ? (c | 0x20) - 'a' + 10
                                                           : -1;
      if (digit < 0) fail("a truncated escape in a string");
      code = code * 16 + static_cast<char32_t>(digit);
      if (code > 0x10FFFF) fail("an escape beyond U+10FFFF in a string");
    }
    if (code >= 0xD800 && code < 0xE000) fail("half a surrogate pair as an escape in a string");
    append_code_point(value, code);
    return i + digits;
  }

  std::string source_;
  std::string_view text_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::data: return "template text";
    case TokenKind::block_begin: return "'{%'";
    case TokenKind::block_end: return "'%}'";
    case TokenKind::variable_begin: return "'{{'";
    case TokenKind::variable_end: return "'}}'";
    case TokenKind::string: return "a string";
    case TokenKind::end: return "the end of the template";
    default: return fmt::format("'{}'", token.text);
  }
}

std::vector<Token> tokenize(std::string_view source) { return Lexer(normalize(source)).run(); }

}  // namespace quintet::jinja
