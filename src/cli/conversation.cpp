// Checks messages, renders them, encodes the result.
#include "cli/conversation.h"

#include <nlohmann/json.hpp>

#include "cli/flags.h"
#include "server/json_reader.h"
#include "server/prompt.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr int32_t kMaxDepth = 64;  // of lists and objects: a tool's schema takes about ten

std::string token_text_of(const Tokenizer& tokenizer, const std::optional<TokenId>& token) {
  return token ? std::string(tokenizer.token_text(*token)) : std::string();
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
  auto parsed = parse_json(text, {.depth = kMaxDepth});
  if (!parsed) return bad_input(fmt::format("{}: {}", origin, parsed.error().message));
  return std::move(*parsed);
}

Result<Json> parse_messages(std::string_view text, std::string_view origin, Json* tools) {
  TRY_ASSIGN(Json parsed, read_json(text, origin));
  Json messages = parsed.is_object() && parsed.contains("messages") ? parsed["messages"] : parsed;
  if (!messages.is_array())
    return bad_input(fmt::format("{}: found {}, allowed is a list of messages or an object with \"messages\"",
                                 origin, messages.type_name()));
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.is_object())
      return bad_input(
          fmt::format("{}: messages[{}]: found {}, allowed is an object", origin, i, message.type_name()));
    if (!message.contains("role") || !message["role"].is_string())
      return bad_input(fmt::format("{}: messages[{}].role: found {}, allowed is a string", origin, i,
                                   message.contains("role") ? message["role"].type_name() : "nothing"));
  }
  if (tools && parsed.is_object() && parsed.contains("tools")) *tools = parsed["tools"];
  return messages;
}

Result<std::string> render_conversation(const Model& model, const Json& messages,
                                        const RenderOptions& options) {
  TRY(check_template(model));
  TemplateInput input;
  input.messages_json = messages.dump();
  input.tools_json = options.tools_json;
  input.add_generation_prompt = options.add_generation_prompt;
  input.bos_token = token_text_of(*model.tokenizer, model.tokenizer->spec().bos);
  input.eos_token = token_text_of(*model.tokenizer, model.tokenizer->spec().eos);
  input.now_unix_s = wall_clock_s();
  return model.chat_template->render(input);
}

Result<std::vector<TokenId>> encode_conversation(const Model& model, const Json& messages) {
  TRY(check_template(model));
  return PromptBuilder(model).conversation({.messages_json = messages.dump()});
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
