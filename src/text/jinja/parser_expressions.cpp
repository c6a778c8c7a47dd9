// Expressions: precedence as in jinja2's grammar, from the conditional down to names and literals.
#include <algorithm>
#include <charconv>

#include "text/jinja/parser_impl.h"
#include "text/jinja/registry.h"

namespace quintet::jinja {
namespace {

/// Counts a level of recursion for as long as it lives.
struct Level {
  explicit Level(int& depth) : depth(depth) { ++depth; }
  ~Level() { --depth; }
  int& depth;
};

}  // namespace

void Parser::set_height(Expr& parent, const Expr* child) const {
  if (child == nullptr) return;
  parent.height = std::max(parent.height, child->height + 1);
  if (parent.height > kMaxExpressionHeight) {
    fail_at(parent.line, fmt::format("an expression nested more than {} deep", kMaxExpressionHeight));
  }
}

void Parser::add(Expr& parent, ExprPtr child) const {
  set_height(parent, child.get());
  parent.operands.push_back(std::move(child));
}

ExprPtr Parser::constant(Value value, int line) const {
  ExprPtr node = make(ExprKind::constant, line);
  node->value = std::move(value);
  return node;
}

ExprPtr Parser::parse_expression(bool with_conditional) {
  Level level(depth_);
  if (depth_ > kMaxExpressionHeight) {
    fail_at(current().line, fmt::format("an expression nested more than {} deep", kMaxExpressionHeight));
  }
  ExprPtr node = parse_or();
  while (with_conditional && at_name("if")) {
    int line = take().line;
    ExprPtr conditional = make(ExprKind::conditional, line);
    add(*conditional, parse_or());
    add(*conditional, std::move(node));
    add(*conditional, skip_name("else") ? parse_expression() : nullptr);
    node = std::move(conditional);
  }
  return node;
}

ExprPtr Parser::parse_or() {
  ExprPtr left = parse_and();
  while (at_name("or")) {
    ExprPtr node = make(ExprKind::logical_or, take().line);
    add(*node, std::move(left));
    add(*node, parse_and());
    left = std::move(node);
  }
  return left;
}

ExprPtr Parser::parse_and() {
  ExprPtr left = parse_not();
  while (at_name("and")) {
    ExprPtr node = make(ExprKind::logical_and, take().line);
    add(*node, std::move(left));
    add(*node, parse_not());
    left = std::move(node);
  }
  return left;
}

ExprPtr Parser::parse_not() {
  if (!at_name("not")) return parse_compare();
  Level level(depth_);
  if (depth_ > kMaxExpressionHeight) fail_at(current().line, "too many 'not' in a row");
  ExprPtr node = make(ExprKind::logical_not, take().line);
  add(*node, parse_not());
  return node;
}

ExprPtr Parser::parse_compare() {
  ExprPtr left = parse_sum();
  ExprPtr node;
  auto append = [&](CompareOp op, int tokens) {
    if (node == nullptr) {
      node = make(ExprKind::compare, current().line);
      add(*node, std::move(left));
    }
    for (int i = 0; i < tokens; ++i) take();
    node->ops.push_back(op);
    add(*node, parse_sum());
  };
  while (true) {
    switch (current().kind) {
      case TokenKind::eq: append(CompareOp::eq, 1); continue;
      case TokenKind::ne: append(CompareOp::ne, 1); continue;
      case TokenKind::lt: append(CompareOp::lt, 1); continue;
      case TokenKind::lteq: append(CompareOp::le, 1); continue;
      case TokenKind::gt: append(CompareOp::gt, 1); continue;
      case TokenKind::gteq: append(CompareOp::ge, 1); continue;
      default: break;
    }
    if (at_name("in")) {
      append(CompareOp::in, 1);
    } else if (at_name("not") && ahead().kind == TokenKind::name && ahead().text == "in") {
      append(CompareOp::not_in, 2);
    } else {
      return node != nullptr ? std::move(node) : std::move(left);
    }
  }
}

ExprPtr Parser::parse_sum() {
  ExprPtr left = parse_concat();
  while (at_kind(TokenKind::add) || at_kind(TokenKind::sub)) {
    BinaryOp op = at_kind(TokenKind::add) ? BinaryOp::add : BinaryOp::sub;
    ExprPtr node = make(ExprKind::binary, take().line);
    node->op = op;
    add(*node, std::move(left));
    add(*node, parse_concat());
    left = std::move(node);
  }
  return left;
}

ExprPtr Parser::parse_concat() {
  ExprPtr first = parse_product();
  if (!at_kind(TokenKind::tilde)) return first;
  ExprPtr node = make(ExprKind::concat, current().line);
  add(*node, std::move(first));
  while (skip(TokenKind::tilde)) add(*node, parse_product());
  return node;
}

ExprPtr Parser::parse_product() {
  ExprPtr left = parse_power();
  while (true) {
    BinaryOp op;
    switch (current().kind) {
      case TokenKind::mul: op = BinaryOp::mul; break;
      case TokenKind::div: op = BinaryOp::div; break;
      case TokenKind::floordiv: op = BinaryOp::floordiv; break;
      case TokenKind::mod: op = BinaryOp::mod; break;
      default: return left;
    }
    ExprPtr node = make(ExprKind::binary, take().line);
    node->op = op;
    add(*node, std::move(left));
    add(*node, parse_power());
    left = std::move(node);
  }
}

ExprPtr Parser::parse_power() {
  ExprPtr left = parse_unary();
  while (at_kind(TokenKind::pow)) {  // to the left, unlike Python
    ExprPtr node = make(ExprKind::binary, take().line);
    node->op = BinaryOp::pow;
    add(*node, std::move(left));
    add(*node, parse_unary());
    left = std::move(node);
  }
  return left;
}

ExprPtr Parser::parse_unary(bool with_filter) {
  ExprPtr node;
  if (at_kind(TokenKind::sub) || at_kind(TokenKind::add)) {
    Level level(depth_);
    if (depth_ > kMaxExpressionHeight) fail_at(current().line, "too many signs in a row");
    node = make(at_kind(TokenKind::sub) ? ExprKind::negate : ExprKind::plus, current().line);
    take();
    add(*node, parse_unary(false));
  } else {
    node = parse_primary();
  }
  node = parse_postfix(std::move(node));
  return with_filter ? parse_filters_and_tests(std::move(node)) : std::move(node);
}

ExprPtr Parser::parse_primary(bool with_namespace) {
  const Token& token = current();
  int line = token.line;
  switch (token.kind) {
    case TokenKind::name: {
      take();
      if (token.text == "true" || token.text == "True") return constant(Value::boolean(true), line);
      if (token.text == "false" || token.text == "False") return constant(Value::boolean(false), line);
      if (token.text == "none" || token.text == "None") return constant(Value(), line);
      ExprPtr node = make(ExprKind::name, line);
      node->name = intern(token.text);
      if (with_namespace && skip(TokenKind::dot)) {
        node->kind = ExprKind::namespace_attribute;
        node->text = expect(TokenKind::name, "the name of an attribute").text;
        return node;
      }
      for (MacroDef* macro : macros_) {
        if (token.text == "caller") macro->uses_caller = true;
        if (token.text == "kwargs") macro->uses_kwargs = true;
        if (token.text == "varargs") macro->uses_varargs = true;
      }
      return node;
    }
    case TokenKind::string: {
      std::string text;
      while (at_kind(TokenKind::string)) text += take().text;
      return constant(out_.constants.string(std::move(text)), line);
    }
    case TokenKind::integer:
    case TokenKind::real: return parse_number(take());
    case TokenKind::lparen: {
      take();
      ExprPtr node = parse_tuple({.parentheses = true});
      expect(TokenKind::rparen, "')'");
      return node;
    }
    case TokenKind::lbracket: return parse_list();
    case TokenKind::lbrace: return parse_dict();
    default: fail_here("an expression");
  }
}

ExprPtr Parser::parse_number(const Token& token) {
  std::string_view text = token.text;
  if (token.kind == TokenKind::real) {
    double value = 0;
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error == std::errc::result_out_of_range)
      value = std::strtod(token.text.c_str(), nullptr);  // 0 or infinity
    return constant(Value::real(value), token.line);
  }
  int base = 10;
  if (text.size() > 2 && text[0] == '0') {
    char letter = static_cast<char>(text[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) text.remove_prefix(2);
  }
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error == std::errc()) return constant(Value::integer(value), token.line);
  if (base != 10) fail_at(token.line, fmt::format("the number {} is beyond 64 bits", token.text));
  return constant(Value(Type::big, out_.constants.make<Big>(text.size(), std::string(text))), token.line);
}

ExprPtr Parser::parse_tuple(const TupleOptions& options) {
  ExprPtr tuple = make(ExprKind::tuple, current().line);
  bool is_tuple = false;
  auto at_end = [&] {
    return at_kind(TokenKind::variable_end) || at_kind(TokenKind::block_end) || at_kind(TokenKind::rparen);
  };
  while (true) {
    if (!tuple->operands.empty()) expect(TokenKind::comma, "','");
    if (at_end()) break;
    add(*tuple, options.simplified ? parse_primary(options.with_namespace)
                                   : parse_expression(options.with_conditional));
    if (!at_kind(TokenKind::comma)) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!tuple->operands.empty()) return std::move(tuple->operands[0]);
    if (!options.parentheses) fail_here("an expression");
  }
  return tuple;
}

ExprPtr Parser::parse_list() {
  ExprPtr node = make(ExprKind::list, take().line);
  while (!at_kind(TokenKind::rbracket)) {
    if (!node->operands.empty()) expect(TokenKind::comma, "',' or ']'");
    if (at_kind(TokenKind::rbracket)) break;
    add(*node, parse_expression());
  }
  take();
  return node;
}

ExprPtr Parser::parse_dict() {
  ExprPtr node = make(ExprKind::dict, take().line);
  while (!at_kind(TokenKind::rbrace)) {
    if (!node->operands.empty()) expect(TokenKind::comma, "',' or '}'");
    if (at_kind(TokenKind::rbrace)) break;
    add(*node, parse_expression());
    expect(TokenKind::colon, "':'");
    add(*node, parse_expression());
  }
  take();
  return node;
}

ExprPtr Parser::parse_postfix(ExprPtr node) {
  while (true) {
    if (at_kind(TokenKind::dot) || at_kind(TokenKind::lbracket))
      node = parse_subscript(std::move(node));
    else if (at_kind(TokenKind::lparen))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExprPtr Parser::parse_filters_and_tests(ExprPtr node) {
  while (true) {
    if (at_kind(TokenKind::pipe))
      node = parse_filter_chain(std::move(node), false);
    else if (at_name("is"))
      node = parse_test(std::move(node));
    else if (at_kind(TokenKind::lparen))
      node = parse_call(std::move(node));
    else
      return node;
  }
}

ExprPtr Parser::parse_subscript(ExprPtr node) {
  const Token& open = take();
  if (open.kind == TokenKind::dot) {
    if (at_kind(TokenKind::name)) {
      ExprPtr attribute = make(ExprKind::attribute, open.line);
      attribute->text = take().text;
      add(*attribute, std::move(node));
      return attribute;
    }
    if (!at_kind(TokenKind::integer)) fail_here("a name or number behind '.'");
    ExprPtr item = make(ExprKind::item, open.line);
    add(*item, std::move(node));
    add(*item, parse_number(take()));
    return item;
  }
  ExprPtr item = make(ExprKind::item, open.line);
  add(*item, std::move(node));
  ExprPtr tuple = make(ExprKind::tuple, open.line);
  while (!at_kind(TokenKind::rbracket)) {
    if (!tuple->operands.empty()) expect(TokenKind::comma, "',' or ']'");
    add(*tuple, parse_subscripted());
  }
  take();
  add(*item, tuple->operands.size() == 1 ? std::move(tuple->operands[0]) : std::move(tuple));
  return item;
}

ExprPtr Parser::parse_subscripted() {
  int line = current().line;
  ExprPtr start;
  if (!at_kind(TokenKind::colon)) {
    start = parse_expression();
    if (!at_kind(TokenKind::colon)) return start;
  }
  take();
  ExprPtr slice = make(ExprKind::slice, line);
  add(*slice, std::move(start));
  auto at_end = [&] { return at_kind(TokenKind::rbracket) || at_kind(TokenKind::comma); };
  add(*slice, at_kind(TokenKind::colon) || at_end() ? nullptr : parse_expression());
  bool has_step = skip(TokenKind::colon) && !at_end();
  add(*slice, has_step ? parse_expression() : nullptr);
  return slice;
}

ExprPtr Parser::parse_call(ExprPtr node) {
  ExprPtr call = make(ExprKind::call, current().line);
  add(*call, std::move(node));
  parse_arguments(*call);
  return call;
}

void Parser::parse_arguments(Expr& call) {
  int line = expect(TokenKind::lparen, "'('").line;
  auto ensure = [&](bool ok) {
    if (!ok) fail_at(line, "arguments of a call in a wrong order");
  };
  bool has_positional_end = false;
  for (bool first = true; !at_kind(TokenKind::rparen); first = false) {
    if (!first) {
      expect(TokenKind::comma, "',' or ')'");
      if (at_kind(TokenKind::rparen)) break;
    }
    if (skip(TokenKind::mul)) {
      ensure(call.extra_args == nullptr && call.extra_keywords == nullptr);
      call.extra_args = parse_expression();
      set_height(call, call.extra_args.get());
      has_positional_end = true;
    } else if (skip(TokenKind::pow)) {
      ensure(call.extra_keywords == nullptr);
      call.extra_keywords = parse_expression();
      set_height(call, call.extra_keywords.get());
    } else if (at_kind(TokenKind::name) && ahead().kind == TokenKind::assign) {
      ensure(call.extra_keywords == nullptr);
      std::string name = take().text;
      take();
      if (call.keywords.size() >= kMaxNamedArguments) {
        fail_at(line, fmt::format("more than {} arguments by name", kMaxNamedArguments));
      }
      for (const Keyword& keyword : call.keywords) {
        if (keyword.name == name) fail_at(line, fmt::format("the argument '{}' twice", name));
      }
      ExprPtr value = parse_expression();
      set_height(call, value.get());
      call.keywords.push_back({std::move(name), std::move(value)});
      has_positional_end = true;
    } else {
      ensure(!has_positional_end && call.extra_keywords == nullptr);
      add(call, parse_expression());
    }
  }
  take();
}

std::string Parser::parse_dotted_name(std::string_view what) {
  std::string name = expect(TokenKind::name, what).text;
  while (skip(TokenKind::dot)) name += "." + expect(TokenKind::name, what).text;
  return name;
}

ExprPtr Parser::parse_filter_chain(ExprPtr node, bool start_inline) {
  while (start_inline || at_kind(TokenKind::pipe)) {
    if (!start_inline) take();
    start_inline = false;
    ExprPtr filter = make(ExprKind::filter, current().line);
    filter->text = parse_dotted_name("the name of a filter");
    filter->id = find_filter(filter->text);
    add(*filter, std::move(node));
    if (at_kind(TokenKind::lparen)) parse_arguments(*filter);
    node = std::move(filter);
  }
  return node;
}

ExprPtr Parser::parse_test(ExprPtr node) {
  int line = take().line;
  bool negated = skip_name("not");
  ExprPtr test = make(ExprKind::test, line);
  test->text = parse_dotted_name("the name of a test");
  test->id = find_test(test->text);
  add(*test, std::move(node));
  if (at_kind(TokenKind::lparen)) {
    parse_arguments(*test);
  } else {
    bool takes_operand = false;
    switch (current().kind) {
      case TokenKind::name: takes_operand = !at_name("else") && !at_name("or") && !at_name("and"); break;
      case TokenKind::string:
      case TokenKind::integer:
      case TokenKind::real:
      case TokenKind::lbracket:
      case TokenKind::lbrace: takes_operand = true; break;
      default: break;
    }
    if (takes_operand) {
      if (at_name("is")) fail_at(line, "tests cannot be chained with 'is'");
      add(*test, parse_postfix(parse_primary()));
    }
  }
  if (!negated) return test;
  ExprPtr node_not = make(ExprKind::logical_not, line);
  add(*node_not, std::move(test));
  return node_not;
}

}  // namespace quintet::jinja
