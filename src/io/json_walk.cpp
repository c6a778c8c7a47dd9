// Walks untrusted JSON value by value without building a tree.
#include "io/json_walk.h"

#include <optional>
#include <utility>
#include <vector>

#include "base/json_parse.h"
#include "base/printable.h"

namespace quintet {

namespace {

using Kind = JsonEvent::Kind;

constexpr size_t kMaxStringBytes = size_t{4} << 20;
constexpr size_t kMaxNumberBytes = 64;

/// Refuses strings and numbers of absurd length before the parser sees them: it would copy a faulty one some
/// ten times on the way to its message.
Status check_token_lengths(std::string_view text, std::string_view origin) {
  bool in_string = false;
  size_t begin = 0;  // of the string, or of the run of other characters without a separator
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (i - begin > (in_string ? kMaxStringBytes : kMaxNumberBytes))
      return bad_input(fmt::format("{}: byte {}: found a {} of more than {} bytes, allowed are shorter ones",
                                   origin, begin, in_string ? "string" : "number or word", i - begin - 1));
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false, begin = i + 1;
    } else if (c == '"') {
      in_string = true, begin = i + 1;
    } else if (c == ',' || c == ':' || c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '[' ||
               c == ']' || c == '{' || c == '}') {
      begin = i + 1;
    }
  }
  return {};
}

/// Turns the parser's callbacks into events with paths. A callback that answers false ends the parse.
class Walker final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Walker(std::string_view origin, int max_depth, const std::function<Status(const JsonEvent&)>& visit)
      : origin_(origin), max_depth_(max_depth), visit_(visit) {}

  bool null() override { return scalar({.kind = Kind::null}); }
  bool boolean(bool) override { return scalar({.kind = Kind::boolean}); }
  bool number_integer(number_integer_t) override { return scalar({.kind = Kind::number}); }
  bool number_unsigned(number_unsigned_t value) override {
    return scalar({.kind = Kind::unsigned_integer, .integer = value});
  }
  bool number_float(number_float_t, const string_t&) override { return scalar({.kind = Kind::number}); }
  bool string(string_t& value) override { return scalar({.kind = Kind::string, .string = value}); }
  bool binary(binary_t&) override {
    return fail(bad_input(fmt::format("{}: found binary, allowed is JSON text", origin_)));
  }
  bool key(string_t& value) override {
    path_.push_back(std::move(value));
    return true;
  }
  bool start_object(size_t) override { return begin(Kind::begin_object); }
  bool start_array(size_t) override { return begin(Kind::begin_array); }
  bool end_object() override { return end(Kind::end_object); }
  bool end_array() override { return end(Kind::end_array); }

  bool parse_error(size_t position, const std::string& token, const nlohmann::json::exception&) override {
    return fail(bad_input(
        fmt::format("{}: byte {}: found {}, allowed is JSON", origin_, position, printable(token, 40))));
  }

  std::optional<Error> error;

 private:
  bool fail(Error problem) {
    error = std::move(problem);
    return false;
  }
  bool emit(JsonEvent event) {
    event.path = path_;
    event.in_array = !objects_.empty() && !objects_.back();
    auto status = visit_(event);
    return status ? true : fail(std::move(status).error());
  }
  /// A value is complete: the key that it belongs to leaves the path.
  void leave() {
    if (!objects_.empty() && objects_.back()) path_.pop_back();
  }
  bool scalar(const JsonEvent& event) {
    if (!emit(event)) return false;
    leave();
    return true;
  }
  bool begin(Kind kind) {
    if (static_cast<int>(objects_.size()) >= max_depth_)
      return fail(bad_input(fmt::format("{}: found containers more than {} deep, allowed are at most {}",
                                        origin_, max_depth_, max_depth_)));
    if (!emit({.kind = kind})) return false;
    objects_.push_back(kind == Kind::begin_object);
    return true;
  }
  bool end(Kind kind) {
    objects_.pop_back();
    return scalar({.kind = kind});
  }

  std::string_view origin_;
  int max_depth_;
  const std::function<Status(const JsonEvent&)>& visit_;
  std::vector<std::string> path_;
  std::vector<bool> objects_;  ///< the open containers: true for an object, false for an array
};

}  // namespace

std::string_view json_kind_name(Kind kind) {
  switch (kind) {
    case Kind::begin_object: return "an object";
    case Kind::end_object: return "the end of an object";
    case Kind::begin_array: return "an array";
    case Kind::end_array: return "the end of an array";
    case Kind::string: return "a string";
    case Kind::unsigned_integer: return "an integer";
    case Kind::number: return "a number that is negative or no integer";
    case Kind::boolean: return "a boolean";
    case Kind::null: return "null";
  }
  return "?";
}

Status walk_json(std::string_view text, std::string_view origin, int max_depth,
                 const std::function<Status(const JsonEvent&)>& visit) {
  TRY(check_token_lengths(text, origin));
  Walker walker(origin, max_depth, visit);
  const bool complete = parse_json_events(text, walker);
  if (walker.error) return std::move(*walker.error);
  if (!complete) return bad_input(fmt::format("{}: found something that is not JSON", origin));
  return {};
}

}  // namespace quintet
