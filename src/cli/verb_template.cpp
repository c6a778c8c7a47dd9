// `quintet template`: a conversation as the prompt that a model sees.
#include <nlohmann/json.hpp>

#include "cli/conversation.h"
#include "cli/flags.h"
#include "cli/terminal.h"

namespace quintet {
namespace {

class TemplateVerb : public Verb {
 public:
  std::string_view examples() const override {
    return "  quintet template model.gguf -f messages.json\n"
           "  echo '[{\"role\": \"user\", \"content\": \"Hi\"}]' | quintet template model.gguf\n"
           "  quintet template model.gguf -f messages.json --tools tools.json --chat-template other.jinja\n";
  }

  void declare(FlagSet& flags) override {
    flags.model(model_path_);
    messages_.declare(flags, "The messages: a JSON list of {\"role\", \"content\"}");
    flags.text("--tools", tools_path_, "FILE", "Tool definitions: a JSON list");
    flags.files().reads("--tools", tools_path_);
    flags.toggle("--no-generation-prompt", no_generation_prompt_, "End after the last message");
    text_.declare(flags);
  }

  VerbOutcome run(const CommonOptions&) override {
    TRY_ASSIGN(const std::string text, messages_.read("messages"));
    nlohmann::ordered_json tools;
    TRY_ASSIGN(const auto messages, parse_messages(text, messages_.name(), &tools));
    std::string tools_origin = messages_.name();
    if (!tools_path_.empty()) {
      tools_origin = tools_path_;
      TRY_ASSIGN(const std::string tools_text, read_text(tools_path_, "tools"));
      TRY_ASSIGN(tools, parse_tools(tools_text, tools_origin));
    }
    TRY_ASSIGN(const auto model, load_text(model_path_, text_.load_options()));
    messages_.note_unread_input();
    TRY(check_template(*model));
    ConversationInput input{.messages_json = messages.dump(),
                            .add_generation_prompt = !no_generation_prompt_};
    if (!tools.empty()) {
      if (!takes_tools(*model->chat_template))
        return bad_input(
            fmt::format("{}: found tools, but the chat template takes none; --chat-template FILE replaces it",
                        tools_origin));
      input.tools_json = tools.dump();
    }
    TRY_ASSIGN(const std::string prompt, render_prompt(*model, input));
    Output output;
    return output.print(prompt);
  }

 private:
  std::string model_path_, tools_path_;
  TextSource messages_;
  TextFlags text_;
  bool no_generation_prompt_ = false;
};

}  // namespace

std::unique_ptr<Verb> make_template_verb() { return std::make_unique<TemplateVerb>(); }

}  // namespace quintet
