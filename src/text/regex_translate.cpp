// From Oniguruma's dialect (with Unicode 16) to PCRE2's (with Unicode 14 and other shorthands).
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "text/regex.h"
#include "text/unicode.h"

namespace quintet {
namespace {

/// White_Space; PCRE2's \s has U+180E too, which is none since Unicode 6.3.
constexpr std::string_view kSpaces =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

std::string category(std::string_view name) {
  return fmt::format("\\p{{{}}}{}", name, unicode_additions_class(name));
}

bool is_general_category(std::string_view name) {
  static constexpr std::string_view kNames[] = {"L",  "Lu", "Ll", "Lt", "Lm", "Lo", "M",  "Mn", "Mc",
                                                "Me", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Ps",
                                                "Pe", "Pi", "Pf", "Po", "S",  "Sm", "Sc", "Sk", "So",
                                                "Z",  "Zs", "Zl", "Zp", "C",  "Cc", "Cf", "Co", "Cs"};
  for (const auto known : kNames) {
    if (name == known) return true;
  }
  return false;
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  Result<std::string> run() {
    while (at_ < pattern_.size()) {
      const char c = pattern_[at_];
      if (c == '\\') {
        TRY(escape(false));
      } else if (c == '[') {
        TRY(bracket());
      } else if (c == '(') {
        TRY(group());
      } else if (c == '$') {  // Oniguruma's ^ and $ always mean lines
        out_ += "(?m:$)";
        ++at_;
      } else if (c == '^') {
        out_ += "(?m:^)";
        ++at_;
      } else if (rest().starts_with("{,")) {
        out_ += "{0,";
        at_ += 2;
      } else {
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  std::string_view rest() const { return pattern_.substr(at_); }

  Error refuse(std::string_view construct) const {
    return bad_input(fmt::format("the pattern '{}' uses {} at byte {}, which is not supported",
                                 pattern_.substr(0, 200), construct, at_));
  }

  /// A set of characters, as a class of its own or inside one.
  void put_set(const std::string& members, bool negated, bool in_bracket) {
    if (in_bracket) {
      out_ += members;
    } else {
      out_ += negated ? "[^" : "[";
      out_ += members;
      out_ += ']';
    }
  }

  Status escape(bool in_bracket) {
    if (at_ + 1 >= pattern_.size()) return refuse("a single backslash");
    const char c = pattern_[at_ + 1];
    const bool upper = c >= 'A' && c <= 'Z';
    if (c == 'p' || c == 'P') return property(in_bracket);
    if (c == 'u') return code_point();
    std::string set;
    switch (c) {
      case 's':
      case 'S': set = kSpaces; break;
      case 'd':
      case 'D': set = category("Nd"); break;
      case 'w':
      case 'W':
        set = category("L") + category("M") + category("Nd") + category("Nl") + category("Pc") +
              R"(\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";
        break;
      case 'h':
      case 'H': set = "0-9A-Fa-f"; break;
      default: break;
    }
    if (!set.empty()) {
      if (upper && in_bracket) return refuse(fmt::format("\\{} inside brackets", c));
      put_set(set, upper, in_bracket);
      at_ += 2;
      return {};
    }
    if (c == 'v') {  // a vertical tab here, all vertical space in PCRE2
      out_ += "\\x0B";
      at_ += 2;
      return {};
    }
    const bool letter = upper || (c >= 'a' && c <= 'z');
    const bool digit = c >= '0' && c <= '9';
    const std::string_view allowed = in_bracket ? "tnrfaex" : "tnrfaexAzZbBG";
    if ((letter && allowed.find(c) == std::string_view::npos) || digit) return refuse(fmt::format("\\{}", c));
    out_ += '\\';
    out_ += c;
    at_ += 2;
    return {};
  }

  Status property(bool in_bracket) {
    bool negated = pattern_[at_ + 1] == 'P';
    const size_t close = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || close == std::string_view::npos) {
      return refuse("\\p without {name}");
    }
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    if (negated && in_bracket) return refuse("\\P inside brackets");
    // Names that are no category are scripts, which PCRE2 knows (or refuses) itself.
    put_set(is_general_category(name) ? category(name) : fmt::format("\\p{{{}}}", name), negated, in_bracket);
    at_ = close + 1;
    return {};
  }

  Status code_point() {  // \uHHHH
    const std::string_view digits = rest().substr(0, 6).substr(2);
    if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
      return refuse("\\u without four hexadecimal digits");
    }
    out_ += fmt::format("\\x{{{}}}", digits);
    at_ += 6;
    return {};
  }

  Status bracket() {
    out_ += '[';
    ++at_;
    if (rest().starts_with('^')) {
      out_ += '^';
      ++at_;
    }
    for (bool first = true;; first = false) {
      if (at_ >= pattern_.size()) return refuse("[ without ]");
      const char c = pattern_[at_];
      if (c == ']' && !first) break;
      if (c == ']') {
        out_ += "\\]";
        ++at_;
      } else if (c == '\\') {
        TRY(escape(true));
      } else if (rest().starts_with("&&")) {
        return refuse("an intersection (&&)");
      } else if (rest().starts_with("[:")) {
        const size_t close = pattern_.find(":]", at_);
        if (close == std::string_view::npos) return refuse("[: without :]");
        out_ += pattern_.substr(at_, close + 2 - at_);
        at_ = close + 2;
      } else if (c == '[') {
        return refuse("brackets inside brackets");
      } else {
        out_ += c;
        ++at_;
      }
    }
    out_ += ']';
    ++at_;
    return {};
  }

  Status group() {
    static constexpr std::string_view kGroups[] = {"(?:", "(?=",  "(?!",  "(?<=", "(?<!",
                                                   "(?>", "(?i:", "(?i)", "(?-i:"};
    if (rest().starts_with("(*")) return refuse("(*");
    if (rest().starts_with("(?")) {
      for (const auto opening : kGroups) {
        if (!rest().starts_with(opening)) continue;
        out_ += opening;
        at_ += opening.size();
        return {};
      }
      return refuse(fmt::format("the group {}", rest().substr(0, 4)));
    }
    out_ += '(';
    ++at_;
    return {};
  }

  std::string_view pattern_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> translate_oniguruma(std::string_view pattern) { return Translator(pattern).run(); }

}  // namespace quintet
