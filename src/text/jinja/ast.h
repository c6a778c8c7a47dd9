// The tree of a parsed template. Immutable once parsed; its constants are frozen values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/jinja/value.h"

namespace quintet::jinja {

// What the parser allows; deeper templates are refused before they can exhaust the stack.
inline constexpr int kMaxExpressionHeight = 200;
inline constexpr int kMaxStatementDepth = 100;
inline constexpr size_t kMaxNamedArguments = 255;  ///< keywords of one call, parameters of one macro
inline constexpr size_t kMaxTemplateBytes = 4u << 20;

enum class ExprKind : uint8_t {
  constant,  ///< value
  name,      ///< name
  tuple,
  list,  ///< operands
  dict,  ///< operands: key, value, key, value, ...
  negate,
  plus,
  logical_not,  ///< operands[0]
  binary,       ///< op, operands[0..1]
  compare,      ///< operands[0], then one operand for each of ops
  concat,       ///< operands (at least two)
  logical_and,
  logical_or,           ///< operands[0..1]
  conditional,          ///< operands: test, then, otherwise (may be null)
  attribute,            ///< operands[0], text
  item,                 ///< operands: object, index
  slice,                ///< operands: start, stop, step (each may be null)
  call,                 ///< operands: callee, positional...; keywords, extra_args, extra_keywords
  filter,               ///< operands: input (null in a filter block), positional...; id, text
  test,                 ///< operands: input, positional...; id, text
  namespace_attribute,  ///< target of an assignment only: name, text
};

enum class BinaryOp : uint8_t { add, sub, mul, div, floordiv, mod, pow };
enum class CompareOp : uint8_t { eq, ne, lt, le, gt, ge, in, not_in };

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

/// Names that a scope makes its own before it assigns them, with the undefined value that they have until
/// then.
using Hidden = std::vector<std::pair<int, Value>>;

struct Keyword {
  std::string name;
  ExprPtr value;
};

struct Expr {
  Expr(ExprKind k, int l) : kind(k), line(l) {}
  ExprKind kind;
  BinaryOp op = BinaryOp::add;
  int line;
  int height = 1;
  int name = -1;  ///< index into Template::names
  int id = -1;    ///< of a filter or test, -1 where unknown (an error only when it is reached)
  Value value;
  std::string text;  ///< attribute, filter or test name
  std::vector<ExprPtr> operands;
  std::vector<CompareOp> ops;
  std::vector<Keyword> keywords;
  ExprPtr extra_args, extra_keywords;  ///< *args and **kwargs
};

enum class StmtKind : uint8_t {
  text,          ///< text
  output,        ///< expr
  print,         ///< values
  if_,           ///< branches: (test, body)..., body is else
  for_,          ///< target, expr (iterable), test (may be null), body, orelse; recursive
  set,           ///< target, expr
  set_block,     ///< target, expr (a filter chain without input, may be null), body
  macro,         ///< macro
  call_block,    ///< macro (the caller), expr (the call)
  filter_block,  ///< expr (a filter chain without input), body
  with,          ///< targets, values, body
  generation,    ///< body: what the assistant said; renders as it is
  break_,
  continue_,
};

struct Stmt;
using Body = std::vector<std::unique_ptr<Stmt>>;

struct Branch {
  ExprPtr test;
  Body body;
};

/// A macro or the body of a call block.
struct MacroDef {
  int name = -1;                  ///< index into Template::names; -1 for a call block
  std::string text;               ///< its name as written; empty for a call block
  std::vector<int> parameters;    ///< indices into Template::names
  std::vector<ExprPtr> defaults;  ///< of the last parameters
  bool uses_caller = false, uses_kwargs = false, uses_varargs = false;
  Hidden hidden;
  Body body;
};

struct Stmt {
  Stmt(StmtKind k, int l) : kind(k), line(l) {}
  StmtKind kind;
  bool recursive = false;
  int line;
  std::string text;
  ExprPtr expr, target, test;
  std::vector<Branch> branches;
  std::vector<ExprPtr> targets, values;
  Body body, orelse;
  Hidden hidden, hidden_else;
  std::unique_ptr<MacroDef> macro;
};

struct Template {
  Heap constants{kBaseHeapBytes};
  std::vector<std::string> names;  ///< every identifier that the template uses as a variable
  std::unordered_map<std::string, int> name_ids;
  /// Index into names, -1 where the template does not use the name.
  int find_name(const std::string& name) const {
    auto at = name_ids.find(name);
    return at != name_ids.end() ? at->second : -1;
  }
  Hidden hidden;
  Body body;
};

}  // namespace quintet::jinja
