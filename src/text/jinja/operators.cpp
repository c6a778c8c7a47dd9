// Python's operators: truth, order, membership and arithmetic.
#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {
namespace {

constexpr std::string_view kOpSigns[] = {"+", "-", "*", "/", "//", "%", "**"};

std::string_view sign(BinaryOp op) { return kOpSigns[static_cast<size_t>(op)]; }

[[noreturn]] void fail_operands(BinaryOp op, const Value& a, const Value& b) {
  if (op == BinaryOp::add && a.is_string())
    fail("can only concatenate str (not \"{}\") to str", type_name(b));
  fail("unsupported operand types for {}: '{}' and '{}'", sign(op), type_name(a), type_name(b));
}

[[noreturn]] void fail_overflow(BinaryOp op) {
  fail("integer overflow: the result of {} is beyond 64 bits", sign(op));
}

int64_t floor_mod(int64_t a, int64_t b) {
  if (b == -1) return 0;
  int64_t m = a % b;
  return m != 0 && (m < 0) != (b < 0) ? m + b : m;
}

int64_t int_power(int64_t base, int64_t exponent) {
  int64_t result = 1;
  while (true) {
    if ((exponent & 1) && __builtin_mul_overflow(result, base, &result)) fail_overflow(BinaryOp::pow);
    exponent >>= 1;
    if (exponent == 0) return result;
    if (__builtin_mul_overflow(base, base, &base)) fail_overflow(BinaryOp::pow);
  }
}

double real_mod(double a, double b) {
  double m = std::fmod(a, b);
  if (m == 0) return std::copysign(0.0, b);
  return (m < 0) != (b < 0) ? m + b : m;
}

double real_floordiv(double a, double b) {
  double m = std::fmod(a, b);
  double quotient = (a - m) / b;
  if (m != 0 && (m < 0) != (b < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double floored = std::floor(quotient);
  return quotient - floored > 0.5 ? floored + 1 : floored;
}

double real_power(double a, double b) {
  if (a == 0 && b < 0) fail("zero cannot be raised to a negative power");
  if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::floor(b)) {
    fail("a negative number raised to a fraction is a complex number");
  }
  double result = std::pow(a, b);
  if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) fail("the result of ** is too large");
  return result;
}

Value int_binary(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::add:
      if (__builtin_add_overflow(a, b, &result)) fail_overflow(op);
      return Value::integer(result);
    case BinaryOp::sub:
      if (__builtin_sub_overflow(a, b, &result)) fail_overflow(op);
      return Value::integer(result);
    case BinaryOp::mul:
      if (__builtin_mul_overflow(a, b, &result)) fail_overflow(op);
      return Value::integer(result);
    case BinaryOp::div:
      if (b == 0) fail("division by zero");
      return Value::real(static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
    case BinaryOp::floordiv:
      if (b == 0) fail("integer division or modulo by zero");
      if (b == -1) return int_binary(BinaryOp::sub, 0, a);
      return Value::integer((a - floor_mod(a, b)) / b);
    case BinaryOp::mod:
      if (b == 0) fail("integer division or modulo by zero");
      return Value::integer(floor_mod(a, b));
    case BinaryOp::pow:
      if (b < 0) return Value::real(real_power(static_cast<double>(a), static_cast<double>(b)));
      if (a == 0 || a == 1) return Value::integer(b == 0 ? 1 : a);
      if (a == -1) return Value::integer(b % 2 == 0 ? 1 : -1);
      if (b > 63) fail_overflow(op);
      return Value::integer(int_power(a, b));
  }
  return {};
}

Value real_binary(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::add: return Value::real(a + b);
    case BinaryOp::sub: return Value::real(a - b);
    case BinaryOp::mul: return Value::real(a * b);
    case BinaryOp::pow: return Value::real(real_power(a, b));
    default: break;
  }
  if (b == 0) fail("float division by zero");
  if (op == BinaryOp::div) return Value::real(a / b);
  return Value::real(op == BinaryOp::mod ? real_mod(a, b) : real_floordiv(a, b));
}

double to_real(const Value& v) { return v.is(Type::real) ? v.as_real() : static_cast<double>(v.as_int()); }

/// text * times; refused before it is built where it would be too long.
Value repeat(Interpreter& in, const Value& sequence, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (sequence.is_string()) {
    std::string_view text = sequence.text();
    if (text.empty() || times == 0) return in.string("", sequence.string().markup);
    if (static_cast<uint64_t>(times) > kMaxTextBytes / text.size()) {
      fail("a text of {} bytes repeated {} times; {} bytes are allowed", text.size(), times, kMaxTextBytes);
    }
    std::string out;
    out.reserve(text.size() * static_cast<size_t>(times));
    for (int64_t i = 0; i < times; ++i) out += text;
    in.heap().spend(times >> 6);
    return in.string(std::move(out), sequence.string().markup);
  }
  const auto& items = sequence.items();
  constexpr uint64_t kMaxItems = 1u << 20;
  if (!items.empty() && static_cast<uint64_t>(times) > kMaxItems / items.size()) {
    fail("a {} of {} items repeated {} times; {} items are allowed", type_name(sequence), items.size(), times,
         kMaxItems);
  }
  std::vector<Value> out;
  out.reserve(items.size() * static_cast<size_t>(times));
  for (int64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  in.heap().spend(static_cast<int64_t>(out.size() >> 2));
  return sequence.is(Type::list) ? in.heap().list(std::move(out)) : in.heap().tuple(std::move(out));
}

Value concatenate(Interpreter& in, const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) {
    bool markup = a.string().markup || b.string().markup;
    in.heap().check_text(a.text().size() + b.text().size());
    std::string out;
    out += markup && !a.string().markup ? escape_html(a.text()) : a.text();
    out += markup && !b.string().markup ? escape_html(b.text()) : b.text();
    return in.string(std::move(out), markup);
  }
  if (a.type() != b.type() || !a.is_sequence()) fail_operands(BinaryOp::add, a, b);
  std::vector<Value> out;
  out.reserve(a.items().size() + b.items().size());
  out = a.items();
  out.insert(out.end(), b.items().begin(), b.items().end());
  in.heap().spend(static_cast<int64_t>(out.size() >> 2));
  return a.is(Type::list) ? in.heap().list(std::move(out)) : in.heap().tuple(std::move(out));
}

/// The keys of a dict's view, or its pairs: what set operations on views compare.
bool is_set_like(const Value& v) { return v.is(Type::view) && v.as<View>().kind != View::Kind::values; }

}  // namespace

bool Interpreter::truth(const Value& v) {
  switch (v.type()) {
    case Type::none:
    case Type::undefined: return false;
    case Type::boolean:
    case Type::integer: return v.as_int() != 0;
    case Type::real: return v.as_real() != 0;
    case Type::string: return !v.text().empty();
    case Type::list:
    case Type::tuple: return !v.items().empty();
    case Type::dict: return !v.dict().entries.empty();
    case Type::range: return v.as<Range>().length != 0;
    case Type::view: return !v.as<View>().dict.dict().entries.empty();
    default: return true;
  }
}

int64_t Interpreter::length(const Value& v) {
  switch (v.type()) {
    case Type::string: return v.string().length;
    case Type::list:
    case Type::tuple: return static_cast<int64_t>(v.items().size());
    case Type::dict: return static_cast<int64_t>(v.dict().entries.size());
    case Type::range: return v.as<Range>().length;
    case Type::view: return static_cast<int64_t>(v.as<View>().dict.dict().entries.size());
    case Type::undefined: return 0;
    case Type::loop: return attribute(v, "length").as_int();
    default: fail("object of type '{}' has no len()", type_name(v));
  }
}

bool Interpreter::equals(const Value& a, const Value& b, int depth) {
  if (depth > kMaxDataDepth) fail("values nested more than {} deep cannot be compared", kMaxDataDepth);
  heap_.spend(1);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (is_set_like(a) && is_set_like(b)) {
    if (length(a) != length(b)) return false;
    for (const Value& item : collect(a)) {
      if (!contains(b, item)) return false;
    }
    return true;
  }
  if (a.type() != b.type()) return false;
  switch (a.type()) {
    case Type::none:
    case Type::undefined: return true;
    case Type::string:
      heap_.spend_bytes(std::min(a.text().size(), b.text().size()));
      return a.text() == b.text();
    case Type::list:
    case Type::tuple: {
      const auto &x = a.items(), &y = b.items();
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i) {
        // Python compares identity first: a NaN equals itself inside of a list.
        bool same_object =
            x[i].type() == y[i].type() && x[i].type() >= Type::undefined && x[i].object() == y[i].object();
        if (!same_object && !equals(x[i], y[i], depth + 1)) return false;
      }
      return true;
    }
    case Type::dict: {
      const auto& x = a.dict();
      if (x.entries.size() != b.dict().entries.size()) return false;
      for (const auto& [key, value] : x.entries) {
        heap_.spend(1);
        const Value* other = b.dict().find(key);
        if (other == nullptr || !equals(value, *other, depth + 1)) return false;
      }
      return true;
    }
    case Type::range: {
      const Range &x = a.as<Range>(), &y = b.as<Range>();
      return x.length == y.length &&
             (x.length == 0 || (x.start == y.start && (x.length == 1 || x.step == y.step)));
    }
    case Type::method: {
      const Method &x = a.as<Method>(), &y = b.as<Method>();
      return x.name == y.name && x.self.object() == y.self.object();
    }
    default: return a.object() == b.object();
  }
}

bool Interpreter::is_less(const Value& a, const Value& b, int depth) {
  if (depth > kMaxDataDepth) fail("values nested more than {} deep cannot be compared", kMaxDataDepth);
  heap_.spend(1);
  if (a.is_undefined()) fail_undefined(a);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == -1;
  if (a.is_string() && b.is_string()) {
    heap_.spend_bytes(std::min(a.text().size(), b.text().size()));
    return a.text() < b.text();  // the order of UTF-8 is the order of code points
  }
  if (a.is_sequence() && a.type() == b.type()) {
    const auto &x = a.items(), &y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equals(x[i], y[i], depth + 1)) return is_less(x[i], y[i], depth + 1);
    }
    return x.size() < y.size();
  }
  fail("'<' or '>' not supported between instances of '{}' and '{}'", type_name(a), type_name(b));
}

bool Interpreter::compare(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::eq: return equals(a, b);
    case CompareOp::ne: return !equals(a, b);
    case CompareOp::in: return contains(b, a);
    case CompareOp::not_in: return !contains(b, a);
    case CompareOp::lt: return is_less(a, b);
    case CompareOp::gt: return is_less(b, a);
    default: break;
  }
  if (a.is_number() && b.is_number()) {
    int order = compare_numbers(a, b);
    return op == CompareOp::le ? order == -1 || order == 0 : order == 0 || order == 1;
  }
  return op == CompareOp::le ? is_less(a, b) || equals(a, b) : is_less(b, a) || equals(a, b);
}

bool Interpreter::contains(const Value& container, const Value& item) {
  switch (container.type()) {
    case Type::string:
      if (!item.is_string()) fail("'in <string>' requires string as left operand, not {}", type_name(item));
      heap_.spend_bytes(container.text().size());
      return find_text(container.text(), item.text()) != std::string_view::npos;
    case Type::dict:
      if (item.is_string()) heap_.spend_bytes(item.text().size() * 4);
      return container.dict().find(item) != nullptr;
    case Type::undefined: return false;
    case Type::view: {
      const View& view = container.as<View>();
      if (view.kind == View::Kind::keys) return view.dict.dict().find(item) != nullptr;
      break;
    }
    case Type::range:
      if (item.is_number()) {
        const Range& range = container.as<Range>();
        if (item.is(Type::big)) return false;
        double d = to_real(item);
        if (d != std::floor(d) || std::abs(d) > 9e15) return false;
        int64_t offset = static_cast<int64_t>(d) - range.start;
        return offset % range.step == 0 && offset / range.step >= 0 && offset / range.step < range.length;
      }
      break;
    case Type::list:
    case Type::tuple:
      for (const Value& v : container.items()) {
        bool same_object =
            v.type() >= Type::undefined && v.type() == item.type() && v.object() == item.object();
        if (same_object || equals(v, item)) return true;
      }
      return false;
    case Type::iterator:
    case Type::loop: break;
    default: fail("argument of type '{}' is not iterable", type_name(container));
  }
  Value iterator = iterate(container);
  for (Value v; iterator.as<Iterator>().next(v);) {
    if (equals(v, item)) return true;
  }
  return false;
}

Value Interpreter::binary(BinaryOp op, const Value& a, const Value& b) {
  if (a.is_undefined()) fail_undefined(a);
  if (op == BinaryOp::mod && a.is_string()) return format_percent_value(*this, a, b);
  if (b.is_undefined()) fail_undefined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is(Type::big) || b.is(Type::big)) fail("arithmetic on integers beyond 64 bits is not supported");
    if (a.is_int() && b.is_int()) return int_binary(op, a.as_int(), b.as_int());
    return real_binary(op, to_real(a), to_real(b));
  }
  if (op == BinaryOp::add) return concatenate(*this, a, b);
  if (op == BinaryOp::mul) {
    if (b.is_int() && (a.is_string() || a.is_sequence())) return repeat(*this, a, b.as_int());
    if (a.is_int() && (b.is_string() || b.is_sequence())) return repeat(*this, b, a.as_int());
  }
  if (op == BinaryOp::sub && is_set_like(a))
    fail("sets are not supported: {} - {}", type_name(a), type_name(b));
  fail_operands(op, a, b);
}

}  // namespace quintet::jinja
