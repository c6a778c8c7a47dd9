// The checks behind each kind of member.
#include "server/fields.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "server/json_reader.h"

namespace quintet {

Fields::Fields(const Json& value, std::string path, std::optional<ApiError>& error)
    : object_(value), path_(std::move(path)), error_(error) {
  if (!value.is_object()) fail_type(path_.empty() ? "body" : path_, "an object", value);
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

void Fields::fail(const std::string& path, std::string message, std::string code) {
  if (!error_) error_ = field_error(path, std::move(message), std::move(code));
}

void Fields::fail_type(const std::string& path, std::string_view wanted, const Json& found) {
  fail(path, fmt::format("Invalid type for '{}': found {}, allowed is {}.", path, kind_of(found), wanted),
       "invalid_type");
}

void Fields::fail_value(const std::string& path, std::string message) {
  fail(path, fmt::format("Invalid value for '{}': {}.", path, message), "invalid_value");
}

void Fields::fail_unsupported(const std::string& path, std::string message) {
  fail(path, fmt::format("Unsupported parameter '{}': {}.", path, message), "unsupported_parameter");
}

const Fields::Json* Fields::take(std::string_view name) {
  known_.push_back(name);
  if (error_) return nullptr;
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

const Fields::Json* Fields::require(std::string_view name) {
  const Json* value = take(name);
  if (value == nullptr)
    fail(path_of(name), fmt::format("Missing required parameter: '{}'.", path_of(name)),
         "missing_required_parameter");
  return value;
}

bool Fields::boolean(std::string_view name, bool fallback) {
  const Json* value = take(name);
  if (value == nullptr) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  fail_type(path_of(name), "a boolean", *value);
  return fallback;
}

std::optional<double> Fields::number(std::string_view name, double min, double max) {
  const Json* value = take(name);
  if (value == nullptr) return {};
  if (!value->is_number()) {
    fail_type(path_of(name), "a number", *value);
    return {};
  }
  const double number = value->get<double>();
  if (number >= min && number <= max) return number;
  fail_value(path_of(name),
             fmt::format("found {}, allowed are numbers from {:g} to {:g}", quote_json(*value), min, max));
  return {};
}

std::optional<int64_t> Fields::integer(std::string_view name, int64_t min, int64_t max) {
  const Json* value = take(name);
  if (value == nullptr) return {};
  if (!value->is_number_integer()) {
    // An integer beyond 64 bits arrives as a floating-point number.
    fail_type(path_of(name), "an integer of at most 64 bits", *value);
    return {};
  }
  const bool too_big =
      value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX);
  if (!too_big && value->get<int64_t>() >= min && value->get<int64_t>() <= max) return value->get<int64_t>();
  fail_value(path_of(name),
             fmt::format("found {}, allowed are integers from {} to {}", quote_json(*value), min, max));
  return {};
}

std::optional<std::string> Fields::text(std::string_view name) {
  const Json* value = take(name);
  if (value == nullptr) return {};
  if (value->is_string()) return value->get<std::string>();
  fail_type(path_of(name), "a string", *value);
  return {};
}

void Fields::ignore(std::initializer_list<std::string_view> names) { known_.insert(known_.end(), names); }

void Fields::refuse(std::string_view name, std::string_view why) {
  if (take(name) != nullptr) fail_unsupported(path_of(name), std::string(why));
}

void Fields::finish() {
  if (error_) return;
  for (const auto& [name, value] : object_.items())
    if (std::find(known_.begin(), known_.end(), name) == known_.end())
      return fail(path_of(quote_text(name)),
                  fmt::format("Unknown parameter: '{}'.", path_of(quote_text(name))), "unknown_parameter");
}

}  // namespace quintet
