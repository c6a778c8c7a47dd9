// Checks messages field by field.
#include "server/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "server/fields.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

/// A fault of `value` itself, which lies at `path`.
void fail_type(const std::string& path, std::string_view wanted, const Json& value,
               std::optional<ApiError>& error) {
  if (!error)
    error = field_error(
        path, fmt::format("Invalid type for '{}': found {}, allowed is {}.", path, kind_of(value), wanted),
        "invalid_type");
}

/// Content as one string: a list of text parts is joined as it is.
std::optional<std::string> read_content(Fields& message, std::optional<ApiError>& error) {
  const Json* content = message.take("content");
  if (content == nullptr) return {};
  if (content->is_string()) return content->get<std::string>();
  const std::string path = message.path_of("content");
  if (!content->is_array()) {
    message.fail_type(path, "a string or a list of text parts", *content);
    return {};
  }
  std::string text;
  for (size_t i = 0; i < content->size() && !error; ++i) {
    Fields part((*content)[i], fmt::format("{}[{}]", path, i), error);
    const Json* type = part.require("type");
    if (type == nullptr) break;
    if (!type->is_string()) {
      part.fail_type(part.path_of("type"), "a string", *type);
    } else if (*type != "text") {
      part.fail_unsupported(
          part.path_of("type"),
          fmt::format("found a part of type {}, allowed is \"text\": the model takes text alone",
                      quote_json(*type)));
    } else {
      part.require("text");
      text += part.text("text").value_or("");
      part.ignore({"annotations", "cache_control"});
      part.finish();
    }
  }
  return text;
}

/// Templates print arguments as an object; OpenAI's clients send the object's JSON as a string. What a model
/// wrote and is no JSON object goes back to it as the text that it was.
Json read_arguments(Fields& function, const JsonLimits& limits) {
  const Json* arguments = function.take("arguments");
  if (arguments == nullptr) return Json::object();
  if (arguments->is_object()) return *arguments;
  if (!arguments->is_string()) {
    function.fail_type(function.path_of("arguments"), "an object, or a string that holds its JSON",
                       *arguments);
    return {};
  }
  auto parsed = parse_json(arguments->get_ref<const std::string&>(), limits);
  return parsed && parsed->is_object() ? std::move(*parsed) : *arguments;
}

Json read_tool_calls(const Json& calls, const std::string& path, std::optional<ApiError>& error,
                     const JsonLimits& limits) {
  Json out = Json::array();
  for (size_t i = 0; i < calls.size() && !error; ++i) {
    Fields call(calls[i], fmt::format("{}[{}]", path, i), error);
    Json item = Json::object();
    if (auto id = call.text("id")) item["id"] = std::move(*id);
    if (const auto type = call.text("type"); type && *type != "function")
      call.fail_value(call.path_of("type"),
                      fmt::format("found \"{}\", allowed is \"function\"", quote_text(*type)));
    item["type"] = "function";
    if (const Json* function = call.require("function")) {
      Fields inner(*function, call.path_of("function"), error);
      Json copy = Json::object();
      inner.require("name");
      copy["name"] = inner.text("name").value_or("");
      copy["arguments"] = read_arguments(inner, limits);
      inner.finish();
      item["function"] = std::move(copy);
    }
    call.ignore({"index"});
    call.finish();
    out.push_back(std::move(item));
  }
  return out;
}

Json read_message(const Json& value, const std::string& path, std::optional<ApiError>& error,
                  const JsonLimits& limits) {
  static constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant",
                                                             "tool"};
  Fields fields(value, path, error);
  Json message = Json::object();
  fields.require("role");
  std::string role = fields.text("role").value_or("");
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end())
    fields.fail_value(fields.path_of("role"),
                      fmt::format("found \"{}\", allowed are {}", quote_text(role), fmt::join(kRoles, ", ")));
  // The newer name of the system message; templates know the older one.
  if (role == "developer") role = "system";
  message["role"] = role;

  auto content = read_content(fields, error);
  const Json* calls = fields.take("tool_calls");
  if (calls != nullptr && !calls->is_array())
    fields.fail_type(fields.path_of("tool_calls"), "a list", *calls);
  if (calls != nullptr && role != "assistant")
    fields.fail_value(fields.path_of("tool_calls"),
                      fmt::format("found in a message of role {}, allowed is assistant", role));
  if (!content && (role != "assistant" || calls == nullptr || calls->empty())) fields.require("content");
  message["content"] = content ? Json(std::move(*content)) : Json(nullptr);
  if (calls != nullptr && !calls->empty() && !error)
    message["tool_calls"] = read_tool_calls(*calls, fields.path_of("tool_calls"), error, limits);
  for (const char* name : {"name", "tool_call_id", "reasoning_content"})
    if (auto text = fields.text(name)) message[name] = std::move(*text);
  // What clients send back from an answer.
  fields.ignore({"refusal", "annotations"});
  fields.refuse("audio", "the model takes text alone");
  fields.refuse("function_call", "use tool_calls");
  fields.finish();
  return message;
}

void check_tool(const Json& value, const std::string& path, std::optional<ApiError>& error) {
  Fields tool(value, path, error);
  tool.require("type");
  if (const auto type = tool.text("type"); type && *type != "function")
    tool.fail_unsupported(tool.path_of("type"),
                          fmt::format("found \"{}\", allowed is \"function\"", quote_text(*type)));
  if (const Json* function = tool.require("function")) {
    Fields inner(*function, tool.path_of("function"), error);
    inner.require("name");
    inner.text("name");
    inner.text("description");
    if (const Json* parameters = inner.take("parameters"); parameters != nullptr && !parameters->is_object())
      inner.fail_type(inner.path_of("parameters"), "an object", *parameters);
    inner.boolean("strict", false);
    inner.finish();
  }
  tool.finish();
}

}  // namespace

Json read_messages(const Json& value, const std::string& path, const JsonLimits& limits,
                   std::optional<ApiError>& error) {
  Json list = Json::array();
  if (!value.is_array()) {
    fail_type(path, "a list of messages", value, error);
  } else {
    for (size_t i = 0; i < value.size() && !error; ++i)
      list.push_back(read_message(value[i], fmt::format("{}[{}]", path, i), error, limits));
  }
  return list;
}

void check_tools(const Json& value, const std::string& path, std::optional<ApiError>& error) {
  if (!value.is_array()) return fail_type(path, "a list", value, error);
  for (size_t i = 0; i < value.size() && !error; ++i)
    check_tool(value[i], fmt::format("{}[{}]", path, i), error);
}

}  // namespace quintet
