// Short ways to render a template in a test.
#pragma once

#include <string>

#include "text/chat_template.h"

namespace quintet {

/// Parses and renders with variables (a JSON object or empty) and messages (a JSON list).
inline Result<std::string> render_result(const std::string& source, const std::string& variables = "",
                                         const std::string& messages = "[]") {
  auto parsed = ChatTemplate::parse(source);
  if (!parsed) return parsed.error();
  TemplateInput input;
  input.messages_json = messages;
  input.extra_json = variables;
  return parsed->render(input);
}

inline std::string render_text(const std::string& source, const std::string& variables = "",
                               const std::string& messages = "[]") {
  auto text = render_result(source, variables, messages);
  return text ? *text : "error: " + text.error().message;
}

/// The message of an error that must be bad_input.
inline std::string render_error(const std::string& source, const std::string& variables = "",
                                const std::string& messages = "[]") {
  auto text = render_result(source, variables, messages);
  if (text) return "no error: " + *text;
  return text.error().kind == ErrorKind::bad_input ? text.error().message
                                                   : "wrong kind: " + text.error().message;
}

inline std::string parse_error(const std::string& source) {
  auto parsed = ChatTemplate::parse(source);
  return parsed ? "no error" : parsed.error().message;
}

}  // namespace quintet
