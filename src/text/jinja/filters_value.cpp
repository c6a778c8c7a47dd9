// Filters over single values: numbers, defaults, attributes.
#include <algorithm>
#include <cmath>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"

namespace quintet::jinja {
namespace {

Value default_value(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("default", args, {"default_value", "boolean"});
  if (!input.is_undefined() && !(bound.truth(1, false) && !in.truth(input))) return input;
  return bound[0] != nullptr ? *bound[0] : in.string("");
}

Value absolute(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("abs", args, {});
  if (input.is_undefined()) in.fail_undefined(input);
  if (input.is(Type::real)) return Value::real(std::abs(input.as_real()));
  if (!input.is_int()) fail("bad operand type for abs(): '{}'", type_name(input));
  if (input.as_int() >= 0) return Value::integer(input.as_int());
  return in.binary(BinaryOp::sub, Value::integer(0), input);
}

Value to_int(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("int", args, {"default", "base"});
  Value otherwise = bound[0] != nullptr ? *bound[0] : Value::integer(0);
  if (input.is_undefined()) in.fail_undefined(input);
  if (input.is_int()) return Value::integer(input.as_int());
  if (input.is(Type::big)) return input;
  if (input.is(Type::real)) return std::isnan(input.as_real()) ? otherwise : int_of_real(in, input.as_real());
  if (!input.is_string()) return otherwise;
  in.heap().spend_bytes(input.text().size() * 4);
  Value parsed;
  auto base = static_cast<int>(std::clamp<int64_t>(bound.integer(1, 10), -1, 99));
  bool base_ok = base == 0 || (base >= 2 && base <= 36);
  if (base_ok && parse_int(in, input.text(), base, parsed)) return parsed;
  double d = 0;
  if (parse_real(input.text(), d) && std::isfinite(d)) return int_of_real(in, d);
  return otherwise;
}

Value to_float(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("float", args, {"default"});
  if (input.is_undefined()) in.fail_undefined(input);
  if (input.is(Type::real)) return input;
  if (input.is_int()) return Value::real(static_cast<double>(input.as_int()));
  double d = 0;
  if (input.is(Type::big) && parse_real(input.as<Big>().digits, d)) return Value::real(d);
  if (input.is_string()) {
    in.heap().spend_bytes(input.text().size() * 4);
    if (parse_real(input.text(), d)) return Value::real(d);
  }
  return bound[0] != nullptr ? *bound[0] : Value::real(0);
}

/// round(d, digits) as Python does it: over the exact decimal expansion, halves to even.
double round_real(double d, int64_t digits) {
  if (!std::isfinite(d) || d == 0 || digits > 320) return d;
  if (digits < -310) return std::copysign(0.0, d);
  if (digits >= 0) {
    std::string text = fmt::format("{:.{}f}", d, static_cast<int>(digits));
    return std::strtod(text.c_str(), nullptr);
  }
  double scale = std::pow(10.0, static_cast<double>(-digits));
  return std::nearbyint(d / scale) * scale;
}

int64_t round_int(int64_t value, int64_t digits) {
  if (digits >= 0) return value;
  if (digits < -18) return 0;
  int64_t scale = 1;
  for (int64_t i = 0; i < -digits; ++i) scale *= 10;
  int64_t rest = value % scale;
  if (rest < 0) rest += scale;
  int64_t down = 0;
  if (__builtin_sub_overflow(value, rest, &down)) fail("integer overflow in round");
  bool up = rest > scale - rest || (rest == scale - rest && (down / scale) % 2 != 0);
  int64_t result = down;
  if (up && __builtin_add_overflow(down, scale, &result)) fail("integer overflow in round");
  return result;
}

Value round_value(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("round", args, {"precision", "method"});
  std::string_view method = bound[1] != nullptr && bound[1]->is_string() ? bound.text(1)
                            : bound[1] != nullptr                        ? ""
                                                                         : "common";
  if (method != "common" && method != "ceil" && method != "floor")
    fail("method must be common, ceil or floor");
  if (input.is_undefined()) in.fail_undefined(input);
  if (!input.is_number() || input.is(Type::big)) fail("round expects a number, not {}", type_name(input));
  if (method == "common") {
    if (bound[0] != nullptr && bound[0]->is_none()) {
      return input.is_int() ? Value::integer(input.as_int())
                            : int_of_real(in, std::nearbyint(input.as_real()));
    }
    int64_t digits = bound.integer(0, 0);
    if (input.is_int()) return Value::integer(round_int(input.as_int(), digits));
    double rounded = round_real(input.as_real(), digits);
    if (std::isinf(rounded) && std::isfinite(input.as_real())) fail("rounded value too large to represent");
    return Value::real(rounded);
  }
  Value scale = in.binary(BinaryOp::pow, Value::integer(10), Value::integer(bound.integer(0, 0)));
  Value scaled = in.binary(BinaryOp::mul, input, scale);
  if (scaled.is(Type::real)) {
    double d = scaled.as_real();
    scaled = int_of_real(in, method == "ceil" ? std::ceil(d) : std::floor(d));
  }
  return in.binary(BinaryOp::div, scaled, scale);
}

Value filesizeformat(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("filesizeformat", args, {"binary"});
  bool binary = bound.truth(0, false);
  Arguments none;
  double bytes = 0;
  if (input.is_undefined()) in.fail_undefined(input);
  if (input.is_string() ? !parse_real(input.text(), bytes) : !input.is_number()) {
    fail("filesizeformat expects a number, not {}", type_name(input));
  }
  if (!input.is_string()) bytes = to_float(in, input, none).as_real();
  double base = binary ? 1024 : 1000;
  if (bytes == 1) return in.string("1 Byte");
  if (bytes < base) return in.string(in.str(int_of_real(in, bytes)) + " Bytes");
  constexpr std::string_view kPrefixes = "kMGTPEZY";
  double unit = base;
  for (size_t i = 0; i < kPrefixes.size(); ++i) {
    unit *= base;
    if (bytes < unit || i + 1 == kPrefixes.size()) {
      char prefix = binary && i == 0 ? 'K' : kPrefixes[i];
      return in.string(fmt::format("{:.1f} {}{}", base * bytes / unit, prefix, binary ? "iB" : "B"));
    }
  }
  return {};
}

Value attribute(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("attr", args, {"name"}, 1);
  if (input.is_undefined()) {
    // An undefined value answers for names of Python's own with another undefined value, and for others with its error.
    if (!bound.text(0).starts_with("__")) in.fail_undefined(input);
    return in.heap().undefined(fmt::format("'Undefined' object has no attribute '{}'", bound.text(0)));
  }
  Value found;
  if (in.own_attribute(input, bound.text(0), found)) return found;
  return in.heap().undefined(
      fmt::format("'{} object' has no attribute '{}'", type_name(input), bound.text(0)));
}

Value count(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("length", args, {});
  return Value::integer(in.length(input));
}

constexpr FilterEntry kFilters[] = {
    {"abs", absolute},          {"attr", attribute},
    {"count", count},           {"d", default_value},
    {"default", default_value}, {"filesizeformat", filesizeformat},
    {"float", to_float},        {"int", to_int},
    {"length", count},          {"round", round_value},
};

}  // namespace

std::span<const FilterEntry> value_filters() { return kFilters; }

}  // namespace quintet::jinja
