// The parser's class, shared by its two halves: expressions and statements.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/lexer.h"

namespace quintet::jinja {

class Parser {
 public:
  Parser(std::vector<Token> tokens, Template& out) : tokens_(std::move(tokens)), out_(out) {}

  void run();

 private:
  // Tokens.
  const Token& current() const { return tokens_[at_]; }
  const Token& ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  bool at_kind(TokenKind kind) const { return current().kind == kind; }
  bool at_name(std::string_view name) const { return at_kind(TokenKind::name) && current().text == name; }
  const Token& take();
  bool skip(TokenKind kind);
  bool skip_name(std::string_view name);
  const Token& expect(TokenKind kind, std::string_view what);
  void expect_name(std::string_view name);
  [[noreturn]] void fail_at(int line, std::string message) const;
  [[noreturn]] void fail_here(std::string_view expected) const;
  int intern(const std::string& name);

  // Expressions (parser_expressions.cpp).
  ExprPtr make(ExprKind kind, int line) const { return std::make_unique<Expr>(kind, line); }
  void add(Expr& parent, ExprPtr child) const;
  void set_height(Expr& parent, const Expr* child) const;
  ExprPtr constant(Value value, int line) const;
  ExprPtr parse_expression(bool with_conditional = true);
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  ExprPtr parse_sum();
  ExprPtr parse_concat();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filter = true);
  ExprPtr parse_primary(bool with_namespace = false);
  ExprPtr parse_number(const Token& token);
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr node);
  ExprPtr parse_filters_and_tests(ExprPtr node);
  ExprPtr parse_subscript(ExprPtr node);
  ExprPtr parse_subscripted();
  ExprPtr parse_call(ExprPtr node);
  void parse_arguments(Expr& call);
  ExprPtr parse_filter_chain(ExprPtr node, bool start_inline);
  ExprPtr parse_test(ExprPtr node);
  std::string parse_dotted_name(std::string_view what);

  struct TupleOptions {
    bool simplified = false;  ///< names and literals only
    bool with_conditional = true;
    bool parentheses = false;  ///< an empty tuple is one
    bool with_namespace = false;
  };
  ExprPtr parse_tuple(const TupleOptions& options);

  // Statements (parser_statements.cpp).
  Body parse_body(std::initializer_list<std::string_view> ends);
  Body parse_block(std::initializer_list<std::string_view> ends);
  std::unique_ptr<Stmt> parse_statement();
  std::unique_ptr<Stmt> parse_for(int line);
  std::unique_ptr<Stmt> parse_if(int line);
  std::unique_ptr<Stmt> parse_set(int line);
  std::unique_ptr<Stmt> parse_with(int line);
  std::unique_ptr<Stmt> parse_macro(int line);
  std::unique_ptr<Stmt> parse_call_block(int line);
  std::unique_ptr<Stmt> parse_filter_block(int line);
  std::unique_ptr<Stmt> parse_print(int line);
  std::unique_ptr<Stmt> parse_generation(int line);
  std::unique_ptr<Stmt> parse_jump(StmtKind kind, int line);
  void parse_signature(MacroDef& macro);
  void parse_macro_body(MacroDef& macro, int line, std::string_view end);
  ExprPtr parse_target(bool with_namespace);
  void check_target(const Expr& target) const;

  std::vector<Token> tokens_;
  size_t at_ = 0;
  int depth_ = 0;  ///< of nested parentheses and the like
  int statement_depth_ = 0;
  int loop_depth_ = 0;  ///< loops around, within the innermost macro
  std::vector<MacroDef*> macros_;
  std::vector<std::string> open_;  ///< tags waiting for their end, for messages
  Template& out_;
};

/// Fills in the names that each scope hides (scopes.cpp).
void analyze_scopes(Template& parsed);

}  // namespace quintet::jinja
