// Executes statements: output, scopes, loops, macros.
#include <algorithm>

#include "text/jinja/interpreter.h"

namespace quintet::jinja {
namespace {

/// Puts a value in place of another for as long as it lives.
template <class T>
struct Swap {
  Swap(T& p, T v) : place(p), saved(std::exchange(p, std::move(v))) {}
  ~Swap() { place = std::move(saved); }
  T& place;
  T saved;
};

}  // namespace

std::string Interpreter::render() {
  globals_.resize(template_.names.size());
  struct Global {
    std::string_view name;
    FunctionId id;
  };
  for (const Global& global :
       {Global{"range", FunctionId::range}, Global{"dict", FunctionId::dict},
        Global{"namespace", FunctionId::namespace_}, Global{"raise_exception", FunctionId::raise_exception},
        Global{"strftime_now", FunctionId::strftime_now}, Global{"joiner", FunctionId::joiner},
        Global{"cycler", FunctionId::cycler}}) {
    int id = template_.find_name(std::string(global.name));
    if (id < 0 || globals_[static_cast<size_t>(id)].first) continue;
    globals_[static_cast<size_t>(id)] = {
        true, Value(Type::function, heap_.make<Function>(0, global.id, global.name))};
  }
  loop_name_ = template_.find_name("loop");
  caller_name_ = template_.find_name("caller");
  kwargs_name_ = template_.find_name("kwargs");
  varargs_name_ = template_.find_name("varargs");
  std::string out;
  out_ = &out;
  scope_ = make_frame(Value(), template_.hidden);
  exec(template_.body);
  return out;
}

Value Interpreter::make_frame(const Value& parent, const Hidden& hidden) {
  heap_.spend(static_cast<int64_t>(hidden.size() >> 2));
  Frame* frame = heap_.make<Frame>((hidden.size() + 1) * sizeof(hidden[0]), parent);
  frame->variables = hidden;
  return Value(Type::frame, frame);
}

void Interpreter::write(std::string_view text) {
  if (out_->size() + text.size() > kMaxTextBytes) fail("the output is longer than {} bytes", kMaxTextBytes);
  heap_.charge(text.size());
  heap_.spend_bytes(text.size());
  out_->append(text);
}

void Interpreter::write_value(const Value& v) {
  if (v.is_string()) return write(v.text());
  std::string text;
  append_str(*this, text, v);
  write(text);
}

void Interpreter::set_variable(int name, Value value) {
  auto& variables = frame().variables;
  heap_.spend(static_cast<int64_t>(variables.size() >> 4));
  for (auto& [known, old] : variables) {
    if (known == name) {
      old = std::move(value);
      return;
    }
  }
  heap_.grow(frame(), sizeof(variables[0]));
  variables.emplace_back(name, std::move(value));
}

void Interpreter::assign(const Expr& target, Value value) {
  line_ = target.line;
  if (target.kind == ExprKind::name) return set_variable(target.name, std::move(value));
  if (target.kind == ExprKind::tuple) {
    std::vector<Value> items = collect(value);
    if (items.size() != target.operands.size()) {
      fail("{} values to unpack, expected {}", items.size(), target.operands.size());
    }
    for (size_t i = 0; i < items.size(); ++i) assign(*target.operands[i], std::move(items[i]));
    return;
  }
  Expr name(ExprKind::name, target.line);
  name.name = target.name;
  Value space = eval_name(name);
  if (!space.is(Type::space)) fail("cannot assign attribute on non-namespace object");
  if (target.text.starts_with('_'))
    fail("a namespace cannot have an attribute that starts with '_': '{}'", target.text);
  Namespace& attributes = space.as<Namespace>();
  heap_.spend(static_cast<int64_t>(attributes.attributes.size() * (target.text.size() + 32) >> 8));
  if (Value* old = attributes.find(target.text)) {
    *old = std::move(value);
    return;
  }
  heap_.grow(attributes, sizeof(attributes.attributes[0]) + target.text.size());
  attributes.attributes.emplace_back(target.text, std::move(value));
}

Value Interpreter::capture(const Body& body, const Value& scope) {
  std::string text;
  {
    Swap<std::string*> out(out_, &text);
    Swap<Value> inner(scope_, scope);
    exec(body);
  }
  heap_.uncharge(text.size());
  return string(std::move(text));
}

Interpreter::Flow Interpreter::exec(const Body& body) {
  Level level(*this);
  for (const auto& statement : body) {
    const Stmt& s = *statement;
    heap_.spend(1);
    line_ = s.line;
    switch (s.kind) {
      case StmtKind::text: write(s.text); break;
      case StmtKind::output: write_value(eval(*s.expr)); break;
      case StmtKind::print:
        for (const ExprPtr& value : s.values) write_value(eval(*value));
        break;
      case StmtKind::if_:
        if (Flow flow = exec_if(s); flow != Flow::normal) return flow;
        break;
      case StmtKind::for_:
        if (s.recursive) {
          Loop outer;
          outer.recursive = &s;
          outer.scope = scope_;
          outer.depth0 = -1;
          Arguments args;
          args.positional.push_back(eval(*s.expr));
          write_value(call_loop(outer, args));
        } else {
          run_loop(s, eval(*s.expr), scope_, 0);
        }
        break;
      case StmtKind::set:
      case StmtKind::set_block: exec_set(s); break;
      case StmtKind::macro:
        set_variable(s.macro->name, Value(Type::macro, heap_.make<Macro>(0, s.macro.get(), scope_)));
        break;
      case StmtKind::call_block: exec_call_block(s); break;
      case StmtKind::filter_block: {
        // The filter's own arguments are evaluated in the block's scope, as jinja2 does.
        Value scope = make_frame(scope_, s.hidden);
        Value text = capture(s.body, scope);
        Swap<Value> inner(scope_, scope);
        write_value(eval_filter(*s.expr, &text));
        break;
      }
      case StmtKind::with: exec_with(s); break;
      case StmtKind::generation: write_value(capture(s.body, make_frame(scope_, s.hidden))); break;
      case StmtKind::break_: return Flow::break_;
      case StmtKind::continue_: return Flow::continue_;
    }
  }
  return Flow::normal;
}

Interpreter::Flow Interpreter::exec_if(const Stmt& s) {
  for (const Branch& branch : s.branches) {
    if (truth(eval(*branch.test))) return exec(branch.body);
  }
  return exec(s.orelse);
}

void Interpreter::exec_set(const Stmt& s) {
  if (s.kind == StmtKind::set) return assign(*s.target, eval(*s.expr));
  Value scope = make_frame(scope_, s.hidden);
  Value text = capture(s.body, scope);
  if (s.expr != nullptr) {
    Swap<Value> inner(scope_, scope);
    text = eval_filter(*s.expr, &text);
  }
  assign(*s.target, std::move(text));
}

void Interpreter::exec_with(const Stmt& s) {
  Value scope = make_frame(scope_, s.hidden);
  std::vector<Value> values;
  for (const ExprPtr& value : s.values) values.push_back(eval(*value));
  Swap<Value> inner(scope_, scope);
  for (size_t i = 0; i < values.size(); ++i) assign(*s.targets[i], std::move(values[i]));
  exec(s.body);
}

void Interpreter::exec_call_block(const Stmt& s) {
  Value caller(Type::macro, heap_.make<Macro>(0, s.macro.get(), scope_));
  write_value(eval_call(*s.expr, &caller));
}

namespace {

/// The items of a loop for which its inline test holds.
struct TestedItems : Iterator {
  TestedItems(Value s, bool (*t)(void*, Value&), void* c)
      : Iterator("generator"), source(std::move(s)), test(t), context(c) {}
  Value source;
  bool (*test)(void*, Value&);
  void* context;
  bool next(Value& out) override {
    while (source.as<Iterator>().next(out)) {
      if (test(context, out)) return true;
    }
    return false;
  }
};

}  // namespace

/// Runs the body for each item, in a scope of its own each time.
void Interpreter::run_loop(const Stmt& s, const Value& iterable, const Value& outer, int depth0) {
  Level level(*this);
  Loop* loop = heap_.make<Loop>(0);
  Value loop_value(Type::loop, loop);
  loop->depth0 = depth0;
  loop->source = iterable;
  loop->iterator = iterate(iterable);
  if (s.recursive) {
    loop->recursive = &s;
    loop->scope = outer;
  }
  struct Test {
    Interpreter& interpreter;
    const Stmt& s;
    const Value& outer;
  } test{*this, s, outer};
  if (s.test != nullptr) {
    auto holds = [](void* context, Value& item) {
      auto& t = *static_cast<Test*>(context);
      t.interpreter.heap_.spend(1);
      Swap<Value> inner(t.interpreter.scope_, t.interpreter.make_frame(t.outer, {}));
      t.interpreter.assign(*t.s.target, item);
      return t.interpreter.truth(t.interpreter.eval(*t.s.test));
    };
    loop->iterator = Value(Type::iterator, heap_.make<TestedItems>(0, loop->iterator, holds, &test));
    loop->source = loop->iterator;
  }
  bool completed_one = false;  // `else` runs where no iteration reached its end, as jinja2 compiles it
  while (true) {
    heap_.spend(2);  // a scope of its own is made, too
    Value item;
    if (loop->has_after) {
      item = std::move(loop->after);
      loop->has_after = false;
    } else if (!loop->iterator.as<Iterator>().next(item)) {
      break;
    }
    ++loop->index0;
    loop->previous = std::move(loop->current);
    loop->current = item;
    Swap<Value> inner(scope_, make_frame(outer, s.hidden));
    if (loop_name_ >= 0) set_variable(loop_name_, loop_value);
    assign(*s.target, std::move(item));
    Flow flow = exec(s.body);
    if (flow == Flow::break_) break;
    if (flow == Flow::normal) completed_one = true;
  }
  if (!completed_one && !s.orelse.empty()) {
    Swap<Value> inner(scope_, make_frame(outer, s.hidden_else));
    exec(s.orelse);
  }
  // The test's context ends here, and so must every reference to it.
  if (s.test != nullptr) loop->iterator = loop->source = iterate(heap_.list({}));
}

Value Interpreter::call_loop(Loop& loop, Arguments& args) {
  if (loop.recursive == nullptr) fail("the loop must have the 'recursive' marker to be called recursively");
  Bound bound("loop", args, {"/iterable"}, 1);
  std::string text;
  {
    Swap<std::string*> out(out_, &text);
    Swap<Value> inner(scope_, loop.scope);
    Value scope = loop.scope;
    run_loop(*loop.recursive, *bound[0], scope, loop.depth0 + 1);
  }
  heap_.uncharge(text.size());
  return string(std::move(text));
}

Value Interpreter::call_macro(const Macro& macro, Arguments& args) {
  Level level(*this);
  const MacroDef& def = *macro.def;
  Value scope = make_frame(macro.scope, def.hidden);
  auto& variables = scope.as<Frame>().variables;
  const size_t count = def.parameters.size();
  auto take_keyword = [&](std::string_view name, Value& out) {
    for (auto at = args.keywords.begin(); at != args.keywords.end(); ++at) {
      if (at->first != name) continue;
      out = std::move(at->second);
      args.keywords.erase(at);
      return true;
    }
    return false;
  };
  Swap<Value> inner(scope_, scope);
  std::vector<size_t> missing;
  bool has_caller = false;
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = template_.names[static_cast<size_t>(def.parameters[i])];
    has_caller |= name == "caller";
    Value value;
    if (i < args.positional.size())
      value = args.positional[i];
    else if (!take_keyword(name, value)) {
      missing.push_back(i);
      value = heap_.undefined(fmt::format("parameter '{}' was not provided", name));
    }
    variables.emplace_back(def.parameters[i], std::move(value));
  }
  if (def.uses_caller && !has_caller && caller_name_ >= 0) {
    Value value;
    if (!take_keyword("caller", value) || value.is_none()) value = heap_.undefined("No caller defined");
    variables.emplace_back(caller_name_, std::move(value));
  }
  if (def.uses_kwargs) {
    std::vector<std::pair<Value, Value>> entries;
    for (auto& [name, value] : args.keywords) entries.emplace_back(string(name), value);
    variables.emplace_back(kwargs_name_, heap_.dict(std::move(entries)));
  } else if (!args.keywords.empty()) {
    fail("macro '{}' takes no keyword argument '{}'", def.text, args.keywords[0].first);
  }
  if (def.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    variables.emplace_back(varargs_name_, heap_.tuple(std::move(rest)));
  } else if (args.positional.size() > count) {
    fail("macro '{}' takes not more than {} argument(s)", def.text, count);
  }
  for (size_t i : missing) {
    size_t with_default = count - def.defaults.size();
    if (i < with_default) continue;
    Value value = eval(*def.defaults[i - with_default]);
    set_variable(def.parameters[i], std::move(value));
  }
  return capture(def.body, scope);
}

}  // namespace quintet::jinja
