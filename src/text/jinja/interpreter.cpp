// Evaluates expressions.
#include "text/jinja/interpreter.h"

#include <algorithm>

#include "text/jinja/registry.h"

namespace quintet::jinja {

void Interpreter::fail_depth() { fail("evaluation nested more than {} deep", kMaxEvalDepth); }

void Interpreter::fail_undefined(const Value& v) const { fail("{}", v.as<Undefined>().hint); }

void Interpreter::define(std::string_view name, Value value) {
  globals_.resize(template_.names.size());
  int id = template_.find_name(std::string(name));
  if (id >= 0) globals_[static_cast<size_t>(id)] = {true, std::move(value)};
}

Value Interpreter::eval(const Expr& e) {
  Level level(*this);
  heap_.spend(1);
  line_ = e.line;
  switch (e.kind) {
    case ExprKind::constant: return e.value;
    case ExprKind::name: return eval_name(e);
    case ExprKind::tuple:
    case ExprKind::list: {
      std::vector<Value> items;
      items.reserve(e.operands.size());
      for (const ExprPtr& operand : e.operands) items.push_back(eval(*operand));
      return e.kind == ExprKind::tuple ? heap_.tuple(std::move(items)) : heap_.list(std::move(items));
    }
    case ExprKind::dict: return eval_dict(e);
    case ExprKind::negate:
    case ExprKind::plus: {
      Value v = eval(*e.operands[0]);
      line_ = e.line;
      if (v.is_undefined()) fail_undefined(v);
      bool minus = e.kind == ExprKind::negate;
      if (v.is_int()) return minus ? binary(BinaryOp::sub, Value::integer(0), v) : Value::integer(v.as_int());
      if (v.is(Type::real)) return Value::real(minus ? -v.as_real() : v.as_real());
      if (v.is(Type::big) && !minus) return v;
      if (v.is(Type::big)) {
        std::string digits = v.as<Big>().digits;
        digits = digits.starts_with('-') ? digits.substr(1) : "-" + digits;
        if (digits == "-9223372036854775808") return Value::integer(INT64_MIN);
        size_t bytes = digits.size();
        return Value(Type::big, heap_.make<Big>(bytes, std::move(digits)));
      }
      fail("bad operand type for unary {}: '{}'", minus ? '-' : '+', type_name(v));
    }
    case ExprKind::logical_not: return Value::boolean(!truth(eval(*e.operands[0])));
    case ExprKind::binary: {
      Value a = eval(*e.operands[0]);
      Value b = eval(*e.operands[1]);
      line_ = e.line;
      return binary(e.op, a, b);
    }
    case ExprKind::compare: return eval_compare(e);
    case ExprKind::concat: return eval_concat(e);
    case ExprKind::logical_and: {
      Value a = eval(*e.operands[0]);
      return truth(a) ? eval(*e.operands[1]) : a;
    }
    case ExprKind::logical_or: {
      Value a = eval(*e.operands[0]);
      return truth(a) ? a : eval(*e.operands[1]);
    }
    case ExprKind::conditional: {
      if (truth(eval(*e.operands[0]))) return eval(*e.operands[1]);
      if (e.operands[2] != nullptr) return eval(*e.operands[2]);
      return heap_.undefined(fmt::format(
          "the inline if-expression on line {} evaluated to false and no else section was defined.", e.line));
    }
    case ExprKind::attribute: {
      Value object = eval(*e.operands[0]);
      line_ = e.line;
      return attribute(object, e.text);
    }
    case ExprKind::item: return eval_item(e);
    case ExprKind::slice: fail("a slice outside of [...] with one index is not supported");
    case ExprKind::call: return eval_call(e);
    case ExprKind::filter: return eval_filter(e);
    case ExprKind::test: return Value::boolean(eval_test(e));
    case ExprKind::namespace_attribute: break;  // only ever a target
  }
  fail("an expression that cannot be evaluated");
}

Value Interpreter::eval_name(const Expr& e) {
  for (const Value* scope = &scope_; scope->is(Type::frame); scope = &scope->as<Frame>().parent) {
    const auto& variables = scope->as<Frame>().variables;
    heap_.spend(static_cast<int64_t>((variables.size() + 8) >> 4));
    for (const auto& [name, value] : variables) {
      if (name == e.name) return value;
    }
  }
  const auto& [defined, value] = globals_[static_cast<size_t>(e.name)];
  if (defined) return value;
  return heap_.undefined(fmt::format("'{}' is undefined", template_.names[static_cast<size_t>(e.name)]));
}

Value Interpreter::eval_compare(const Expr& e) {
  Value left = eval(*e.operands[0]);
  for (size_t i = 0; i < e.ops.size(); ++i) {
    Value right = eval(*e.operands[i + 1]);
    line_ = e.line;
    if (!compare(e.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Value Interpreter::eval_concat(const Expr& e) {
  std::vector<Value> parts;
  parts.reserve(e.operands.size());
  for (const ExprPtr& operand : e.operands) parts.push_back(eval(*operand));
  std::string text;
  for (const Value& part : parts) {
    append_str(*this, text, part);
    heap_.check_text(text.size());
  }
  return string(std::move(text));
}

Value Interpreter::eval_dict(const Expr& e) {
  std::vector<std::pair<Value, Value>> entries;
  entries.reserve(e.operands.size() / 2);
  for (size_t i = 0; i < e.operands.size(); i += 2) {
    Value key = eval(*e.operands[i]);
    Value value = eval(*e.operands[i + 1]);
    entries.emplace_back(std::move(key), std::move(value));
  }
  line_ = e.line;
  return heap_.dict(std::move(entries));
}

Value Interpreter::eval_item(const Expr& e) {
  Value object = eval(*e.operands[0]);
  const Expr& index = *e.operands[1];
  if (index.kind != ExprKind::slice) {
    Value key = eval(index);
    line_ = e.line;
    return item(object, key);
  }
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (index.operands[i] != nullptr) bounds[i] = eval(*index.operands[i]);
  }
  line_ = e.line;
  return slice(object, bounds[0], bounds[1], bounds[2]);
}

Arguments Interpreter::eval_arguments(const Expr& e, size_t first) {
  Arguments args;
  for (size_t i = first; i < e.operands.size(); ++i) args.positional.push_back(eval(*e.operands[i]));
  if (e.extra_args != nullptr) {
    for (Value& v : collect(eval(*e.extra_args))) args.positional.push_back(std::move(v));
  }
  for (const Keyword& keyword : e.keywords) args.keywords.emplace_back(keyword.name, eval(*keyword.value));
  if (e.extra_keywords != nullptr) {
    Value extra = eval(*e.extra_keywords);
    if (!extra.is(Type::dict)) fail("the argument behind ** must be a dict, not {}", type_name(extra));
    const size_t given = args.keywords.size();
    for (const auto& [key, value] : extra.dict().entries) {
      if (!key.is_string()) fail("keywords must be strings, not {}", type_name(key));
      heap_.spend(1);
      for (size_t i = 0; i < given; ++i) {
        if (args.keywords[i].first == key.text()) fail("the argument '{}' was given twice", key.text());
      }
      args.keywords.emplace_back(key.text(), value);
    }
  }
  return args;
}

Value Interpreter::eval_call(const Expr& e, const Value* caller) {
  Value callee = eval(*e.operands[0]);
  Arguments args = eval_arguments(e, 1);
  if (caller != nullptr) args.keywords.emplace_back("caller", *caller);
  line_ = e.line;
  return call(callee, args);
}

Value Interpreter::eval_filter(const Expr& e, const Value* input) {
  // A chain in a filter or set block ends in a filter without an input of its own.
  Value value = e.operands[0] == nullptr ? *input
                : input != nullptr && e.operands[0]->kind == ExprKind::filter
                    ? eval_filter(*e.operands[0], input)
                    : eval(*e.operands[0]);
  Arguments args = eval_arguments(e, 1);
  line_ = e.line;
  return apply_filter(e.id, e.text, value, args);
}

bool Interpreter::eval_test(const Expr& e) {
  Value value = eval(*e.operands[0]);
  Arguments args = eval_arguments(e, 1);
  line_ = e.line;
  return apply_test(e.id, e.text, value, args);
}

Value Interpreter::apply_filter(int id, std::string_view name, const Value& input, Arguments& args) {
  heap_.spend(1);
  if (id < 0) fail("no filter named '{}'", name);
  Level level(*this);
  return filter_function(id)(*this, input, args);
}

bool Interpreter::apply_test(int id, std::string_view name, const Value& input, Arguments& args) {
  heap_.spend(1);
  if (id < 0) fail("no test named '{}'", name);
  Level level(*this);
  return test_function(id)(*this, input, args);
}

}  // namespace quintet::jinja
