// Renders chat templates for the Python tests: one JSON case a line in, one JSON result a line out.
//
// A case: {"template", "messages", "tools", "extra"} (the last three as JSON in strings, tools and extra may
// be empty), "add_generation_prompt", "bos_token", "eos_token", "now". A result: {"text"} or {"error"}.
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "text/chat_template.h"

int main() {
  std::ios::sync_with_stdio(false);
  std::optional<quintet::ChatTemplate> parsed;
  std::string parsed_source, parse_error, line;
  bool first = true;
  while (std::getline(std::cin, line)) {
    auto in = nlohmann::json::parse(line);
    nlohmann::json out;
    auto source = in.at("template").get<std::string>();
    if (first || source != parsed_source) {
      first = false;
      parsed_source = source;
      auto result = quintet::ChatTemplate::parse(source);
      parsed.reset();
      if (result)
        parsed = std::move(result).value();
      else
        parse_error = result.error().message;
    }
    if (!parsed) {
      out["error"] = parse_error;
    } else {
      quintet::TemplateInput input;
      input.messages_json = in.value("messages", std::string("[]"));
      input.tools_json = in.value("tools", std::string());
      input.extra_json = in.value("extra", std::string());
      input.add_generation_prompt = in.value("add_generation_prompt", false);
      input.bos_token = in.value("bos_token", std::string());
      input.eos_token = in.value("eos_token", std::string());
      input.now_unix_s = in.value("now", int64_t{0});
      auto result = parsed->render(input);
      if (result)
        out["text"] = *result;
      else
        out["error"] = result.error().message;
    }
    std::cout << out.dump() << "\n";
  }
  return 0;
}
