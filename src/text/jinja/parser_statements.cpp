// Statements: text, print tags and blocks, and what the parser does with tokens.
#include <fmt/format.h>

#include <algorithm>

#include "text/jinja/parser.h"
#include "text/jinja/parser_impl.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {

const Token& Parser::take() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool Parser::skip(TokenKind kind) {
  if (!at_kind(kind)) return false;
  take();
  return true;
}

bool Parser::skip_name(std::string_view name) {
  if (!at_name(name)) return false;
  take();
  return true;
}

const Token& Parser::expect(TokenKind kind, std::string_view what) {
  if (!at_kind(kind)) fail_here(what);
  return take();
}

void Parser::expect_name(std::string_view name) {
  if (!skip_name(name)) fail_here(fmt::format("'{}'", name));
}

void Parser::fail_at(int line, std::string message) const { throw SyntaxFault{line, std::move(message)}; }

void Parser::fail_here(std::string_view expected) const {
  std::string message = fmt::format("found {}, expected {}", describe(current()), expected);
  if (at_kind(TokenKind::end) && !open_.empty()) message += fmt::format("; '{}' is still open", open_.back());
  fail_at(current().line, std::move(message));
}

int Parser::intern(const std::string& name) {
  auto [at, added] = out_.name_ids.try_emplace(name, static_cast<int>(out_.names.size()));
  if (added) out_.names.push_back(name);
  return at->second;
}

void Parser::run() {
  out_.body = parse_body({});
  if (!at_kind(TokenKind::end)) fail_here("the end of the template");
}

/// Statements until a tag named one of `ends` (whose name is then current) or the template's end.
Body Parser::parse_body(std::initializer_list<std::string_view> ends) {
  Body body;
  if (++statement_depth_ > kMaxStatementDepth) {
    fail_at(current().line, fmt::format("blocks nested more than {} deep", kMaxStatementDepth));
  }
  while (!at_kind(TokenKind::end)) {
    const Token& token = take();
    if (token.kind == TokenKind::data) {
      auto text = std::make_unique<Stmt>(StmtKind::text, token.line);
      text->text = token.text;
      body.push_back(std::move(text));
    } else if (token.kind == TokenKind::variable_begin) {
      auto output = std::make_unique<Stmt>(StmtKind::output, token.line);
      output->expr = parse_tuple({});
      expect(TokenKind::variable_end, "'}}'");
      body.push_back(std::move(output));
    } else {  // block_begin: the lexer gives nothing else between tags
      if (at_kind(TokenKind::name) && std::find(ends.begin(), ends.end(), current().text) != ends.end())
        break;
      body.push_back(parse_statement());
      expect(TokenKind::block_end, "'%}'");
    }
  }
  --statement_depth_;
  return body;
}

/// A block's body behind its opening tag, up to a tag named one of `ends`.
Body Parser::parse_block(std::initializer_list<std::string_view> ends) {
  skip(TokenKind::colon);
  expect(TokenKind::block_end, "'%}'");
  Body body = parse_body(ends);
  if (at_kind(TokenKind::end)) {
    fail_at(current().line, fmt::format("the template ends, but '{}' is still open (expected '{}')",
                                        open_.back(), fmt::join(ends, "' or '")));
  }
  return body;
}

std::unique_ptr<Stmt> Parser::parse_statement() {
  if (!at_kind(TokenKind::name)) fail_here("the name of a tag");
  const Token& tag = take();
  int line = tag.line;
  const std::string& name = tag.text;
  open_.push_back(name);
  std::unique_ptr<Stmt> statement;
  if (name == "for")
    statement = parse_for(line);
  else if (name == "if")
    statement = parse_if(line);
  else if (name == "set")
    statement = parse_set(line);
  else if (name == "with")
    statement = parse_with(line);
  else if (name == "macro")
    statement = parse_macro(line);
  else if (name == "call")
    statement = parse_call_block(line);
  else if (name == "filter")
    statement = parse_filter_block(line);
  else if (name == "print")
    statement = parse_print(line);
  else if (name == "generation")
    statement = parse_generation(line);
  else if (name == "break")
    statement = parse_jump(StmtKind::break_, line);
  else if (name == "continue")
    statement = parse_jump(StmtKind::continue_, line);
  else {
    open_.pop_back();
    for (std::string_view refused : {"block", "extends", "include", "import", "from", "autoescape"}) {
      if (name == refused)
        fail_at(line, fmt::format("the tag '{}' is not supported in chat templates", name));
    }
    std::string message = fmt::format("unknown tag '{}'", name);
    if (!open_.empty()) message += fmt::format("; '{}' is still open", open_.back());
    fail_at(line, std::move(message));
  }
  open_.pop_back();
  return statement;
}

void Parser::check_target(const Expr& target) const {
  switch (target.kind) {
    case ExprKind::name:
    case ExprKind::namespace_attribute: return;
    case ExprKind::tuple:
      for (const ExprPtr& item : target.operands) check_target(*item);
      return;
    default: fail_at(target.line, "cannot assign to an expression, only to names");
  }
}

ExprPtr Parser::parse_target(bool with_namespace) {
  // Names that are assigned to are not read: they must not count as uses of `caller` and the like.
  std::vector<MacroDef*> macros = std::exchange(macros_, {});
  ExprPtr target = parse_tuple({.simplified = true, .with_namespace = with_namespace});
  macros_ = std::move(macros);
  check_target(*target);
  return target;
}

std::unique_ptr<Stmt> Parser::parse_for(int line) {
  auto loop = std::make_unique<Stmt>(StmtKind::for_, line);
  loop->target = parse_target(false);
  if (loop->target->kind == ExprKind::name && out_.names[static_cast<size_t>(loop->target->name)] == "loop") {
    fail_at(line, "'loop' cannot be the variable of a loop");
  }
  expect_name("in");
  loop->expr = parse_tuple({.with_conditional = false});
  if (skip_name("if")) loop->test = parse_expression();
  loop->recursive = skip_name("recursive");
  ++loop_depth_;
  loop->body = parse_block({"endfor", "else"});
  --loop_depth_;
  if (take().text == "else") {
    loop->orelse = parse_block({"endfor"});
    take();
  }
  return loop;
}

std::unique_ptr<Stmt> Parser::parse_if(int line) {
  auto node = std::make_unique<Stmt>(StmtKind::if_, line);
  while (true) {
    Branch branch;
    branch.test = parse_tuple({.with_conditional = false});
    branch.body = parse_block({"elif", "else", "endif"});
    node->branches.push_back(std::move(branch));
    const std::string& tag = take().text;
    if (tag == "elif") continue;
    if (tag == "else") {
      node->orelse = parse_block({"endif"});
      take();
    }
    return node;
  }
}

std::unique_ptr<Stmt> Parser::parse_set(int line) {
  auto node = std::make_unique<Stmt>(StmtKind::set, line);
  node->target = parse_target(true);
  if (skip(TokenKind::assign)) {
    node->expr = parse_tuple({});
    return node;
  }
  node->kind = StmtKind::set_block;
  node->expr = parse_filter_chain(nullptr, false);
  node->body = parse_block({"endset"});
  take();
  return node;
}

std::unique_ptr<Stmt> Parser::parse_with(int line) {
  auto node = std::make_unique<Stmt>(StmtKind::with, line);
  while (!at_kind(TokenKind::block_end)) {
    if (!node->targets.empty()) expect(TokenKind::comma, "','");
    node->targets.push_back(parse_target(false));
    expect(TokenKind::assign, "'='");
    node->values.push_back(parse_expression());
  }
  node->body = parse_block({"endwith"});
  take();
  return node;
}

void Parser::parse_signature(MacroDef& macro) {
  expect(TokenKind::lparen, "'('");
  while (!at_kind(TokenKind::rparen)) {
    if (!macro.parameters.empty()) expect(TokenKind::comma, "',' or ')'");
    const Token& token = expect(TokenKind::name, "the name of a parameter");
    int name = intern(token.text);
    if (macro.parameters.size() >= kMaxNamedArguments) {
      fail_at(token.line, fmt::format("more than {} parameters", kMaxNamedArguments));
    }
    if (std::find(macro.parameters.begin(), macro.parameters.end(), name) != macro.parameters.end()) {
      fail_at(token.line, fmt::format("the parameter '{}' twice", token.text));
    }
    if (skip(TokenKind::assign))
      macro.defaults.push_back(parse_expression());
    else if (!macro.defaults.empty())
      fail_at(token.line, "a parameter without a default behind one that has it");
    macro.parameters.push_back(name);
  }
  take();
}

void Parser::parse_macro_body(MacroDef& macro, int line, std::string_view end) {
  macros_.push_back(&macro);
  int loops = std::exchange(loop_depth_, 0);
  macro.body = parse_block({end});
  loop_depth_ = loops;
  macros_.pop_back();
  take();
  auto is_parameter = [&](std::string_view name) {
    return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                       [&](int p) { return out_.names[static_cast<size_t>(p)] == name; });
  };
  if (is_parameter("caller") && macro.uses_caller && macro.defaults.empty()) {
    fail_at(line, "the parameter 'caller' needs a default");
  }
  if (is_parameter("kwargs")) macro.uses_kwargs = false;
  if (is_parameter("varargs")) macro.uses_varargs = false;
}

std::unique_ptr<Stmt> Parser::parse_macro(int line) {
  auto node = std::make_unique<Stmt>(StmtKind::macro, line);
  node->macro = std::make_unique<MacroDef>();
  MacroDef& macro = *node->macro;
  macro.text = expect(TokenKind::name, "the name of the macro").text;
  macro.name = intern(macro.text);
  parse_signature(macro);
  parse_macro_body(macro, line, "endmacro");
  return node;
}

std::unique_ptr<Stmt> Parser::parse_call_block(int line) {
  auto node = std::make_unique<Stmt>(StmtKind::call_block, line);
  node->macro = std::make_unique<MacroDef>();
  if (at_kind(TokenKind::lparen)) parse_signature(*node->macro);
  node->expr = parse_expression();
  if (node->expr->kind != ExprKind::call) fail_at(line, "'call' expects the call of a macro");
  parse_macro_body(*node->macro, line, "endcall");
  return node;
}

std::unique_ptr<Stmt> Parser::parse_filter_block(int line) {
  auto node = std::make_unique<Stmt>(StmtKind::filter_block, line);
  node->expr = parse_filter_chain(nullptr, true);
  node->body = parse_block({"endfilter"});
  take();
  return node;
}

std::unique_ptr<Stmt> Parser::parse_print(int line) {
  auto node = std::make_unique<Stmt>(StmtKind::print, line);
  while (!at_kind(TokenKind::block_end)) {
    if (!node->values.empty()) expect(TokenKind::comma, "','");
    node->values.push_back(parse_expression());
  }
  return node;
}

std::unique_ptr<Stmt> Parser::parse_generation(int line) {
  auto node = std::make_unique<Stmt>(StmtKind::generation, line);
  int loops = std::exchange(loop_depth_, 0);  // a function of its own, as Transformers defines the tag
  node->body = parse_block({"endgeneration"});
  loop_depth_ = loops;
  take();
  return node;
}

std::unique_ptr<Stmt> Parser::parse_jump(StmtKind kind, int line) {
  if (loop_depth_ == 0)
    fail_at(line, kind == StmtKind::break_ ? "'break' outside of a loop" : "'continue' outside of a loop");
  return std::make_unique<Stmt>(kind, line);
}

std::unique_ptr<Template> parse_template(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    fail("a template of {} bytes; {} are allowed", source.size(), kMaxTemplateBytes);
  }
  if (auto at = find_invalid_utf8(source)) fail("the template is not valid UTF-8 (at byte {})", *at);
  auto result = std::make_unique<Template>();
  Parser(tokenize(source), *result).run();
  analyze_scopes(*result);
  result->constants.freeze();
  return result;
}

}  // namespace quintet::jinja
