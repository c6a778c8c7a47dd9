// Typed reading of a JSON object's fields, with messages that name file, field, what was found and what is
// allowed.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace quintet {

/// Borrows the object. A null counts as absent everywhere, as configuration files use it.
class JsonFields {
 public:
  /// `object` must be an object; `origin` is the file, `path` what leads to the object ("rope_scaling.").
  JsonFields(const nlohmann::json& object, std::string origin, std::string path = "")
      : object_(&object), origin_(std::move(origin)), path_(std::move(path)) {}

  const std::string& origin() const { return origin_; }
  std::string name(std::string_view key) const { return path_ + std::string(key); }

  /// null where absent.
  const nlohmann::json* find(std::string_view key) const;
  bool has(std::string_view key) const { return find(key) != nullptr; }
  /// True for a null too.
  bool mentions(std::string_view key) const { return object_->contains(std::string(key)); }

  Result<int32_t> count(std::string_view key) const;
  Result<int32_t> count_or(std::string_view key, int32_t fallback) const;
  Result<double> number_or(std::string_view key, double fallback) const;
  Result<std::optional<double>> number(std::string_view key) const;
  Result<bool> flag_or(std::string_view key, bool fallback) const;
  Result<std::string> text_or(std::string_view key, std::string_view fallback) const;
  Result<std::vector<float>> numbers(std::string_view key) const;      ///< absent: empty
  Result<std::vector<std::string>> texts(std::string_view key) const;  ///< absent: empty
  /// Absent: an empty optional; not an object: an error.
  Result<std::optional<JsonFields>> object(std::string_view key) const;

  /// An error about one field.
  Error wrong(std::string_view key, std::string_view allowed) const;

 private:
  const nlohmann::json* object_;
  std::string origin_;
  std::string path_;
};

/// Parses a whole file; `origin` names it. Anything but an object is bad_input.
Result<nlohmann::json> parse_json_object(const std::string& text, const std::string& origin);

}  // namespace quintet
