// Iteration: an Iterator over every value that Python can iterate.
#include "text/jinja/interpreter.h"
#include "text/jinja/unicode.h"

namespace quintet::jinja {
namespace {

/// Over values that are reached by index: lists, tuples, ranges, dicts and their views.
struct IndexedItems : Iterator {
  IndexedItems(Heap& h, Value s, const char* name) : Iterator(name), heap(h), source(std::move(s)) {}
  Heap& heap;
  Value source;
  size_t at = 0;

  bool next(Value& out) override {
    heap.spend(1);
    switch (source.type()) {
      case Type::list:
      case Type::tuple:
        if (at >= source.items().size()) return false;
        out = source.items()[at++];
        return true;
      case Type::range:
        if (static_cast<int64_t>(at) >= source.as<Range>().length) return false;
        out = Value::integer(source.as<Range>().at(static_cast<int64_t>(at++)));
        return true;
      default: break;
    }
    const View* view = source.is(Type::view) ? &source.as<View>() : nullptr;
    const auto& entries = (view != nullptr ? view->dict : source).dict().entries;
    if (at >= entries.size()) return false;
    const auto& [key, value] = entries[at++];
    if (view == nullptr || view->kind == View::Kind::keys)
      out = key;
    else if (view->kind == View::Kind::values)
      out = value;
    else
      out = heap.tuple({key, value});
    return true;
  }
};

struct Characters : Iterator {
  Characters(Heap& h, Value s) : Iterator("str_ascii_iterator"), heap(h), source(std::move(s)) {}
  Heap& heap;
  Value source;
  size_t at = 0;

  bool next(Value& out) override {
    heap.spend(1);
    std::string_view text = source.text();
    if (at >= text.size()) return false;
    size_t start = at;
    next_code_point(text, at);
    out = heap.string(std::string(text.substr(start, at - start)));
    return true;
  }
};

/// The rest of a loop, when the loop itself is iterated: pairs of an item and the loop.
struct LoopItems : Iterator {
  LoopItems(Heap& h, Value l) : Iterator("LoopContext"), heap(h), loop(std::move(l)) {}
  Heap& heap;
  Value loop;
  bool next(Value& out) override {
    auto& context = loop.as<Loop>();
    if (context.has_after) {
      context.has_after = false;
      out = std::move(context.after);
    } else if (!context.iterator.as<Iterator>().next(out)) {
      return false;
    }
    ++context.index0;
    context.previous = std::move(context.current);
    context.current = out;
    out = heap.tuple({out, loop});
    return true;
  }
};

}  // namespace

Value Interpreter::iterate(const Value& v) {
  switch (v.type()) {
    case Type::iterator: return v;
    case Type::string: return Value(Type::iterator, heap_.make<Characters>(0, heap_, v));
    case Type::undefined: return iterate(heap_.list({}));
    case Type::list: return Value(Type::iterator, heap_.make<IndexedItems>(0, heap_, v, "list_iterator"));
    case Type::tuple: return Value(Type::iterator, heap_.make<IndexedItems>(0, heap_, v, "tuple_iterator"));
    case Type::range: return Value(Type::iterator, heap_.make<IndexedItems>(0, heap_, v, "range_iterator"));
    case Type::dict: return Value(Type::iterator, heap_.make<IndexedItems>(0, heap_, v, "dict_keyiterator"));
    case Type::view: return Value(Type::iterator, heap_.make<IndexedItems>(0, heap_, v, "dict_itemiterator"));
    case Type::loop: return Value(Type::iterator, heap_.make<LoopItems>(0, heap_, v));
    default: fail("'{}' object is not iterable", type_name(v));
  }
}

std::vector<Value> Interpreter::collect(const Value& v) {
  if (v.is_sequence()) {
    heap_.spend(static_cast<int64_t>(v.items().size() >> 2));
    return v.items();
  }
  Value iterator = iterate(v);
  std::vector<Value> items;
  for (Value item; iterator.as<Iterator>().next(item);) {
    heap_.spend(1);
    items.push_back(std::move(item));
  }
  return items;
}

}  // namespace quintet::jinja
