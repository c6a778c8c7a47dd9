// Attributes, items, slices and calls.
#include <algorithm>
#include <cmath>
#include <ctime>

#include "base/printable.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {
namespace {

/// Start, stop and step of a slice over `length` items, as Python clips them; `count` items result.
struct Span {
  int64_t start, stop, step, count;
};

int64_t slice_bound(const Value& v, int64_t otherwise) {
  if (v.is_none()) return otherwise;
  if (v.is(Type::big)) return v.as<Big>().digits.starts_with('-') ? INT64_MIN : INT64_MAX;
  if (!v.is_int()) fail("slice indices must be integers or None, not {}", type_name(v));
  return v.as_int();
}

Span clip_slice(int64_t length, const Value& start, const Value& stop, const Value& step) {
  Span s{};
  s.step = std::max<int64_t>(slice_bound(step, 1), -INT64_MAX);
  if (s.step == 0) fail("slice step cannot be zero");
  bool back = s.step < 0;
  auto clip = [&](int64_t at) {
    if (at < 0) at += length;
    return at < 0 ? (back ? -1 : 0) : at >= length ? (back ? length - 1 : length) : at;
  };
  s.start = start.is_none() ? (back ? length - 1 : 0) : clip(slice_bound(start, 0));
  s.stop = stop.is_none() ? (back ? -1 : length) : clip(slice_bound(stop, 0));
  // Counted without overflow: the step can be anything.
  if (back)
    s.count = s.stop < s.start ? (s.start - s.stop - 1) / -s.step + 1 : 0;
  else
    s.count = s.start < s.stop ? (s.stop - s.start - 1) / s.step + 1 : 0;
  return s;
}

std::string slice_text(const String& string, const Span& s) {
  std::string_view text = string.text;
  if (s.count == 0) return {};
  if (string.ascii()) {
    if (s.step == 1)
      return std::string(text.substr(static_cast<size_t>(s.start), static_cast<size_t>(s.count)));
    std::string out;
    for (int64_t i = 0; i < s.count; ++i) out += text[static_cast<size_t>(s.start + i * s.step)];
    return out;
  }
  if (s.step == 1) {
    size_t begin = byte_of_code_point(text, s.start);
    return std::string(text.substr(begin, byte_of_code_point(text.substr(begin), s.count)));
  }
  std::vector<uint32_t> places;
  for (size_t at = 0; at < text.size(); next_code_point(text, at))
    places.push_back(static_cast<uint32_t>(at));
  std::string out;
  for (int64_t i = 0; i < s.count; ++i) {
    size_t at = places[static_cast<size_t>(s.start + i * s.step)], end = at;
    next_code_point(text, end);
    out += text.substr(at, end - at);
  }
  return out;
}

bool loop_attribute(Interpreter& in, const Value& self, std::string_view name, Value& out) {
  auto& loop = self.as<Loop>();
  auto peek = [&] {
    if (!loop.has_after) loop.has_after = loop.iterator.as<Iterator>().next(loop.after);
    return loop.has_after;
  };
  auto length = [&] {
    if (loop.length >= 0) return loop.length;
    if (!loop.source.is(Type::iterator) && !loop.source.is(Type::loop))
      return loop.length = in.length(loop.source);
    std::vector<Value> rest = in.collect(loop.iterator);
    loop.length = static_cast<int64_t>(rest.size()) + loop.index0 + 1 + loop.has_after;
    loop.iterator = in.iterate(in.heap().list(std::move(rest)));
    return loop.length;
  };
  if (name == "index")
    out = Value::integer(loop.index0 + 1);
  else if (name == "index0")
    out = Value::integer(loop.index0);
  else if (name == "first")
    out = Value::boolean(loop.index0 == 0);
  else if (name == "last")
    out = Value::boolean(!peek());
  else if (name == "length")
    out = Value::integer(length());
  else if (name == "revindex")
    out = Value::integer(length() - loop.index0);
  else if (name == "revindex0")
    out = Value::integer(length() - loop.index0 - 1);
  else if (name == "depth")
    out = Value::integer(loop.depth0 + 1);
  else if (name == "depth0")
    out = Value::integer(loop.depth0);
  else if (name == "previtem")
    out = loop.index0 == 0 ? in.heap().undefined("there is no previous item") : loop.previous;
  else if (name == "nextitem")
    out = peek() ? loop.after : in.heap().undefined("there is no next item");
  else
    return false;
  return true;
}

/// Attributes that are not methods; false where there is none.
bool plain_attribute(Interpreter& in, const Value& object, std::string_view name, Value& out) {
  switch (object.type()) {
    case Type::boolean:
    case Type::integer:
      if (name == "real" || name == "numerator") return out = Value::integer(object.as_int()), true;
      if (name == "imag") return out = Value::integer(0), true;
      if (name == "denominator") return out = Value::integer(1), true;
      return false;
    case Type::real:
      if (name == "real") return out = object, true;
      if (name == "imag") return out = Value::real(0), true;
      return false;
    case Type::range: {
      const Range& range = object.as<Range>();
      if (name == "start") return out = Value::integer(range.start), true;
      if (name == "stop") return out = Value::integer(range.stop), true;
      if (name == "step") return out = Value::integer(range.step), true;
      return false;
    }
    case Type::tuple:
      if (!object.as<List>().group) return false;
      if (name == "grouper") return out = object.items()[0], true;
      if (name == "list") return out = object.items()[1], true;
      return false;
    case Type::space:
      in.heap().spend(
          static_cast<int64_t>(object.as<Namespace>().attributes.size() * (name.size() + 32) >> 8));
      if (const Value* v = object.as<Namespace>().find(name)) return out = *v, true;
      return false;
    case Type::macro: {
      const Macro& macro = object.as<Macro>();
      if (name == "name") return out = macro.def->text.empty() ? Value() : in.string(macro.def->text), true;
      if (name == "caller") return out = Value::boolean(macro.def->uses_caller), true;
      if (name == "catch_kwargs") return out = Value::boolean(macro.def->uses_kwargs), true;
      if (name == "catch_varargs") return out = Value::boolean(macro.def->uses_varargs), true;
      return false;
    }
    case Type::function: {
      const Function& function = object.as<Function>();
      if (function.made && function.id == FunctionId::cycler && name == "current")
        return out = function.values[function.at], true;
      return false;
    }
    case Type::loop: return loop_attribute(in, object, name, out);
    default: return false;
  }
}

/// jinja2's name of an object in its messages about missing attributes.
std::string object_name(const Value& v) {
  return v.is_none() ? "None" : fmt::format("{} object", type_name(v));
}

}  // namespace

bool Interpreter::own_attribute(const Value& object, std::string_view name, Value& out) {
  if (plain_attribute(*this, object, name, out)) return true;
  if (is_mutating(object, name)) {
    out = heap_.undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
    return true;
  }
  const MethodEntry* method = find_method(object, name);
  if (method == nullptr) return false;
  out = Value(Type::method, heap_.make<Method>(0, object, method->name, method->function));
  return true;
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  if (object.is_undefined() && name.starts_with("__") && name.ends_with("__"))
    return object;  // Python's own names
  if (object.is_undefined()) fail_undefined(object);
  Value found;
  heap_.spend_bytes(name.size());
  if (own_attribute(object, name, found)) return found;
  if (object.is(Type::dict)) {
    if (const Value* v = object.dict().find(name)) return *v;
  }
  return heap_.undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), name));
}

Value Interpreter::item(const Value& object, const Value& index) {
  switch (object.type()) {
    case Type::undefined: fail_undefined(object);
    case Type::dict: {
      bool hashable = !index.is(Type::list) && !index.is(Type::dict) && !index.is(Type::view);
      if (index.is_string()) heap_.spend_bytes(index.text().size() * 4);
      if (hashable) {
        if (const Value* v = object.dict().find(index)) return *v;
      }
      break;
    }
    case Type::list:
    case Type::tuple:
    case Type::range:
    case Type::string: {
      if (!index.is_int()) break;
      int64_t n = length(object), at = index.as_int();
      if (at < 0) at += n;
      if (at < 0 || at >= n) break;
      if (object.is_sequence()) return object.items()[static_cast<size_t>(at)];
      if (object.is(Type::range)) return Value::integer(object.as<Range>().at(at));
      heap_.spend_bytes(object.string().ascii() ? 0 : object.text().size());
      return string(slice_text(object.string(), {at, at + 1, 1, 1}), object.string().markup);
    }
    default: break;
  }
  if (index.is_string()) {
    std::string_view name = index.text();
    Value found;
    if (own_attribute(object, name, found)) return found;
    return heap_.undefined(fmt::format("'{}' has no attribute '{}'", object_name(object), name));
  }
  std::string shown;
  append_repr(*this, shown, index);
  return heap_.undefined(fmt::format("{} has no element {}", object_name(object), shown));
}

Value Interpreter::slice(const Value& object, const Value& start, const Value& stop, const Value& step) {
  switch (object.type()) {
    case Type::undefined: fail_undefined(object);
    case Type::string: {
      Span s = clip_slice(object.string().length, start, stop, step);
      heap_.spend_bytes(object.text().size());
      return string(slice_text(object.string(), s), object.string().markup);
    }
    case Type::list:
    case Type::tuple: {
      const auto& items = object.items();
      Span s = clip_slice(static_cast<int64_t>(items.size()), start, stop, step);
      heap_.spend(s.count >> 2);
      std::vector<Value> out;
      out.reserve(static_cast<size_t>(s.count));
      for (int64_t i = 0; i < s.count; ++i) out.push_back(items[static_cast<size_t>(s.start + i * s.step)]);
      return object.is(Type::list) ? heap_.list(std::move(out)) : heap_.tuple(std::move(out));
    }
    case Type::range: {
      const Range& range = object.as<Range>();
      Span s = clip_slice(range.length, start, stop, step);
      int64_t wide = 0;
      if (__builtin_mul_overflow(range.step, s.step, &wide)) fail("integer overflow in a slice of a range");
      return Value(Type::range, heap_.make<Range>(0, range.at(s.start), range.at(s.stop), wide, s.count));
    }
    case Type::dict: fail("unhashable type: 'slice'");
    default: fail("'{}' object is not subscriptable", type_name(object));
  }
}

Value Interpreter::call(const Value& callee, Arguments& args) {
  Level level(*this);
  switch (callee.type()) {
    case Type::undefined: fail_undefined(callee);
    case Type::macro: return call_macro(callee.as<Macro>(), args);
    case Type::loop: return call_loop(callee.as<Loop>(), args);
    case Type::function: return call_function(callee.as<Function>(), args);
    case Type::method: {
      Value keep = callee;
      Method& method = keep.as<Method>();
      if (method.function == nullptr)
        fail("the method {}.{} is not supported", type_name(method.self), method.name);
      return method.function(*this, method.self, args);
    }
    default: fail("'{}' object is not callable", type_name(callee));
  }
}

Value Interpreter::call_function(Function& function, Arguments& args) {
  switch (function.id) {
    case FunctionId::range: {
      Bound bound("range", args, {"/start", "/stop", "/step"}, 1);
      int64_t start = bound[1] != nullptr ? bound.integer(0, 0) : 0;
      int64_t stop = bound.integer(bound[1] != nullptr ? 1 : 0, 0);
      int64_t step = bound.integer(2, 1);
      if (step == 0) fail("range() arg 3 must not be zero");
      uint64_t distance =
          step > 0 ? (start < stop ? static_cast<uint64_t>(stop) - static_cast<uint64_t>(start) : 0)
                   : (stop < start ? static_cast<uint64_t>(start) - static_cast<uint64_t>(stop) : 0);
      uint64_t stride = step > 0 ? static_cast<uint64_t>(step) : 0 - static_cast<uint64_t>(step);
      uint64_t count = distance == 0 ? 0 : (distance - 1) / stride + 1;
      if (count > static_cast<uint64_t>(kMaxRange))
        fail("range() of {} items; {} are allowed", count, kMaxRange);
      return Value(Type::range, heap_.make<Range>(0, start, stop, step, static_cast<int64_t>(count)));
    }
    case FunctionId::dict:
    case FunctionId::namespace_: {
      bool is_dict = function.id == FunctionId::dict;
      std::vector<std::pair<Value, Value>> entries;
      if (args.positional.size() > 1)
        fail("{} expected at most 1 argument, got {}", function.name, args.positional.size());
      if (!args.positional.empty()) {
        const Value& from = args.positional[0];
        if (from.is(Type::dict)) {
          entries = from.dict().entries;
        } else {
          for (const Value& pair : collect(from)) {
            std::vector<Value> both = collect(pair);
            if (both.size() != 2)
              fail("dict update sequence element has length {}; 2 is required", both.size());
            entries.emplace_back(std::move(both[0]), std::move(both[1]));
          }
        }
      }
      for (auto& [name, value] : args.keywords) entries.emplace_back(string(name), std::move(value));
      Value dict = heap_.dict(std::move(entries));
      if (is_dict) return dict;
      size_t payload = 0;
      std::vector<std::pair<std::string, Value>> attributes;
      for (const auto& [name, value] : dict.dict().entries) {
        if (!name.is_string())
          fail("attribute names of a namespace must be strings, not {}", type_name(name));
        if (name.text().starts_with('_'))
          fail("a namespace cannot have an attribute that starts with '_': '{}'", name.text());
        attributes.emplace_back(name.text(), value);
        payload += sizeof(attributes[0]) + name.text().size();
      }
      Namespace* space = heap_.make<Namespace>(payload);
      space->attributes = std::move(attributes);
      return Value(Type::space, space);
    }
    case FunctionId::raise_exception: {
      Bound bound("raise_exception", args, {"message"}, 1);
      constexpr size_t kMostBytes = 1000;
      fail("the template refuses the conversation: {}", one_line(str(*bound[0]), kMostBytes));
    }
    case FunctionId::strftime_now: {
      Bound bound("strftime_now", args, {"format"}, 1);
      return string(format_time(bound.text(0), now_unix_s_));
    }
    case FunctionId::joiner: {
      if (function.made) {
        Bound bound("joiner", args, {});
        if (function.at++ == 0) return string("");
        return function.values[0];
      }
      Bound bound("joiner", args, {"sep"});
      Function* made = heap_.make<Function>(0, FunctionId::joiner, "Joiner");
      made->made = true;
      made->values.push_back(bound[0] != nullptr ? *bound[0] : string(", "));
      return Value(Type::function, made);
    }
    case FunctionId::cycler: {
      if (function.made) fail("'Cycler' object is not callable");
      if (!args.keywords.empty()) fail("cycler takes no keyword arguments");
      if (args.positional.empty()) fail("at least one item has to be provided");
      Function* made =
          heap_.make<Function>(args.positional.size() * sizeof(Value), FunctionId::cycler, "Cycler");
      made->made = true;
      made->values = std::move(args.positional);
      return Value(Type::function, made);
    }
  }
  fail("'{}' is not supported", function.name);
}

}  // namespace quintet::jinja
