// Checks messages, renders them, encodes the result.
#include "cli/conversation.h"

#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "server/json_reader.h"
#include "server/messages.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr JsonLimits kLimits = {.depth = 64};  // a tool's schema takes about ten levels

Error fault_in(std::string_view origin, const ApiError& error) {
  return bad_input(fmt::format("{}: {}", origin, error.message));
}

Error fault_in_template(const Model& model, Error error) {
  error.message = fmt::format("{}: {}", model.chat_template_origin, error.message);
  return error;
}

}  // namespace

Status check_template(const Model& model) {
  if (model.chat_template) return {};
  if (!model.chat_template_source.empty())
    return bad_input(
        fmt::format("{}: the chat template cannot be used: {}; --chat-template FILE replaces it, --raw of "
                    "`run` does without",
                    model.path, model.chat_template_error));
  return bad_input(
      fmt::format("{}: found no chat template in the model, give one with --chat-template FILE", model.path));
}

Result<Json> read_json(std::string_view text, std::string_view origin) {
  auto parsed = parse_json(text, kLimits);
  if (parsed) return std::move(*parsed);
  const std::string& place = parsed.error().param;
  return fault_in(place.empty() ? std::string(origin) : fmt::format("{}: {}", origin, place), parsed.error());
}

Result<Json> parse_messages(std::string_view text, std::string_view origin, Json* tools) {
  TRY_ASSIGN(const Json parsed, read_json(text, origin));
  const bool whole = parsed.is_object() && parsed.contains("messages");
  if (!whole && !parsed.is_array())
    return bad_input(fmt::format("{}: found {}, allowed is a list of messages or an object with \"messages\"",
                                 origin, kind_of(parsed)));
  std::optional<ApiError> error;
  Json messages = read_messages(whole ? parsed["messages"] : parsed, "messages", kLimits, error);
  if (whole && tools && parsed.contains("tools") && !parsed["tools"].is_null()) {
    *tools = parsed["tools"];
    check_tools(*tools, "tools", error);
  }
  if (error) return fault_in(origin, *error);
  return messages;
}

Result<Json> parse_tools(std::string_view text, std::string_view origin) {
  TRY_ASSIGN(Json tools, read_json(text, origin));
  std::optional<ApiError> error;
  check_tools(tools, "tools", error);
  if (error) return fault_in(origin, *error);
  return tools;
}

Result<std::string> render_prompt(const Model& model, const ConversationInput& input) {
  TRY(check_template(model));
  Result<std::string> prompt = render_conversation(model, input);
  if (!prompt) return fault_in_template(model, std::move(prompt).error());
  return prompt;
}

Result<std::vector<TokenId>> encode_conversation(const Model& model, const Json& messages) {
  TRY(check_template(model));
  Result<std::vector<TokenId>> ids = PromptBuilder(model).conversation(
      {.messages_json = messages.dump(-1, ' ', false, Json::error_handler_t::replace)});
  if (!ids) return fault_in_template(model, std::move(ids).error());
  return ids;
}

Result<Json> json_text(std::string_view text, std::string_view what) {
  const size_t broken = find_broken_utf8(text);
  if (broken != std::string_view::npos)
    return bad_input(fmt::format(
        "{}: found byte 0x{:02x} at offset {}, which is not UTF-8; a chat template takes UTF-8 alone", what,
        static_cast<unsigned char>(text[broken]), broken));
  return Json(std::string(text));
}

}  // namespace quintet
