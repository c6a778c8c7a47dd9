// Builds a JSON value from the events of nlohmann's parser, with the checks that its own builder lacks.
#include "server/json_reader.h"

#include <fmt/format.h>

#include <optional>
#include <unordered_set>
#include <vector>

#include "base/json_parse.h"

namespace quintet {
namespace {

using json = nlohmann::ordered_json;

constexpr size_t kQuoteBytes = 48;

/// The handler of nlohmann's SAX interface: every call returns whether to go on.
class Builder {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() { return add(json(nullptr)); }
  bool boolean(bool value) { return add(json(value)); }
  bool number_integer(json::number_integer_t value) { return add(json(value)); }
  bool number_unsigned(json::number_unsigned_t value) { return add(json(value)); }
  bool number_float(json::number_float_t value, const std::string&) { return add(json(value)); }
  bool string(std::string& value) { return add(json(std::move(value))); }
  bool binary(json::binary_t&) { return false; }  // JSON text has none

  bool start_object(size_t) { return open(json::object()); }
  bool start_array(size_t) { return open(json::array()); }
  bool end_object() { return close(); }
  bool end_array() { return close(); }

  bool key(std::string& name) {
    Level& level = levels_.back();
    level.key = std::move(name);
    if (!level.keys.insert(level.key).second)
      return fail(path(), fmt::format("Duplicate key '{}': each key is allowed once in an object.",
                                      quote_text(level.key)));
    return true;
  }

  bool parse_error(size_t position, const std::string&, const json::exception& exception) {
    return fail(path(), fmt::format("Invalid JSON at byte {}: {}", position, json_reason(exception)),
                "invalid_json");
  }

  ApiResult<json> take() {
    if (error_) return *error_;
    return std::move(root_);
  }

 private:
  struct Level {
    json* value;
    std::string key;                       ///< of the member that is being read, where value is an object
    std::unordered_set<std::string> keys;  ///< so far; a look-up in the object would take linear time
  };

  bool fail(std::string param, std::string message, std::string code = "") {
    if (!error_) error_ = field_error(std::move(param), std::move(message), std::move(code));
    return false;
  }

  /// Where the next value belongs; null where a limit is passed.
  json* place(json value) {
    if (++values_ > limits_.values) {
      fail(path(), fmt::format("More than the {} JSON values allowed.", limits_.values));
      return nullptr;
    }
    if (levels_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    Level& level = levels_.back();
    if (level.value->is_array()) {
      level.value->push_back(std::move(value));
      return &level.value->back();
    }
    // Straight into the vector below: the map's own insertion searches all keys first.
    std::vector<std::pair<const std::string, json>>& members = *level.value->get_ptr<json::object_t*>();
    members.emplace_back(level.key, std::move(value));
    return &members.back().second;
  }

  bool add(json value) { return place(std::move(value)) != nullptr; }

  bool open(json value) {
    if (static_cast<int32_t>(levels_.size()) >= limits_.depth)
      return fail(path(), fmt::format("Nested deeper than the {} levels allowed.", limits_.depth));
    json* placed = place(std::move(value));
    if (placed == nullptr) return false;
    // Pointers to elements of a list stay valid: an element is closed before the next one is added.
    levels_.push_back({placed, {}, {}});
    return true;
  }

  bool close() {
    levels_.pop_back();
    return true;
  }

  std::string path() const {
    std::string text;
    for (const Level& level : levels_) {
      if (level.value->is_array()) {
        // Errors come before the element is added, or while it, the last one, is open.
        const bool open = &level != &levels_.back();
        text += fmt::format("[{}]", level.value->size() - (open ? 1 : 0));
      } else if (!level.key.empty()) {
        if (!text.empty()) text += '.';
        text += quote_text(level.key);
      }
    }
    return text;
  }

  const JsonLimits limits_;
  json root_;
  std::vector<Level> levels_;
  int64_t values_ = 0;
  std::optional<ApiError> error_;
};

}  // namespace

ApiResult<nlohmann::ordered_json> parse_json(std::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  parse_json_events(text, builder);
  return builder.take();
}

std::string quote_text(std::string_view text) {
  if (text.size() <= kQuoteBytes) return std::string(text);
  size_t cut = kQuoteBytes;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xC0) == 0x80) --cut;  // whole characters
  return std::string(text.substr(0, cut)) + "...";
}

std::string quote_json(const nlohmann::ordered_json& value) {
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return "an object";
  if (value.is_string()) return fmt::format("\"{}\"", quote_text(value.get_ref<const std::string&>()));
  return value.dump();
}

std::string kind_of(const nlohmann::ordered_json& value) {
  if (value.is_string()) return "a string";
  if (value.is_boolean()) return "a boolean";
  if (value.is_number_integer()) return "an integer";
  if (value.is_number()) return "a number";
  if (value.is_array()) return "a list";
  if (value.is_object()) return "an object";
  return "null";
}

}  // namespace quintet
