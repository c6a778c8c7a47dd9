// Filters over sequences: those that select and map are lazy, as jinja2's generators.
#include <algorithm>
#include <functional>

#include "text/jinja/filters.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {
namespace {

/// An iterator whose values a function makes; it gives false at the end.
struct Generator : Iterator {
  Generator(Interpreter& i, std::function<bool(Value&)> f, const char* name)
      : Iterator(name), interpreter(i), function(std::move(f)) {}
  Interpreter& interpreter;
  std::function<bool(Value&)> function;
  bool next(Value& out) override {
    Interpreter::Level level(interpreter);  // generators over generators nest
    return function(out);
  }
};

Value generate(Interpreter& in, std::function<bool(Value&)> function, const char* name = "generator") {
  return Value(Type::iterator, in.heap().make<Generator>(64, in, std::move(function), name));
}

bool pull(const Value& iterator, Value& out) { return iterator.as<Iterator>().next(out); }

/// A filter that is a generator in jinja2: nothing of it happens, no error either, before its first value is
/// asked for.
template <FilterFunction filter>
Value lazy(Interpreter& in, const Value& input, Arguments& args) {
  return generate(in, [&in, input, args, inner = Value()](Value& out) mutable {
    if (inner.is_none()) inner = filter(in, input, args);
    return pull(inner, out);
  });
}

Value lowered(Interpreter& in, const Value& v) {
  if (!v.is_string()) return v;
  in.heap().spend_bytes(v.text().size() * 4);
  return in.string(to_lower(v.text()));
}

/// "a.0.b": attributes and items on the way to what a filter looks at.
class Path {
 public:
  Path(Interpreter& in, const Value* attribute) {
    if (attribute == nullptr || attribute->is_none()) return;
    if (!attribute->is_string()) {
      parts_.push_back(*attribute);
      return;
    }
    std::string_view rest = attribute->text();
    while (true) {
      size_t dot = rest.find('.');
      std::string_view part = rest.substr(0, dot);
      bool digits =
          !part.empty() && part.size() < 18 && part.find_first_not_of("0123456789") == std::string_view::npos;
      parts_.push_back(digits ? Value::integer(std::stoll(std::string(part))) : in.string(std::string(part)));
      if (dot == std::string_view::npos) return;
      rest.remove_prefix(dot + 1);
    }
  }

  Value get(Interpreter& in, const Value& object, const Value* otherwise = nullptr) const {
    Value v = object;
    for (const Value& part : parts_) {
      v = in.item(v, part);
      if (otherwise != nullptr && !otherwise->is_none() && v.is_undefined()) v = *otherwise;
    }
    return v;
  }

 private:
  std::vector<Value> parts_;
};

struct Keyed {
  std::vector<Value> keys;
  Value value;
};

/// Sorts stably by the keys in turn; a single key that is no list is never asked whether it is equal.
void sort_by_keys(Interpreter& in, std::vector<Keyed>& items, bool reverse, bool is_list = false) {
  auto less = [&](const Keyed& a, const Keyed& b) {
    if (!is_list) return in.is_less(a.keys[0], b.keys[0]);
    for (size_t i = 0; i < a.keys.size(); ++i) {
      if (!in.equals(a.keys[i], b.keys[i])) return in.is_less(a.keys[i], b.keys[i]);
    }
    return false;
  };
  std::stable_sort(items.begin(), items.end(),
                   [&](const Keyed& a, const Keyed& b) { return reverse ? less(b, a) : less(a, b); });
}

Value dictsort(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  if (input.is_undefined()) in.fail_undefined(input);
  std::string_view by = bound[1] != nullptr && bound[1]->is_string() ? bound.text(1)
                        : bound[1] != nullptr                        ? ""
                                                                     : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (!input.is(Type::dict)) fail("dictsort expects a dict, not {}", type_name(input));
  std::vector<Keyed> items;
  for (const auto& [key, value] : input.dict().entries) {
    const Value& basis = by == "key" ? key : value;
    items.push_back({{bound.truth(0, false) ? basis : lowered(in, basis)}, in.heap().tuple({key, value})});
  }
  sort_by_keys(in, items, bound.truth(2, false));
  std::vector<Value> out;
  for (Keyed& item : items) out.push_back(std::move(item.value));
  return in.heap().list(std::move(out));
}

Value sort(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  bool case_sensitive = bound.truth(1, false);
  std::vector<Path> paths;
  if (bound.some(2) != nullptr && bound[2]->is_string()) {
    std::string_view rest = bound[2]->text();
    while (true) {
      size_t comma = rest.find(',');
      Value part = in.string(std::string(rest.substr(0, comma)));
      paths.emplace_back(in, &part);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    paths.emplace_back(in, bound[2]);
  }
  std::vector<Keyed> items;
  for (Value& v : in.collect(input)) {
    Keyed item;
    for (const Path& path : paths) {
      Value key = path.get(in, v);
      item.keys.push_back(case_sensitive ? key : lowered(in, key));
    }
    item.value = std::move(v);
    items.push_back(std::move(item));
  }
  sort_by_keys(in, items, bound.truth(0, false), true);
  std::vector<Value> out;
  for (Keyed& item : items) out.push_back(std::move(item.value));
  return in.heap().list(std::move(out));
}

Value groupby(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  bool case_sensitive = bound.truth(2, false);
  Path path(in, bound[0]);
  std::vector<Keyed> items;
  for (Value& v : in.collect(input)) {
    Value key = path.get(in, v, bound[1]);
    items.push_back({{case_sensitive ? key : lowered(in, key)}, std::move(v)});
  }
  sort_by_keys(in, items, false);
  std::vector<Value> groups;
  for (size_t i = 0, j; i < items.size(); i = j) {
    std::vector<Value> members;
    for (j = i; j < items.size() && (j == i || in.equals(items[i].keys[0], items[j].keys[0])); ++j) {
      members.push_back(items[j].value);
    }
    Value key = case_sensitive ? items[i].keys[0] : path.get(in, members[0], bound[1]);
    Value group = in.heap().tuple({std::move(key), in.heap().list(std::move(members))});
    group.as<List>().group = true;
    groups.push_back(std::move(group));
  }
  return in.heap().list(std::move(groups));
}

Value unique(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("unique", args, {"case_sensitive", "attribute"});
  bool case_sensitive = bound.truth(0, false);
  Path path(in, bound[1]);
  auto less = [](const Value& a, const Value& b) { return compare_keys(a, b) < 0; };
  Value source = in.iterate(input);
  return generate(in,
                  [&in, source, path, case_sensitive, less, seen = std::vector<Value>()](Value& out) mutable {
                    while (pull(source, out)) {
                      Value key = path.get(in, out);
                      if (!case_sensitive) key = lowered(in, key);
                      compare_keys(key, key);
                      if (key.is_string()) in.heap().spend_bytes(key.text().size() * 8);
                      auto at = std::lower_bound(seen.begin(), seen.end(), key, less);
                      if (at != seen.end() && compare_keys(*at, key) == 0) continue;
                      in.heap().spend(static_cast<int64_t>(seen.size() >> 6));
                      seen.insert(at, key);
                      return true;
                    }
                    return false;
                  });
}

template <bool max>
Value extreme(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound(max ? "max" : "min", args, {"case_sensitive", "attribute"});
  bool case_sensitive = bound.truth(0, false);
  Path path(in, bound[1]);
  Value source = in.iterate(input), best, best_key;
  bool any = false;
  for (Value v; pull(source, v);) {
    Value key = path.get(in, v);
    if (!case_sensitive) key = lowered(in, key);
    if (any && !(max ? in.is_less(best_key, key) : in.is_less(key, best_key))) continue;
    any = true;
    best = std::move(v);
    best_key = std::move(key);
  }
  return any ? best : in.heap().undefined("No aggregated item, sequence was empty.");
}

Value sum(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("sum", args, {"attribute", "start"});
  Path path(in, bound[0]);
  Value total = bound[1] != nullptr ? *bound[1] : Value::integer(0);
  if (total.is_string()) fail("sum() can't sum strings");
  Value source = in.iterate(input);
  for (Value v; pull(source, v);) total = in.binary(BinaryOp::add, total, path.get(in, v));
  return total;
}

Value join(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("join", args, {"d", "attribute"});
  std::string separator = bound[0] != nullptr ? in.str(*bound[0]) : "", out;
  Path path(in, bound[1]);
  bool first = true;
  Value source = in.iterate(input);
  for (Value v; pull(source, v); first = false) {
    if (!first) out += separator;
    append_str(in, out, path.get(in, v));
    in.heap().spend_bytes(separator.size());
    in.heap().check_text(out.size());
  }
  return in.string(std::move(out));
}

Value first(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("first", args, {});
  Value v;
  return pull(in.iterate(input), v) ? v : in.heap().undefined("No first item, sequence was empty.");
}

bool is_reversible(const Value& v) {
  return v.is_sequence() || v.is_string() || v.is(Type::range) || v.is(Type::dict) || v.is(Type::view) ||
         v.is_undefined();
}

Value last(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("last", args, {});
  if (!is_reversible(input)) fail("'{}' object is not reversible", type_name(input));
  if (input.is_sequence() || input.is_string() || input.is(Type::range)) {
    if (in.length(input) > 0) return in.item(input, Value::integer(-1));
  } else if (std::vector<Value> items = in.collect(input); !items.empty()) {
    return items.back();
  }
  return in.heap().undefined("No last item, sequence was empty.");
}

Value reverse(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("reverse", args, {});
  if (input.is_string()) return in.slice(input, {}, {}, Value::integer(-1));
  std::vector<Value> items = in.collect(input);
  std::reverse(items.begin(), items.end());
  Value list = in.heap().list(std::move(items));
  if (!is_reversible(input)) return list;
  Value source = in.iterate(list);
  const char* name = input.is(Type::list)    ? "list_reverseiterator"
                     : input.is(Type::tuple) ? "reversed"
                                             : "reverseiterator";
  return generate(
      in, [source](Value& out) { return pull(source, out); }, name);
}

Value list(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("list", args, {});
  return in.heap().list(in.collect(input));
}

Value items(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("items", args, {});
  if (input.is_undefined()) return generate(in, [](Value&) { return false; });
  if (!input.is(Type::dict)) fail("Can only get item pairs from a mapping, not {}", type_name(input));
  Value source = in.iterate(Value(Type::view, in.heap().make<View>(0, input, View::Kind::items)));
  return generate(in, [source](Value& out) { return pull(source, out); });
}

Value batch(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("batch", args, {"linecount", "fill_with"}, 1);
  int64_t count = bound.integer(0, 0);
  Value fill = bound[1] != nullptr ? *bound[1] : Value(), source = in.iterate(input), held;
  if (count > 1'000'000) fail("batch(): a line of {} items; 1000000 are allowed", count);
  bool has_held = pull(source, held);
  return generate(in, [&in, count, fill, source, held, has_held](Value& out) mutable {
    if (!has_held) return false;
    std::vector<Value> line;
    do {
      line.push_back(std::move(held));
      has_held = pull(source, held);
    } while (has_held && static_cast<int64_t>(line.size()) != count);
    if (!has_held && !fill.is_none()) {
      while (static_cast<int64_t>(line.size()) < count) line.push_back(fill);
    }
    in.heap().spend(static_cast<int64_t>(line.size()));
    out = in.heap().list(std::move(line));
    return true;
  });
}

Value slice(Interpreter& in, const Value& input, Arguments& args) {
  Bound bound("slice", args, {"slices", "fill_with"}, 1);
  int64_t slices = bound.integer(0, 0);
  if (slices == 0) fail("integer division or modulo by zero");
  Value fill = bound[1] != nullptr ? *bound[1] : Value(), all = in.heap().list(in.collect(input));
  return generate(in, [&in, slices, fill, all, number = int64_t{0}, at = size_t{0}](Value& out) mutable {
    if (number >= slices) return false;
    auto length = static_cast<int64_t>(all.items().size());
    int64_t size = length / slices + (number < length % slices);
    std::vector<Value> part(all.items().begin() + static_cast<int64_t>(at),
                            all.items().begin() + static_cast<int64_t>(at) + size);
    at += static_cast<size_t>(size);
    if (!fill.is_none() && number >= length % slices) part.push_back(fill);
    ++number;
    in.heap().spend(1 + size / 4);
    out = in.heap().list(std::move(part));
    return true;
  });
}

Value map(Interpreter& in, const Value& input, Arguments& args) {
  if (!in.truth(input)) return generate(in, [](Value&) { return false; });
  Value source = in.iterate(input);
  bool by_attribute =
      args.positional.empty() && std::any_of(args.keywords.begin(), args.keywords.end(),
                                             [](const auto& k) { return k.first == "attribute"; });
  if (by_attribute) {
    Bound bound("map", args, {"attribute", "default"});
    Path path(in, bound[0]);
    Value otherwise = bound[1] != nullptr ? *bound[1] : Value();
    return generate(in, [&in, source, path, otherwise](Value& out) {
      Value v;
      if (!pull(source, v)) return false;
      out = path.get(in, v, &otherwise);
      return true;
    });
  }
  if (args.positional.empty()) fail("map requires a filter argument");
  if (!args.positional[0].is_string())
    fail("map expects the name of a filter, not {}", type_name(args.positional[0]));
  std::string name(args.positional[0].text());
  int id = find_filter(name);
  Arguments rest = args;
  rest.positional.erase(rest.positional.begin());
  return generate(in, [&in, source, name, id, rest](Value& out) {
    Value v;
    if (!pull(source, v)) return false;
    in.heap().spend(static_cast<int64_t>(rest.positional.size() + rest.keywords.size()));
    Arguments copy = rest;
    out = in.apply_filter(id, name, v, copy);
    return true;
  });
}

/// select, reject, selectattr, rejectattr: items for which a test of them, or of an attribute, gives
/// `wanted`.
template <bool wanted, bool by_attribute>
Value select(Interpreter& in, const Value& input, Arguments& args) {
  if (!in.truth(input)) return generate(in, [](Value&) { return false; });
  Arguments rest = args;
  const Value* attribute = nullptr;
  if (by_attribute) {
    if (args.positional.empty()) fail("Missing parameter for attribute name");
    attribute = &args.positional[0];
    rest.positional.erase(rest.positional.begin());
  }
  Path path(in, attribute);
  std::string name;
  int id = -1;
  bool has_test = !rest.positional.empty();
  if (has_test) {
    if (!rest.positional[0].is_string())
      fail("expected the name of a test, not {}", type_name(rest.positional[0]));
    name = rest.positional[0].text();
    id = find_test(name);
    rest.positional.erase(rest.positional.begin());
  }
  Value source = in.iterate(input);
  return generate(in, [&in, source, path, name, id, has_test, rest](Value& out) {
    while (pull(source, out)) {
      in.heap().spend(static_cast<int64_t>(1 + rest.positional.size() + rest.keywords.size()));
      Value v = path.get(in, out);
      Arguments copy = rest;
      bool holds = has_test ? in.apply_test(id, name, v, copy) : in.truth(v);
      if (holds == wanted) return true;
    }
    return false;
  });
}

constexpr FilterEntry kFilters[] = {
    {"batch", lazy<batch>},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", lazy<items>},
    {"join", join},
    {"last", last},
    {"list", list},
    {"map", lazy<map>},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", lazy<select<false, false>>},
    {"rejectattr", lazy<select<false, true>>},
    {"reverse", reverse},
    {"select", lazy<select<true, false>>},
    {"selectattr", lazy<select<true, true>>},
    {"slice", lazy<slice>},
    {"sort", sort},
    {"sum", sum},
    {"unique", lazy<unique>},
};

}  // namespace

std::span<const FilterEntry> sequence_filters() { return kFilters; }

}  // namespace quintet::jinja
