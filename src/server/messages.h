// Messages and tools as OpenAI's clients write them, checked and in the shape that chat templates expect: one
// reading for the server and for the verbs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "server/errors.h"
#include "server/json_reader.h"

namespace quintet {

/// A list of messages: text parts are joined into one string, tool_calls[].function.arguments become objects
/// (a string that holds no JSON object stays a string), "developer" becomes "system". Reports the first fault
/// to `error`, with its path below `path`; what is returned then means nothing.
nlohmann::ordered_json read_messages(const nlohmann::ordered_json& value, const std::string& path,
                                     const JsonLimits& limits, std::optional<ApiError>& error);

/// Checks a list of tools: {"type": "function", "function": {"name", "description", "parameters", "strict"}}.
void check_tools(const nlohmann::ordered_json& value, const std::string& path,
                 std::optional<ApiError>& error);

}  // namespace quintet
