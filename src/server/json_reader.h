// Strict JSON for untrusted bodies: bounded depth and size, no duplicate keys, whole Unicode; errors name the
// field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "server/errors.h"

namespace quintet {

struct JsonLimits {
  int32_t depth = 32;        ///< nested lists and objects
  int64_t values = 1 << 18;  ///< values of all kinds, keys apart
};

/// Parses `text`, keeping the order of keys: a template that prints a tool's description prints it as it was
/// given. The error's param is the path of the value at fault, "messages[0].content".
ApiResult<nlohmann::ordered_json> parse_json(std::string_view text, const JsonLimits& limits);

/// A value as an error may quote it: at most 48 bytes of its JSON.
std::string quote_json(const nlohmann::ordered_json& value);

/// Bytes of a text as an error may quote them, cut at 48 bytes.
std::string quote_text(std::string_view text);

/// What kind of value this is: "a string", "a list", "null".
std::string kind_of(const nlohmann::ordered_json& value);

}  // namespace quintet
