// Which of a model's chat templates is used.
#include "model/template_choice.h"

#include <fmt/format.h>

#include "base/log.h"
#include "model/json_fields.h"

namespace quintet {
namespace {

constexpr std::string_view kGgufTemplate = "tokenizer.chat_template";

Result<std::string> choose_from_gguf(const GgufFile& file) {
  if (file.has(kGgufTemplate)) {
    TRY_ASSIGN(const std::string_view source, file.get_string(kGgufTemplate));
    return std::string(source);
  }
  for (const GgufValue& value : file.values()) {  // tokenizer.chat_template.NAME
    if (!value.key.starts_with(kGgufTemplate) || value.type != GgufType::string) continue;
    LOG_INFO("{}: there is no default chat template; {} is used", file.path(), value.key);
    TRY_ASSIGN(const std::string_view source, file.get_string(value.key));
    return std::string(source);
  }
  return std::string();
}

/// tokenizer_config.json: a string, or [{"name": ..., "template": ...}].
Result<std::string> choose_from_config(const JsonFields& fields) {
  const nlohmann::json* found = fields.find("chat_template");
  if (!found) return std::string();
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return fields.wrong("chat_template", "a string or a list of {name, template}");
  std::string first;
  for (const nlohmann::json& entry : *found) {
    if (!entry.is_object()) return fields.wrong("chat_template", "a string or a list of {name, template}");
    const JsonFields variant(entry, fields.origin(), "chat_template[].");
    TRY_ASSIGN(const std::string name, variant.text_or("name", ""));
    TRY_ASSIGN(std::string source, variant.text_or("template", ""));
    if (name == "default") return source;
    if (first.empty()) first = std::move(source);
  }
  return first;
}

}  // namespace

Result<std::string> choose_chat_template(const ModelFiles& files) {
  if (files.gguf()) return choose_from_gguf(*files.gguf());
  if (!files.texts().chat_template.empty()) return files.texts().chat_template;
  if (files.texts().tokenizer_config.empty()) return std::string();
  const std::string origin = files.path() + "/tokenizer_config.json";
  TRY_ASSIGN(const nlohmann::json parsed, parse_json_object(files.texts().tokenizer_config, origin));
  return choose_from_config(JsonFields(parsed, origin));
}

}  // namespace quintet
