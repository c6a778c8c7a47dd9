// Renders a parsed template: walks its tree over scopes, within the limits of value.h.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/jinja/ast.h"
#include "text/jinja/value.h"

namespace quintet::jinja {

/// Arguments of a call, evaluated.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

/// Arguments of a built-in matched to its parameter names, as Python would.
class Bound {
 public:
  /// Names that start with '/' take no keyword. Fails on too many, unknown, doubled or missing arguments.
  Bound(std::string_view function, Arguments& args, std::initializer_list<std::string_view> names,
        size_t required = 0);
  /// The argument, or null where it was not given.
  const Value* operator[](size_t i) const { return values_[i]; }
  /// The argument where it was given and is not none.
  const Value* some(size_t i) const {
    return values_[i] != nullptr && !values_[i]->is_none() ? values_[i] : nullptr;
  }
  int64_t integer(size_t i, int64_t otherwise) const;
  std::string_view text(size_t i) const;  ///< must have been given, and be a string
  bool truth(size_t i, bool otherwise) const;

 private:
  std::string_view function_;
  std::string_view names_[8];
  const Value* values_[8] = {};
};

/// A scope: the variables set in it, and the scope around it.
struct Frame : Object {
  explicit Frame(Value p) : parent(std::move(p)) {}
  Value parent;  ///< a Frame, or none at the root
  std::vector<std::pair<int, Value>> variables;
};

struct Macro : Object {
  Macro(const MacroDef* d, Value s) : def(d), scope(std::move(s)) {}
  const MacroDef* def;
  Value scope;  ///< the Frame it was defined in
};

enum class FunctionId : uint8_t { range, dict, namespace_, raise_exception, strftime_now, joiner, cycler };

/// A global function, or an object of one (joiner, cycler) with its state.
struct Function : Object {
  Function(FunctionId i, std::string_view n) : id(i), name(n) {}
  FunctionId id;
  std::string_view name;
  bool made = false;  ///< a joiner or cycler, not the function that makes one
  std::vector<Value> values;
  size_t at = 0;
};

class Interpreter;
using MethodFunction = Value (*)(Interpreter&, const Value& self, Arguments& args);

/// A method of a value, not yet called.
struct Method : Object {
  Method(Value s, std::string_view n, MethodFunction f) : self(std::move(s)), name(n), function(f) {}
  Value self;
  std::string_view name;
  MethodFunction function;  ///< null: Python has it, we refuse it
};

/// What `loop` is: walks its iterable one ahead where it is asked about the next item.
struct Loop : Object {
  Value source, iterator;  ///< what is iterated (for its length), and an Iterator over it
  Value previous, current, after;
  bool has_after = false;
  int64_t index0 = -1;
  int64_t length = -1;  ///< -1: not yet known
  int depth0 = 0;
  const Stmt* recursive = nullptr;
  Value scope;  ///< of a recursive loop: the Frame around it
  std::vector<Value> changed;
  bool has_changed = false;
};

class Interpreter {
 public:
  Interpreter(const Template& parsed, Heap& heap, int64_t now_unix_s)
      : template_(parsed), heap_(heap), now_unix_s_(now_unix_s) {}

  /// Gives a variable to the template.
  void define(std::string_view name, Value value);
  std::string render();
  int line() const { return line_; }
  Heap& heap() { return heap_; }
  int64_t now_unix_s() const { return now_unix_s_; }

  // Python's protocols (operators.cpp, iteration.cpp).
  static bool truth(const Value& v);
  bool equals(const Value& a, const Value& b, int depth = 0);
  bool is_less(const Value& a, const Value& b, int depth = 0);  ///< a < b; an error where they have no order
  bool compare(CompareOp op, const Value& a, const Value& b);
  bool contains(const Value& container, const Value& item);
  Value binary(BinaryOp op, const Value& a, const Value& b);
  Value attribute(const Value& object, std::string_view name);
  Value item(const Value& object, const Value& index);
  Value slice(const Value& object, const Value& start, const Value& stop, const Value& step);
  int64_t length(const Value& v);
  Value iterate(const Value& v);               ///< an Iterator
  std::vector<Value> collect(const Value& v);  ///< list(v)
  Value call(const Value& callee, Arguments& args);
  bool has_filter(std::string_view name) const;
  Value apply_filter(int id, std::string_view name, const Value& input, Arguments& args);
  bool apply_test(int id, std::string_view name, const Value& input, Arguments& args);

  Value string(std::string text, bool markup = false) { return heap_.string(std::move(text), markup); }
  std::string str(const Value& v);  ///< Python's str()
  Value str_value(const Value& v) { return v.is_string() ? v : string(str(v)); }
  [[noreturn]] void fail_undefined(const Value& v) const;
  /// A method or the like of the object, not an entry of a dict; false where there is none.
  bool own_attribute(const Value& object, std::string_view name, Value& out);

  /// Counts a level of nesting; fails where there are too many.
  struct Level {
    explicit Level(Interpreter& i) : interpreter(i) {
      if (++i.depth_ > kMaxEvalDepth) i.fail_depth();
    }
    ~Level() { --interpreter.depth_; }
    Interpreter& interpreter;
  };

 private:
  enum class Flow : uint8_t { normal, break_, continue_ };
  [[noreturn]] void fail_depth();

  Value eval(const Expr& e);
  Value eval_name(const Expr& e);
  Value eval_compare(const Expr& e);
  Value eval_concat(const Expr& e);
  Value eval_dict(const Expr& e);
  Value eval_item(const Expr& e);
  Value eval_call(const Expr& e, const Value* caller = nullptr);
  Value eval_filter(const Expr& e, const Value* input = nullptr);
  bool eval_test(const Expr& e);
  Arguments eval_arguments(const Expr& e, size_t first);

  Flow exec(const Body& body);
  Flow exec_if(const Stmt& s);
  Flow exec_for(const Stmt& s);
  void run_loop(const Stmt& s, const Value& iterable, const Value& scope, int depth0);
  void exec_set(const Stmt& s);
  void exec_with(const Stmt& s);
  void exec_call_block(const Stmt& s);
  Value capture(const Body& body, const Value& scope);
  void assign(const Expr& target, Value value);
  void set_variable(int name, Value value);
  void write(std::string_view text);
  void write_value(const Value& v);

  Value call_macro(const Macro& macro, Arguments& args);
  Value call_function(Function& function, Arguments& args);
  Value call_loop(Loop& loop, Arguments& args);
  Value make_frame(const Value& parent, const Hidden& hidden);
  Frame& frame() { return scope_.as<Frame>(); }

  const Template& template_;
  Heap& heap_;
  int64_t now_unix_s_;
  int line_ = 1;
  int depth_ = 0;
  std::vector<std::pair<bool, Value>> globals_;  ///< by name
  int loop_name_ = -1, caller_name_ = -1, kwargs_name_ = -1, varargs_name_ = -1;
  Value scope_;  ///< the current Frame
  std::string* out_ = nullptr;
};

// Printing (printing.cpp).
void append_str(Interpreter& interpreter, std::string& out, const Value& v);
void append_repr(Interpreter& interpreter, std::string& out, const Value& v, int depth = 0);
std::string real_repr(double d);

struct JsonOptions {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator = ", ", key_separator = ": ";
};
void append_json(Interpreter& interpreter, std::string& out, const Value& v, const JsonOptions& options,
                 int depth = 0);

// Methods (methods_*.cpp): null where Python's type has no such attribute.
struct MethodEntry {
  std::string_view name;
  MethodFunction function;
};
const MethodEntry* find_method(const Value& self, std::string_view name);
bool is_mutating(const Value& self, std::string_view name);

// Formatting (format_text.cpp, format_spec.cpp).
Value format_percent_value(Interpreter& interpreter, const Value& format, const Value& arguments);
std::string format_braces(Interpreter& interpreter, std::string_view format, Arguments& args);
/// Python's format(v, spec).
std::string format_value(Interpreter& interpreter, const Value& v, std::string_view spec);
/// Digits of a non-negative, finite number in one of the styles e, f, g (or E, F, G); `alternate` keeps the
/// point.
std::string real_digits(double d, char style, int precision, bool alternate);
/// Digits of an integer's magnitude in base 2, 8, 10 or 16.
std::string int_digits(const Value& v, int base, bool upper);
bool is_negative(const Value& v);
/// repr() with everything beyond ASCII escaped.
std::string ascii_repr(Interpreter& interpreter, const Value& v);

// Numbers and times (numbers.cpp).
/// strftime in English, of a time in seconds since 1970; a format that is too long is an error.
std::string format_time(std::string_view format, int64_t unix_s);
/// Python's float(text) and int(text, base); false where the text is no such number.
bool parse_real(std::string_view text, double& out);
bool parse_int(Interpreter& interpreter, std::string_view text, int base, Value& out);
/// int(x) of a float: beyond 64 bits it keeps its digits.
Value int_of_real(Interpreter& interpreter, double d);
std::string escape_html(std::string_view text);

}  // namespace quintet::jinja
