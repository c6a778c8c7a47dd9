// Any bytes as a chat template with a conversation and variables: an error that names the template or the
// input, or valid UTF-8 within the limit, and the same again.
//
// An input has up to four parts between lines of "---": template, messages, variables, tools (JSON).
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "text/chat_template.h"
#include "text/jinja/unicode.h"

using namespace quintet;

namespace {

std::string_view take_part(std::string_view& rest) {
  constexpr std::string_view kBorder = "\n---\n";
  size_t at = rest.find(kBorder);
  std::string_view part = rest.substr(0, at);
  rest.remove_prefix(at == std::string_view::npos ? rest.size() : at + kBorder.size());
  return part;
}

void check_error(const Error& error) {
  QUINTET_CHECK(error.kind == ErrorKind::bad_input, "{}", error.message);
  QUINTET_CHECK(!error.message.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view rest(reinterpret_cast<const char*>(data), size);
  const auto parsed = ChatTemplate::parse(take_part(rest));
  if (!parsed) return check_error(parsed.error()), 0;
  TemplateInput input;
  input.messages_json = take_part(rest);
  if (input.messages_json.empty()) input.messages_json = R"([{"role": "user", "content": "Grüße"}])";
  input.extra_json = take_part(rest);
  input.tools_json = take_part(rest);
  if (input.tools_json.empty())
    input.tools_json = R"([{"type": "function", "function": {"name": "f", "parameters": {"x": 1.5}}}])";
  input.bos_token = "<s>";
  input.now_unix_s = 1764547200;
  const auto text = (*parsed).render(input);
  if (!text) return check_error(text.error()), 0;
  QUINTET_CHECK((*text).size() <= 16u << 20);
  QUINTET_CHECK(!jinja::find_invalid_utf8(*text));
  const auto again = (*parsed).render(input);
  QUINTET_CHECK(again && *again == *text);
  return 0;
}
