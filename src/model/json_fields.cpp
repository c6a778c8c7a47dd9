// Typed reading of a JSON object's fields.
#include "model/json_fields.h"

#include <fmt/format.h>

#include <cmath>
#include <unordered_set>

#include "base/json_parse.h"

namespace quintet {
namespace {

/// A value as a message can bear it.
std::string shown(const nlohmann::json& value) {
  constexpr size_t kMostBytes = 60;
  if (value.is_array()) return fmt::format("a list of {}", value.size());
  if (value.is_object()) return "an object";
  std::string text = value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  return text.size() <= kMostBytes ? text : text.substr(0, kMostBytes) + "...";
}

}  // namespace

const nlohmann::json* JsonFields::find(std::string_view key) const {
  const auto it = object_->find(std::string(key));
  return it == object_->end() || it->is_null() ? nullptr : &*it;
}

Error JsonFields::wrong(std::string_view key, std::string_view allowed) const {
  const nlohmann::json* value = find(key);
  return bad_input(fmt::format("{}: {} is {}; allowed is {}", origin_, name(key),
                               value ? shown(*value) : "absent", allowed));
}

Result<int32_t> JsonFields::count(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (!value || !value->is_number_integer() || *value < 0 || *value > INT32_MAX)
    return wrong(key, "a whole number from 0 to 2147483647");
  return value->get<int32_t>();
}

Result<int32_t> JsonFields::count_or(std::string_view key, int32_t fallback) const {
  if (!has(key)) return fallback;
  return count(key);
}

Result<std::optional<double>> JsonFields::number(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (!value) return std::optional<double>();
  if (!value->is_number() || !std::isfinite(value->get<double>())) return wrong(key, "a number");
  return std::optional(value->get<double>());
}

Result<double> JsonFields::number_or(std::string_view key, double fallback) const {
  TRY_ASSIGN(const std::optional<double> value, number(key));
  return value.value_or(fallback);
}

Result<bool> JsonFields::flag_or(std::string_view key, bool fallback) const {
  const nlohmann::json* value = find(key);
  if (!value) return fallback;
  if (!value->is_boolean()) return wrong(key, "true or false");
  return value->get<bool>();
}

Result<std::string> JsonFields::text_or(std::string_view key, std::string_view fallback) const {
  const nlohmann::json* value = find(key);
  if (!value) return std::string(fallback);
  if (!value->is_string()) return wrong(key, "a string");
  return value->get<std::string>();
}

Result<std::vector<float>> JsonFields::numbers(std::string_view key) const {
  std::vector<float> out;
  const nlohmann::json* value = find(key);
  if (!value) return out;
  if (!value->is_array()) return wrong(key, "a list of numbers");
  for (const nlohmann::json& element : *value) {
    if (!element.is_number()) return wrong(key, "a list of numbers");
    out.push_back(element.get<float>());
  }
  return out;
}

Result<std::vector<std::string>> JsonFields::texts(std::string_view key) const {
  std::vector<std::string> out;
  const nlohmann::json* value = find(key);
  if (!value) return out;
  if (!value->is_array()) return wrong(key, "a list of strings");
  for (const nlohmann::json& element : *value) {
    if (!element.is_string()) return wrong(key, "a list of strings");
    out.push_back(element.get<std::string>());
  }
  return out;
}

Result<std::optional<JsonFields>> JsonFields::object(std::string_view key) const {
  const nlohmann::json* value = find(key);
  if (!value) return std::optional<JsonFields>();
  if (!value->is_object()) return wrong(key, "an object");
  return std::optional(JsonFields(*value, origin_, name(key) + "."));
}

Result<nlohmann::json> parse_json_object(const std::string& text, const std::string& origin) {
  using Event = nlohmann::json::parse_event_t;
  std::vector<std::unordered_set<std::string>> open;  // the keys so far of each open object
  std::string twice;
  const auto note_key = [&](int, Event event, nlohmann::json& value) {
    if (event == Event::object_start) open.emplace_back();
    if (event == Event::object_end) open.pop_back();
    if (event == Event::key && !open.back().insert(value.get<std::string>()).second && twice.empty())
      twice = shown(value);
    return true;
  };
  if (const size_t nul = find_nul(text); nul != std::string::npos)
    return bad_input(fmt::format("{}: found a NUL byte at byte {}; allowed is JSON text", origin, nul + 1));
  nlohmann::json parsed = parse_json_tree(text, note_key);
  if (parsed.is_discarded()) return bad_input(fmt::format("{}: not valid JSON", origin));
  if (!twice.empty())
    return bad_input(
        fmt::format("{}: the key {} is there twice in one object; allowed is once", origin, twice));
  if (!parsed.is_object()) return bad_input(fmt::format("{}: the outermost value is not an object", origin));
  return parsed;
}

}  // namespace quintet
