// Cuts a template into tokens, by jinja2's rules with trim_blocks and lstrip_blocks on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace quintet::jinja {

enum class TokenKind : uint8_t {
  data,
  block_begin,
  block_end,
  variable_begin,
  variable_end,
  name,
  string,
  integer,
  real,
  add,
  sub,
  div,
  floordiv,
  mul,
  mod,
  pow,
  tilde,
  lbracket,
  rbracket,
  lparen,
  rparen,
  lbrace,
  rbrace,
  eq,
  ne,
  gt,
  gteq,
  lt,
  lteq,
  assign,
  dot,
  colon,
  pipe,
  comma,
  semicolon,
  end
};

struct Token {
  TokenKind kind = TokenKind::end;
  int line = 1;
  std::string text;  ///< of data, names and strings (unescaped); digits of numbers without underscores
};

/// How a token reads in a message: "end of statement block", "name 'x'", "'+'".
std::string describe(const Token& token);

/// The tokens, the last one of kind `end`. Throws SyntaxFault.
std::vector<Token> tokenize(std::string_view source);

/// A syntax error at a line.
struct SyntaxFault {
  int line;
  std::string message;
};

}  // namespace quintet::jinja
