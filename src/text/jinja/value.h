// Values of the template language: Python's types as far as templates meet them, counted against one budget.
#pragma once

#include <fmt/core.h>

#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace quintet::jinja {

/// How rendering stops early. Thrown and caught inside text/ only; the line is added where it is caught.
struct Fault {
  std::string message;
};

[[noreturn]] void fail(std::string message);
template <class First, class... Rest>
[[noreturn]] void fail(fmt::format_string<First, Rest...> format, First&& first, Rest&&... rest) {
  fail(fmt::format(format, std::forward<First>(first), std::forward<Rest>(rest)...));
}

// What one rendering may cost. A hostile template meets one of these long before it hurts.
inline constexpr int64_t kBaseSteps =
    10'000'000;  ///< evaluated nodes and the work of built-ins, and beside it
inline constexpr int64_t kStepsPerInputByte = 4;  ///< since real templates walk all messages for each message
inline constexpr size_t kMaxTextBytes = 16u << 20;   ///< one string, and the output
inline constexpr size_t kBaseHeapBytes = 64u << 20;  ///< live values, beside a multiple of the input's size
inline constexpr size_t kHeapBytesPerInputByte = 64;
inline constexpr int64_t kMaxRange = 100'000;  ///< items of range(), as jinja2's sandbox has it
inline constexpr int kMaxDataDepth = 200;      ///< nesting of lists and dicts that are printed or compared
inline constexpr int kMaxEvalDepth = 2'000;    ///< nested evaluations, macro calls included

enum class Type : uint8_t {
  none,
  boolean,
  integer,
  real,  // held in the Value itself
  undefined,
  big,
  string,
  list,
  tuple,
  dict,
  range,
  view,
  iterator,
  space,
  macro,
  function,
  method,
  loop,
  frame
};

class Heap;

/// Base of everything that lives on a Heap.
class Object {
 public:
  virtual ~Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

 protected:
  Object() = default;
};

/// What the heap keeps of an object, in front of it: it outlives the object itself, so that objects that
/// refer to each other can end in any order. Counted without atomics: a rendering stays on one thread, and
/// the constants of a parsed template are frozen, so that threads can share them.
struct alignas(16) ObjectHeader {
  Heap* heap;
  ObjectHeader* previous;
  ObjectHeader* next;
  size_t charged_bytes;
  uint32_t references;
  bool frozen;

  Object* object() { return reinterpret_cast<Object*>(this + 1); }
  static ObjectHeader& of(Object* object) { return reinterpret_cast<ObjectHeader*>(object)[-1]; }
};

struct String;
struct List;
struct Dict;
struct Big;
struct Range;
struct View;
struct Undefined;

/// One value: a scalar, or a counted reference to an Object.
class Value {
 public:
  Value() = default;
  static Value boolean(bool b) {
    Value v;
    v.type_ = Type::boolean;
    v.integer_ = b;
    return v;
  }
  static Value integer(int64_t i) {
    Value v;
    v.type_ = Type::integer;
    v.integer_ = i;
    return v;
  }
  static Value real(double d) {
    Value v;
    v.type_ = Type::real;
    v.real_ = d;
    return v;
  }
  Value(Type type, Object* object) : type_(type), object_(object) { retain(); }
  Value(const Value& other) : type_(other.type_), integer_(other.integer_) { retain(); }
  Value(Value&& other) noexcept : type_(other.type_), integer_(other.integer_) {
    other.type_ = Type::none;
    other.integer_ = 0;
  }
  Value& operator=(Value other) noexcept {
    std::swap(type_, other.type_);
    std::swap(integer_, other.integer_);
    return *this;
  }
  ~Value() {
    if (type_ >= Type::undefined) release();
  }

  Type type() const { return type_; }
  bool is(Type type) const { return type_ == type; }
  bool is_undefined() const { return type_ == Type::undefined; }
  bool is_none() const { return type_ == Type::none; }
  bool is_string() const { return type_ == Type::string; }
  bool is_int() const { return type_ == Type::integer || type_ == Type::boolean; }
  bool is_number() const { return is_int() || type_ == Type::real || type_ == Type::big; }
  bool is_sequence() const { return type_ == Type::list || type_ == Type::tuple; }

  bool as_bool() const { return integer_ != 0; }
  int64_t as_int() const { return integer_; }  ///< integer or boolean
  double as_real() const { return real_; }
  Object* object() const { return object_; }
  template <class T>
  T& as() const {
    return *static_cast<T*>(object_);
  }
  const String& string() const;
  std::string_view text() const;            ///< of a string
  const std::vector<Value>& items() const;  ///< of a list or tuple
  const Dict& dict() const;

 private:
  void retain() const {
    if (type_ < Type::undefined) return;
    ObjectHeader& header = ObjectHeader::of(object_);
    if (!header.frozen) ++header.references;
  }
  void release();

  Type type_ = Type::none;
  union {
    int64_t integer_ = 0;
    double real_;
    Object* object_;
  };
};

/// Owns every object of one rendering (or the constants of one template), and counts steps and live bytes.
class Heap {
 public:
  explicit Heap(size_t limit_bytes, int64_t limit_steps = kBaseSteps)
      : limit_bytes_(limit_bytes), limit_steps_(limit_steps), steps_left_(limit_steps) {}
  Heap(const Heap&) = delete;
  Heap& operator=(const Heap&) = delete;
  ~Heap();

  /// Takes steps from the budget; the error says that the template runs too long.
  void spend(int64_t steps) {
    if ((steps_left_ -= steps) < 0) out_of_steps();
  }
  void spend_bytes(size_t bytes) { spend(static_cast<int64_t>(bytes >> 5)); }

  /// Counts bytes of a buffer that is being filled; give them back with uncharge().
  void charge(size_t bytes) {
    if ((used_bytes_ += bytes) > limit_bytes_) out_of_bytes();
  }
  void uncharge(size_t bytes) { used_bytes_ -= bytes; }
  /// Counts bytes that an object took after it was made; they go when it goes.
  void grow(Object& object, size_t bytes) {
    charge(bytes);
    ObjectHeader::of(&object).charged_bytes += bytes;
  }
  /// Refuses a text that would be longer than one may be, before it is built.
  void check_text(size_t bytes) {
    if (bytes > kMaxTextBytes) text_too_long(bytes);
  }

  template <class T, class... Args>
  T* make(size_t payload_bytes, Args&&... args) {
    static_assert(alignof(T) <= alignof(ObjectHeader));
    const size_t bytes = sizeof(ObjectHeader) + sizeof(T);
    charge(bytes + payload_bytes);
    auto* header = new (::operator new(bytes)) ObjectHeader{};
    T* object = new (header + 1) T(std::forward<Args>(args)...);
    adopt(header, bytes + payload_bytes);
    return object;
  }

  Value string(std::string text, bool markup = false);
  Value list(std::vector<Value> items);
  Value tuple(std::vector<Value> items);
  Value undefined(std::string hint);
  /// A dict of the entries in order; of a repeated key the last value wins, at the first one's place.
  Value dict(std::vector<std::pair<Value, Value>> entries);

  /// Makes all objects immortal and safe to share between threads, for as long as this heap lives.
  void freeze();

 private:
  friend class Value;
  void adopt(ObjectHeader* header, size_t bytes);
  void dispose(ObjectHeader* header);
  [[noreturn]] void out_of_steps();
  [[noreturn]] void out_of_bytes();
  [[noreturn]] void text_too_long(size_t bytes);

  ObjectHeader* first_ = nullptr;
  std::vector<ObjectHeader*> dying_;  ///< released, not yet deleted: deep structures must not recurse
  bool draining_ = false;
  bool closing_ = false;
  size_t used_bytes_ = 0;
  size_t limit_bytes_;
  int64_t limit_steps_, steps_left_;
};

/// Text in UTF-8 (always valid); lengths and indices are in code points as in Python.
struct String : Object {
  String(std::string t, bool m);
  std::string text;
  int64_t length;  ///< code points
  bool markup;     ///< jinja2's Markup: adding plain text to it escapes that text
  bool ascii() const { return length == static_cast<int64_t>(text.size()); }
};

/// An integer beyond 64 bits: keeps its digits; it prints and compares, arithmetic refuses it.
struct Big : Object {
  explicit Big(std::string d) : digits(std::move(d)) {}
  std::string digits;  ///< decimal, "-" before it where negative, no leading zeros
};

/// A list or tuple; never changed after it is made.
struct List : Object {
  explicit List(std::vector<Value> i) : items(std::move(i)) {}
  std::vector<Value> items;
  bool group = false;  ///< a tuple of groupby: has .grouper and .list
};

/// A dict in insertion order; never changed after it is made.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> entries;
  std::vector<uint32_t> sorted;  ///< places by key order, where there are many
  const Value* find(std::string_view key) const;
  const Value* find(const Value& key) const;  ///< an unhashable key is an error
};

struct Range : Object {
  Range(int64_t b, int64_t e, int64_t s, int64_t n) : start(b), stop(e), step(s), length(n) {}
  int64_t start, stop, step, length;
  int64_t at(int64_t i) const { return start + i * step; }
};

/// What dict.keys(), .values() and .items() give.
struct View : Object {
  enum class Kind : uint8_t { keys, values, items };
  View(Value d, Kind k) : dict(std::move(d)), kind(k) {}
  Value dict;
  Kind kind;
};

/// jinja2's Undefined: prints as nothing, and most other uses are an error that its hint explains.
struct Undefined : Object {
  explicit Undefined(std::string h) : hint(std::move(h)) {}
  std::string hint;
};

/// Something that gives values one after another, once.
struct Iterator : Object {
  explicit Iterator(const char* python_type) : type_name(python_type) {}
  const char* type_name;
  virtual bool next(Value& out) = 0;  ///< false at the end, and ever after
};

/// What namespace() makes: the only thing a template can change.
struct Namespace : Object {
  std::vector<std::pair<std::string, Value>> attributes;
  Value* find(std::string_view name);
};

inline const String& Value::string() const { return as<String>(); }
inline std::string_view Value::text() const { return as<String>().text; }
inline const std::vector<Value>& Value::items() const { return as<List>().items; }
inline const Dict& Value::dict() const { return as<Dict>(); }

/// Python's name of the value's type, for messages.
std::string_view type_name(const Value& value);

/// -1, 0, 1: an order over all hashable values in which equal keys (1, 1.0, true) compare equal. For dicts.
int compare_keys(const Value& a, const Value& b, int depth = 0);
/// -1, 0, 1 or 2 (unordered: NaN) of two numbers, exactly.
int compare_numbers(const Value& a, const Value& b);

}  // namespace quintet::jinja
