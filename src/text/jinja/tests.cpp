// The tests behind `is`.
#include <algorithm>
#include <iterator>

#include "text/jinja/interpreter.h"
#include "text/jinja/methods_string.h"
#include "text/jinja/registry.h"

namespace quintet::jinja {
namespace {

using T = const Value&;

template <bool (*holds)(T)>
bool plain(Interpreter&, T v, Arguments& args) {
  Bound bound("test", args, {});
  return holds(v);
}

template <CompareOp op>
bool comparison(Interpreter& in, T v, Arguments& args) {
  Bound bound("test", args, {"/other"}, 1);
  return in.compare(op, v, *bound[0]);
}

bool is_defined(T v) { return !v.is_undefined(); }
bool is_undefined(T v) { return v.is_undefined(); }
bool is_none(T v) { return v.is_none(); }
bool is_boolean(T v) { return v.is(Type::boolean); }
bool is_true(T v) { return v.is(Type::boolean) && v.as_bool(); }
bool is_false(T v) { return v.is(Type::boolean) && !v.as_bool(); }
bool is_integer(T v) { return v.is(Type::integer) || v.is(Type::big); }
bool is_float(T v) { return v.is(Type::real); }
bool is_number(T v) { return v.is_number(); }
bool is_string(T v) { return v.is_string(); }
bool is_mapping(T v) { return v.is(Type::dict); }
bool is_escaped(T v) { return v.is_string() && v.string().markup; }

bool is_iterable(T v) {
  switch (v.type()) {
    case Type::undefined:
    case Type::string:
    case Type::list:
    case Type::tuple:
    case Type::dict:
    case Type::range:
    case Type::view:
    case Type::iterator:
    case Type::loop: return true;
    default: return false;
  }
}

bool is_sequence(T v) {
  return v.is_sequence() || v.is_string() || v.is(Type::dict) || v.is(Type::range) || v.is_undefined();
}

bool is_callable(T v) {
  if (v.is(Type::function)) return v.as<Function>().id != FunctionId::cycler || !v.as<Function>().made;
  return v.is(Type::macro) || v.is(Type::method) || v.is(Type::loop) || v.is_undefined();
}

bool odd(Interpreter& in, T v, Arguments& args) {
  Bound bound("odd", args, {});
  return in.equals(in.binary(BinaryOp::mod, v, Value::integer(2)), Value::integer(1));
}

bool even(Interpreter& in, T v, Arguments& args) {
  Bound bound("even", args, {});
  return in.equals(in.binary(BinaryOp::mod, v, Value::integer(2)), Value::integer(0));
}

bool divisibleby(Interpreter& in, T v, Arguments& args) {
  Bound bound("divisibleby", args, {"num"}, 1);
  return in.equals(in.binary(BinaryOp::mod, v, *bound[0]), Value::integer(0));
}

bool lower(Interpreter& in, T v, Arguments& args) {
  Bound bound("lower", args, {});
  std::string text = in.str(v);
  in.heap().spend_bytes(text.size() * 4);
  return is_lower_text(text);
}

bool upper(Interpreter& in, T v, Arguments& args) {
  Bound bound("upper", args, {});
  std::string text = in.str(v);
  in.heap().spend_bytes(text.size() * 4);
  return is_upper_text(text);
}

bool sameas(Interpreter& in, T v, Arguments& args) {
  Bound bound("sameas", args, {"other"}, 1);
  const Value& other = *bound[0];
  if (v.type() != other.type()) return false;
  return v.type() >= Type::undefined ? v.object() == other.object()
         : v.is(Type::real)          ? false
                                     : in.equals(v, other);
}

bool in_container(Interpreter& in, T v, Arguments& args) {
  Bound bound("in", args, {"seq"}, 1);
  return in.contains(*bound[0], v);
}

bool is_filter(Interpreter&, T v, Arguments& args) {
  Bound bound("filter", args, {});
  compare_keys(v, v);  // an unhashable value is an error
  return v.is_string() && find_filter(v.text()) >= 0;
}

bool is_test(Interpreter&, T v, Arguments& args) {
  Bound bound("test", args, {});
  compare_keys(v, v);
  return v.is_string() && find_test(v.text()) >= 0;
}

struct TestEntry {
  std::string_view name;
  TestFunction function;
};

constexpr TestEntry kTests[] = {
    {"!=", comparison<CompareOp::ne>},
    {"<", comparison<CompareOp::lt>},
    {"<=", comparison<CompareOp::le>},
    {"==", comparison<CompareOp::eq>},
    {">", comparison<CompareOp::gt>},
    {">=", comparison<CompareOp::ge>},
    {"boolean", plain<is_boolean>},
    {"callable", plain<is_callable>},
    {"defined", plain<is_defined>},
    {"divisibleby", divisibleby},
    {"eq", comparison<CompareOp::eq>},
    {"equalto", comparison<CompareOp::eq>},
    {"escaped", plain<is_escaped>},
    {"even", even},
    {"false", plain<is_false>},
    {"filter", is_filter},
    {"float", plain<is_float>},
    {"ge", comparison<CompareOp::ge>},
    {"greaterthan", comparison<CompareOp::gt>},
    {"gt", comparison<CompareOp::gt>},
    {"in", in_container},
    {"integer", plain<is_integer>},
    {"iterable", plain<is_iterable>},
    {"le", comparison<CompareOp::le>},
    {"lessthan", comparison<CompareOp::lt>},
    {"lower", lower},
    {"lt", comparison<CompareOp::lt>},
    {"mapping", plain<is_mapping>},
    {"ne", comparison<CompareOp::ne>},
    {"none", plain<is_none>},
    {"number", plain<is_number>},
    {"odd", odd},
    {"sameas", sameas},
    {"sequence", plain<is_sequence>},
    {"string", plain<is_string>},
    {"test", is_test},
    {"true", plain<is_true>},
    {"undefined", plain<is_undefined>},
    {"upper", upper},
};

}  // namespace

int find_test(std::string_view name) {
  auto at =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const TestEntry& e) { return e.name == name; });
  return at != std::end(kTests) ? static_cast<int>(at - std::begin(kTests)) : -1;
}

TestFunction test_function(int id) { return kTests[id].function; }

}  // namespace quintet::jinja
