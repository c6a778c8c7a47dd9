// The methods of dicts, lists, numbers and loops, and the look-up of any method.
#include <algorithm>
#include <cmath>

#include "text/jinja/interpreter.h"
#include "text/jinja/methods_string.h"

namespace quintet::jinja {
namespace {

Value dict_get(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("get", args, {"/key", "/default"}, 1);
  if (bound[0]->is_string()) in.heap().spend_bytes(bound[0]->text().size() * 4);
  const Value* found = self.dict().find(*bound[0]);
  return found != nullptr ? *found : bound[1] != nullptr ? *bound[1] : Value();
}

template <View::Kind kind>
Value dict_view(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("view", args, {});
  return Value(Type::view, in.heap().make<View>(0, self, kind));
}

/// A copy is the same value: nothing can change it.
Value copy(Interpreter&, const Value& self, Arguments& args) {
  Bound bound("copy", args, {});
  return self;
}

Value sequence_count(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("count", args, {"/value"}, 1);
  int64_t n = 0;
  Value iterator = in.iterate(self);
  for (Value v; iterator.as<Iterator>().next(v);) n += in.equals(v, *bound[0]);
  return Value::integer(n);
}

Value sequence_index(Interpreter& in, const Value& self, Arguments& args) {
  Bound bound("index", args, {"/value", "/start", "/stop"}, 1);
  int64_t length = in.length(self);
  auto clip = [&](size_t i, int64_t otherwise) {
    int64_t at = bound.integer(i, otherwise);
    return std::clamp<int64_t>(at < 0 ? std::max(at, -length) + length : at, 0, length);
  };
  int64_t stop = clip(2, length);
  for (int64_t i = clip(1, 0); i < stop; ++i) {
    if (in.equals(in.item(self, Value::integer(i)), *bound[0])) return Value::integer(i);
  }
  fail("the value is not in the {}", type_name(self));
}

Value bit_length(Interpreter&, const Value& self, Arguments& args) {
  Bound bound("bit_length", args, {});
  int64_t v = self.as_int();
  uint64_t magnitude = v < 0 ? 0 - static_cast<uint64_t>(v) : static_cast<uint64_t>(v);
  return Value::integer(magnitude == 0 ? 0 : 64 - __builtin_clzll(magnitude));
}

Value is_integer(Interpreter&, const Value& self, Arguments& args) {
  Bound bound("is_integer", args, {});
  return Value::boolean(std::isfinite(self.as_real()) && self.as_real() == std::floor(self.as_real()));
}

Value conjugate(Interpreter&, const Value& self, Arguments& args) {
  Bound bound("conjugate", args, {});
  return self.is(Type::boolean) ? Value::integer(self.as_int()) : self;
}

Value loop_cycle(Interpreter&, const Value& self, Arguments& args) {
  if (!args.keywords.empty()) fail("cycle() takes no keyword arguments");
  if (args.positional.empty()) fail("no items for cycling given");
  auto n = static_cast<int64_t>(args.positional.size());
  return args.positional[static_cast<size_t>(((self.as<Loop>().index0 % n) + n) % n)];
}

Value loop_changed(Interpreter& in, const Value& self, Arguments& args) {
  if (!args.keywords.empty()) fail("changed() takes no keyword arguments");
  auto& loop = self.as<Loop>();
  bool same = loop.has_changed && loop.changed.size() == args.positional.size();
  for (size_t i = 0; same && i < args.positional.size(); ++i)
    same = in.equals(loop.changed[i], args.positional[i]);
  if (same) return Value::boolean(false);
  loop.changed = args.positional;
  loop.has_changed = true;
  return Value::boolean(true);
}

Value cycler_next(Interpreter&, const Value& self, Arguments& args) {
  Bound bound("next", args, {});
  auto& cycler = self.as<Function>();
  size_t at = std::exchange(cycler.at, (cycler.at + 1) % cycler.values.size());
  return cycler.values[at];
}

Value cycler_reset(Interpreter&, const Value& self, Arguments& args) {
  Bound bound("reset", args, {});
  self.as<Function>().at = 0;
  return {};
}

Value dict_fromkeys(Interpreter& in, const Value&, Arguments& args) {
  Bound bound("fromkeys", args, {"/iterable", "/value"}, 1);
  std::vector<std::pair<Value, Value>> entries;
  for (Value& key : in.collect(*bound[0]))
    entries.emplace_back(std::move(key), bound[1] != nullptr ? *bound[1] : Value());
  return in.heap().dict(std::move(entries));
}

// Methods with no function exist in Python, but are refused here when they are called.
constexpr MethodEntry kDictMethods[] = {{"copy", copy},
                                        {"fromkeys", dict_fromkeys},
                                        {"get", dict_get},
                                        {"items", dict_view<View::Kind::items>},
                                        {"keys", dict_view<View::Kind::keys>},
                                        {"values", dict_view<View::Kind::values>}};
constexpr MethodEntry kListMethods[] = {{"copy", copy}, {"count", sequence_count}, {"index", sequence_index}};
constexpr MethodEntry kTupleMethods[] = {{"count", sequence_count}, {"index", sequence_index}};
constexpr MethodEntry kViewMethods[] = {{"isdisjoint", nullptr}, {"mapping", nullptr}};
constexpr MethodEntry kIntMethods[] = {{"as_integer_ratio", nullptr}, {"bit_count", nullptr},
                                       {"bit_length", bit_length},    {"conjugate", conjugate},
                                       {"from_bytes", nullptr},       {"to_bytes", nullptr}};
constexpr MethodEntry kRealMethods[] = {{"as_integer_ratio", nullptr},
                                        {"conjugate", conjugate},
                                        {"fromhex", nullptr},
                                        {"hex", nullptr},
                                        {"is_integer", is_integer}};
constexpr MethodEntry kLoopMethods[] = {{"changed", loop_changed}, {"cycle", loop_cycle}};
constexpr MethodEntry kCyclerMethods[] = {{"next", cycler_next}, {"reset", cycler_reset}};
constexpr MethodEntry kDictFunctionMethods[] = {{"fromkeys", dict_fromkeys}};

template <class Range>
const MethodEntry* find_in(const Range& entries, std::string_view name) {
  for (const MethodEntry& entry : entries) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

}  // namespace

const MethodEntry* find_method(const Value& self, std::string_view name) {
  switch (self.type()) {
    case Type::string: {
      const auto& methods = string_methods();
      auto at = std::lower_bound(methods.begin(), methods.end(), name,
                                 [](const MethodEntry& entry, std::string_view n) { return entry.name < n; });
      return at != methods.end() && at->name == name ? &*at : nullptr;
    }
    case Type::dict: return find_in(kDictMethods, name);
    case Type::list: return find_in(kListMethods, name);
    case Type::tuple:
    case Type::range: return find_in(kTupleMethods, name);
    case Type::view: return find_in(kViewMethods, name);
    case Type::boolean:
    case Type::integer: return find_in(kIntMethods, name);
    case Type::real: return find_in(kRealMethods, name);
    case Type::loop: return find_in(kLoopMethods, name);
    case Type::function: {
      const Function& function = self.as<Function>();
      if (function.id == FunctionId::cycler && function.made) return find_in(kCyclerMethods, name);
      if (function.id == FunctionId::dict) return find_in(kDictFunctionMethods, name);
      return nullptr;
    }
    default: return nullptr;
  }
}

bool is_mutating(const Value& self, std::string_view name) {
  constexpr std::string_view kList[] = {"append", "clear",  "extend",  "insert",
                                        "pop",    "remove", "reverse", "sort"};
  constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update"};
  if (self.is(Type::list)) return std::find(std::begin(kList), std::end(kList), name) != std::end(kList);
  if (self.is(Type::dict)) return std::find(std::begin(kDict), std::end(kDict), name) != std::end(kDict);
  return false;
}

}  // namespace quintet::jinja
