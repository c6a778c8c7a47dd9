// A chat as JSON messages, and its way to token ids through a model's template.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/model.h"
#include "server/prompt.h"

namespace quintet {

/// Strict JSON of bounded depth. `origin` names it in errors.
Result<nlohmann::ordered_json> read_json(std::string_view text, std::string_view origin);

/// Reads a list of messages or an object with "messages" and perhaps "tools", as the server does
/// (server/messages.h). `tools` may be null where they are not wanted.
Result<nlohmann::ordered_json> parse_messages(std::string_view text, std::string_view origin,
                                              nlohmann::ordered_json* tools);

/// A JSON list of tools, checked as the server does.
Result<nlohmann::ordered_json> parse_tools(std::string_view text, std::string_view origin);

/// bad_input where the model has no template.
Status check_template(const Model& model);

/// The prompt's text. Errors of the template name the file that it came from.
Result<std::string> render_prompt(const Model& model, const ConversationInput& input);

/// The prompt's ids, exactly those that the server makes of these messages. Errors as render_prompt().
Result<std::vector<TokenId>> encode_conversation(const Model& model, const nlohmann::ordered_json& messages);

/// A text as JSON; bad_input that names `what` and the byte where it is not UTF-8.
Result<nlohmann::ordered_json> json_text(std::string_view text, std::string_view what);

}  // namespace quintet
