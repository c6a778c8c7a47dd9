// Reads JSON straight into values, through the events of nlohmann's parser.
#include "text/jinja/input.h"

#include "base/json_parse.h"

namespace quintet::jinja {
namespace {

class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  Builder(Heap& heap, std::string_view what, const TextRewrite& rewrite)
      : heap_(heap), what_(what), rewrite_(rewrite) {}

  Value take() { return std::move(result_); }

  bool null() override { return add(Value()); }
  bool boolean(bool b) override { return add(Value::boolean(b)); }
  bool number_integer(number_integer_t i) override { return add(Value::integer(i)); }
  bool number_unsigned(number_unsigned_t u) override {
    return u <= INT64_MAX ? add(Value::integer(static_cast<int64_t>(u))) : add_big(std::to_string(u));
  }
  bool number_float(number_float_t d, const string_t& text) override {
    // Integers beyond 64 bits come here too; as in Python they stay integers.
    if (text.find_first_of(".eE") == string_t::npos) return add_big(text);
    return add(Value::real(d));
  }
  bool string(string_t& s) override { return add(text(std::move(s))); }
  bool binary(binary_t&) override { return false; }

  bool start_object(size_t) override { return open(true); }
  bool start_array(size_t) override { return open(false); }
  bool key(string_t& k) override {
    open_.back().key = text(std::move(k));
    return true;
  }
  bool end_object() override {
    Value dict = heap_.dict(std::move(open_.back().entries));
    open_.pop_back();
    return add(std::move(dict));
  }
  bool end_array() override {
    Value list = heap_.list(std::move(open_.back().items));
    open_.pop_back();
    return add(std::move(list));
  }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception& e) override {
    fail("{} is not valid JSON at byte {}: {}", what_, position, json_reason(e));
  }

 private:
  struct Open {
    bool is_object;
    Value key;
    std::vector<Value> items;
    std::vector<std::pair<Value, Value>> entries;
  };

  Value text(std::string s) { return heap_.string(rewrite_ ? rewrite_(std::move(s)) : std::move(s)); }

  bool open(bool is_object) {
    if (open_.size() >= static_cast<size_t>(kMaxDataDepth))
      fail("{} is nested more than {} deep", what_, kMaxDataDepth);
    open_.push_back({is_object, {}, {}, {}});
    return true;
  }

  bool add(Value v) {
    if (open_.empty())
      result_ = std::move(v);
    else if (open_.back().is_object)
      open_.back().entries.emplace_back(std::move(open_.back().key), std::move(v));
    else
      open_.back().items.push_back(std::move(v));
    return true;
  }

  bool add_big(std::string digits) {
    size_t bytes = digits.size();
    return add(Value(Type::big, heap_.make<Big>(bytes, std::move(digits))));
  }

  Heap& heap_;
  std::string_view what_;
  const TextRewrite& rewrite_;
  std::vector<Open> open_;
  Value result_;
};

}  // namespace

Value parse_json(Heap& heap, std::string_view text, std::string_view what, const TextRewrite& rewrite) {
  Builder builder(heap, what, rewrite);
  parse_json_events(text, builder);
  return builder.take();
}

}  // namespace quintet::jinja
