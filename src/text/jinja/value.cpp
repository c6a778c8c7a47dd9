// The heap of a rendering, and dicts.
#include "text/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "text/jinja/unicode.h"

namespace quintet::jinja {

void fail(std::string message) { throw Fault{std::move(message)}; }

void Value::release() {
  ObjectHeader& header = ObjectHeader::of(object_);
  if (header.frozen || --header.references > 0) return;
  header.heap->dispose(&header);
}

Heap::~Heap() {
  // First every object ends, then their headers go: what refers to each other in a circle ends here too.
  closing_ = true;
  for (ObjectHeader* header = first_; header != nullptr; header = header->next) header->object()->~Object();
  while (first_ != nullptr) ::operator delete(std::exchange(first_, first_->next));
}

void Heap::adopt(ObjectHeader* header, size_t bytes) {
  header->heap = this;
  header->charged_bytes = bytes;
  header->next = first_;
  if (first_ != nullptr) first_->previous = header;
  first_ = header;
}

void Heap::dispose(ObjectHeader* header) {
  if (closing_) return;
  dying_.push_back(header);
  if (draining_) return;
  draining_ = true;
  while (!dying_.empty()) {
    ObjectHeader* dead = dying_.back();
    dying_.pop_back();
    dead->object()->~Object();
    if (dead->previous != nullptr) dead->previous->next = dead->next;
    if (dead->next != nullptr) dead->next->previous = dead->previous;
    if (first_ == dead) first_ = dead->next;
    used_bytes_ -= dead->charged_bytes;
    ::operator delete(dead);
  }
  draining_ = false;
}

void Heap::freeze() {
  for (ObjectHeader* header = first_; header != nullptr; header = header->next) header->frozen = true;
}

void Heap::out_of_steps() {
  steps_left_ = 0;
  fail("the template runs too long: more than {} steps", limit_steps_);
}

void Heap::out_of_bytes() { fail("the template's values take more than {} bytes", limit_bytes_); }

void Heap::text_too_long(size_t bytes) { fail("a text of {} bytes; {} are allowed", bytes, kMaxTextBytes); }

Value Heap::string(std::string text, bool markup) {
  check_text(text.size());
  spend_bytes(text.size());
  size_t bytes = text.size();
  return Value(Type::string, make<String>(bytes, std::move(text), markup));
}

Value Heap::list(std::vector<Value> items) {
  size_t bytes = items.size() * sizeof(Value);
  return Value(Type::list, make<List>(bytes, std::move(items)));
}

Value Heap::tuple(std::vector<Value> items) {
  size_t bytes = items.size() * sizeof(Value);
  return Value(Type::tuple, make<List>(bytes, std::move(items)));
}

Value Heap::undefined(std::string hint) {
  spend_bytes(hint.size());
  size_t bytes = hint.size();
  return Value(Type::undefined, make<Undefined>(bytes, std::move(hint)));
}

Value Heap::dict(std::vector<std::pair<Value, Value>> entries) {
  constexpr size_t kFewEntries = 8;
  Dict* dict = make<Dict>(entries.size() * (2 * sizeof(Value) + sizeof(uint32_t)));
  Value result(Type::dict, dict);
  for (const auto& entry : entries) {
    if (entry.first.is_string()) spend_bytes(entry.first.text().size() * 4);
  }
  if (entries.size() <= kFewEntries) {
    for (auto& entry : entries) {
      auto same = std::find_if(dict->entries.begin(), dict->entries.end(),
                               [&](const auto& e) { return compare_keys(e.first, entry.first) == 0; });
      if (same != dict->entries.end())
        same->second = std::move(entry.second);
      else
        dict->entries.push_back(std::move(entry));
    }
    if (dict->entries.size() == 1) compare_keys(dict->entries[0].first, dict->entries[0].first);  // hashable?
    return result;
  }
  std::vector<uint32_t> order(entries.size());
  for (uint32_t i = 0; i < order.size(); ++i) order[i] = i;
  spend(static_cast<int64_t>(order.size()));
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return compare_keys(entries[a].first, entries[b].first) < 0;
  });
  // Runs of equal keys: the last value moves to the first one's place.
  std::vector<bool> dropped(entries.size());
  for (size_t i = 0, j; i < order.size(); i = j) {
    for (j = i + 1; j < order.size(); ++j) {
      if (compare_keys(entries[order[i]].first, entries[order[j]].first) != 0) break;
      entries[order[i]].second = std::move(entries[order[j]].second);
      dropped[order[j]] = true;
    }
  }
  std::vector<uint32_t> place(entries.size());
  for (uint32_t i = 0; i < entries.size(); ++i) {
    if (dropped[i]) continue;
    place[i] = static_cast<uint32_t>(dict->entries.size());
    dict->entries.push_back(std::move(entries[i]));
  }
  for (uint32_t i : order) {
    if (!dropped[i]) dict->sorted.push_back(place[i]);
  }
  return result;
}

String::String(std::string t, bool m) : text(std::move(t)), length(count_code_points(text)), markup(m) {}

const Value* Dict::find(std::string_view key) const {
  if (sorted.empty()) {
    for (const auto& [k, v] : entries) {
      if (k.is_string() && k.text() == key) return &v;
    }
    return nullptr;
  }
  auto at = std::partition_point(sorted.begin(), sorted.end(), [&](uint32_t i) {
    const Value& k = entries[i].first;
    return k.is_string() ? k.text() < key : k.is_number();
  });
  if (at == sorted.end()) return nullptr;
  const auto& [k, v] = entries[*at];
  return k.is_string() && k.text() == key ? &v : nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return find(key.text());
  if (sorted.empty()) {
    compare_keys(key, key);
    for (const auto& [k, v] : entries) {
      if (compare_keys(k, key) == 0) return &v;
    }
    return nullptr;
  }
  auto at = std::partition_point(sorted.begin(), sorted.end(),
                                 [&](uint32_t i) { return compare_keys(entries[i].first, key) < 0; });
  if (at == sorted.end() || compare_keys(entries[*at].first, key) != 0) return nullptr;
  return &entries[*at].second;
}

Value* Namespace::find(std::string_view name) {
  for (auto& [k, v] : attributes) {
    if (k == name) return &v;
  }
  return nullptr;
}

std::string_view type_name(const Value& value) {
  switch (value.type()) {
    case Type::none: return "NoneType";
    case Type::boolean: return "bool";
    case Type::integer:
    case Type::big: return "int";
    case Type::real: return "float";
    case Type::undefined: return "Undefined";
    case Type::string: return value.string().markup ? "Markup" : "str";
    case Type::list: return "list";
    case Type::tuple: return "tuple";
    case Type::dict: return "dict";
    case Type::range: return "range";
    case Type::view:
      switch (value.as<View>().kind) {
        case View::Kind::keys: return "dict_keys";
        case View::Kind::values: return "dict_values";
        case View::Kind::items: return "dict_items";
      }
      return "dict_view";
    case Type::iterator: return value.as<Iterator>().type_name;
    case Type::space: return "Namespace";
    case Type::macro: return "Macro";
    case Type::function:
    case Type::method: return "builtin_function_or_method";
    case Type::loop: return "LoopContext";
    case Type::frame: return "frame";
  }
  return "object";
}

namespace {

/// Digits of two decimal integers, by sign, length and then digit by digit.
int compare_digits(std::string_view a, std::string_view b) {
  bool a_negative = a.starts_with('-'), b_negative = b.starts_with('-');
  if (a_negative != b_negative) return a_negative ? -1 : 1;
  int order = a.size() != b.size() ? (a.size() < b.size() ? -1 : 1) : (a < b ? -1 : a == b ? 0 : 1);
  return a_negative ? -order : order;
}

int compare_int_real(int64_t i, double d) {
  if (std::isnan(d)) return 2;
  if (d >= 9223372036854775808.0) return -1;
  if (d < -9223372036854775808.0) return 1;
  auto whole = static_cast<int64_t>(d);  // toward zero
  if (i != whole) return i < whole ? -1 : 1;
  double rest = d - static_cast<double>(whole);
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

}  // namespace

int compare_numbers(const Value& a, const Value& b) {
  if (a.is_int() && b.is_int()) return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  if (a.is(Type::real) && b.is(Type::real)) {
    double x = a.as_real(), y = b.as_real();
    return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
  }
  if (a.is_int() && b.is(Type::real)) return compare_int_real(a.as_int(), b.as_real());
  if (a.is(Type::big)) {
    const std::string& digits = a.as<Big>().digits;
    if (b.is_int()) return digits.starts_with('-') ? -1 : 1;
    if (b.is(Type::big)) return compare_digits(digits, b.as<Big>().digits);
    double y = b.as_real();
    if (std::isnan(y)) return 2;
    if (std::isinf(y)) return y > 0 ? -1 : 1;
    return compare_digits(digits, fmt::format("{:.0f}", std::trunc(y)));  // beyond 2^63 a double is whole
  }
  int order = compare_numbers(b, a);
  return order == 2 ? 2 : -order;
}

int compare_keys(const Value& a, const Value& b, int depth) {
  auto rank = [](const Value& v) {
    if (v.is_number()) return 0;
    switch (v.type()) {
      case Type::string: return 1;
      case Type::none: return 2;
      case Type::undefined: return 3;
      case Type::tuple: return 4;
      case Type::list:
      case Type::dict:
      case Type::view: fail("unhashable type: '{}'", type_name(v));
      default: return 5;
    }
  };
  int left = rank(a), right = rank(b);
  if (left != right) return left < right ? -1 : 1;
  switch (left) {
    case 0: {
      int order = compare_numbers(a, b);
      if (order != 2) return order;
      bool a_nan = a.is(Type::real) && std::isnan(a.as_real()),
           b_nan = b.is(Type::real) && std::isnan(b.as_real());
      return a_nan == b_nan ? 0 : a_nan ? -1 : 1;
    }
    case 1: return a.text() < b.text() ? -1 : a.text() > b.text();
    case 4: {
      if (depth > kMaxDataDepth) fail("a tuple nested more than {} deep", kMaxDataDepth);
      const auto &x = a.items(), &y = b.items();
      Heap& heap = *ObjectHeader::of(a.object()).heap;  // tuples are never constants of a shared template
      for (size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
        heap.spend(1);
        if (x[i].is_string()) heap.spend_bytes(x[i].text().size());
        if (int order = compare_keys(x[i], y[i], depth + 1)) return order;
      }
      // Also an unhashable item of a longer tuple must be found.
      const auto& longer = x.size() > y.size() ? x : y;
      for (size_t i = std::min(x.size(), y.size()); i < longer.size(); ++i)
        compare_keys(longer[i], longer[i], depth + 1);
      return x.size() < y.size() ? -1 : x.size() > y.size();
    }
    case 5: return a.object() < b.object() ? -1 : a.object() > b.object();
    default: return 0;
  }
}

}  // namespace quintet::jinja
