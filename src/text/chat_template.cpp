// The face of the template engine: parse once, render often.
#include "text/chat_template.h"

#include <fmt/core.h>

#include <ctime>
#include <new>

#include "text/jinja/input.h"
#include "text/jinja/interpreter.h"
#include "text/jinja/lexer.h"
#include "text/jinja/parser.h"
#include "text/jinja/unicode.h"

namespace quintet {

struct ChatTemplate::Impl {
  std::unique_ptr<jinja::Template> parsed;
};

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

int64_t wall_clock_s() {
  std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  return static_cast<int64_t>(now) + local.tm_gmtoff;
}

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  try {
    auto impl = std::make_unique<Impl>();
    impl->parsed = jinja::parse_template(source);
    return ChatTemplate(std::move(impl));
  } catch (const jinja::SyntaxFault& fault) {
    return bad_input(fmt::format("chat template, line {}: {}", fault.line, fault.message));
  } catch (const jinja::Fault& fault) {
    return bad_input(fmt::format("chat template: {}", fault.message));
  } catch (const std::bad_alloc&) {
    return no_room("chat template: no memory left to parse it");
  }
}

namespace {

/// Defines what a chat template always sees, then the extra variables.
void define_input(jinja::Interpreter& interpreter, const TemplateInput& input) {
  using jinja::Type;
  using jinja::Value;
  jinja::Heap& heap = interpreter.heap();
  for (auto [name, token] :
       {std::pair{"bos_token", &input.bos_token}, std::pair{"eos_token", &input.eos_token}}) {
    if (token->empty()) continue;  // undefined, as in Transformers where the tokenizer has none
    if (auto at = jinja::find_invalid_utf8(*token))
      jinja::fail("{} is not valid UTF-8 (at byte {})", name, *at);
    interpreter.define(name, heap.string(*token));
  }
  interpreter.define("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  Value messages = jinja::parse_json(heap, input.messages_json, "messages", input.rewrite);
  if (!messages.is(Type::list))
    jinja::fail("messages must be a JSON list, not {}", jinja::type_name(messages));
  interpreter.define("messages", std::move(messages));
  Value tools;
  if (!input.tools_json.empty()) {
    tools = jinja::parse_json(heap, input.tools_json, "tools", input.rewrite);
    if (!tools.is(Type::list) && !tools.is_none()) {
      jinja::fail("tools must be a JSON list, not {}", jinja::type_name(tools));
    }
  }
  interpreter.define("tools", std::move(tools));
  interpreter.define("documents", Value());
  if (input.extra_json.empty()) return;
  Value extra = jinja::parse_json(heap, input.extra_json, "the template's variables", input.rewrite);
  if (!extra.is(Type::dict))
    jinja::fail("the template's variables must be a JSON object, not {}", jinja::type_name(extra));
  for (const auto& [name, value] : extra.dict().entries) interpreter.define(name.text(), value);
}

}  // namespace

Result<std::string> ChatTemplate::render(const TemplateInput& input) const {
  size_t input_bytes = input.messages_json.size() + input.tools_json.size() + input.extra_json.size();
  jinja::Heap heap(jinja::kBaseHeapBytes + jinja::kHeapBytesPerInputByte * input_bytes,
                   jinja::kBaseSteps + jinja::kStepsPerInputByte * static_cast<int64_t>(input_bytes));
  jinja::Interpreter interpreter(*impl_->parsed, heap, input.now_unix_s);
  bool running = false;
  try {
    define_input(interpreter, input);
    running = true;
    return interpreter.render();
  } catch (const jinja::Fault& fault) {
    if (!running) return bad_input(fault.message);
    return bad_input(fmt::format("chat template, line {}: {}", interpreter.line(), fault.message));
  } catch (const std::bad_alloc&) {
    return no_room("chat template: no memory left to render it");
  }
}

}  // namespace quintet
