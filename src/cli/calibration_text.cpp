// Reads files and renders conversations, or runs the model.
#include "cli/calibration_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/json_parse.h"
#include "cli/conversation.h"
#include "cli/flags.h"
#include "cli/generation.h"
#include "cli/session.h"
#include "cli/terminal.h"

namespace quintet {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSelf = "self";
constexpr int32_t kWritersAtOnce = 16;

class CalibrationReader {
 public:
  explicit CalibrationReader(const CalibrationSource& source) : source_(source) {}

  Result<CalibrationInput> run() {
    for (const std::string& path : source_.files) {
      made_.origin += (made_.origin.empty() ? "" : ", ") + path;
      TRY_ASSIGN(const std::string text, read_text(path, "calibration text"));
      if (const size_t at = find_broken_utf8(text); at != std::string::npos)
        return bad_input(
            fmt::format("{} (calibration text): byte {} is no UTF-8, allowed is a text in UTF-8", path, at));
      if (const size_t at = text.find('\0'); at != std::string::npos)
        return bad_input(fmt::format("{} (calibration text): byte {} is 0, as in a binary file, allowed is a text in UTF-8", path, at));
      TRY(path.ends_with(".jsonl") ? add_lines(path, text) : add(path, text));
    }
    if (!source_.chat_template.empty() && !model_)
      return bad_input("--chat-template: found it with texts alone, allowed with \"messages\" of JSONL or --calibration-chat");
    return std::move(made_);
  }

 private:
  Status add_lines(const std::string& path, std::string_view lines) {
    for (int64_t number = 1; !lines.empty(); ++number) {
      const std::string_view line = lines.substr(0, lines.find('\n'));
      lines.remove_prefix(std::min(lines.size(), line.size() + 1));
      if (line.find_first_not_of(" \t\r") == line.npos) continue;
      const Json json = parse_json_tree<Json>(line);
      const std::string where = fmt::format("{}: line {}", path, number);
      if (json.is_object() && json.contains("messages")) {
        TRY_ASSIGN(const Json messages, parse_messages(line, where, nullptr));
        TRY(add_conversation(messages));
        continue;
      }
      const Json& found = json.is_object() && json.contains("text") ? json["text"] : json;
      if (!found.is_string())
        return bad_input(
            fmt::format("{}: found {}, allowed is a JSON string or an object with a \"text\" or \"messages\"",
                        where, json.is_discarded() ? "no JSON" : json.type_name()));
      TRY(add(where, found.get<std::string>()));
      if (!source_.chat) made_.text += "\n";
    }
    return {};
  }

  Status add(const std::string& where, const std::string& text) {
    if (!source_.chat) {
      made_.text += text;
      return {};
    }
    TRY_ASSIGN(Json content, json_text(text, where));
    return add_conversation(Json::array({{{"role", "user"}, {"content", std::move(content)}}}));
  }

  Status add_conversation(const Json& messages) {
    if (!model_) {
      LoadOptions load;
      load.chat_template_path = source_.chat_template;
      TRY_ASSIGN(model_, load_text(source_.model, load));
      TRY(check_template(*model_));
    }
    TRY_ASSIGN(const std::string prompt,
               render_prompt(*model_, {.messages_json = messages.dump(), .add_generation_prompt = false}));
    made_.text += prompt;
    made_.special = true;
    return {};
  }

  const CalibrationSource& source_;
  std::unique_ptr<Model> model_;  ///< its texts, once a template is needed
  CalibrationInput made_;
};

/// Texts that the model writes.
Result<CalibrationInput> write_self(const CalibrationSource& source, const CommonOptions& common,
                                    const Interrupts& interrupts) {
  // Texts are cut into tokens once more, which may give fewer.
  const int64_t tokens = source.length + source.length / 8 + 1;
  const auto writers = static_cast<int32_t>(std::min<int64_t>(source.samples, kWritersAtOnce));
  const auto context = static_cast<int32_t>(std::min<int64_t>(tokens + 2, INT32_MAX));
  TRY_ASSIGN(Session session,
             open_session({.path = source.model}, common, {}, {.context = context, .sequences = writers}));
  const Model& model = *session.model;
  if (!model.tokenizer)
    return bad_input(fmt::format(
        "{}: found no tokenizer, allowed with --calibration self is a model with one", source.model));
  if (source.length > model.config.context)  // told before the text is written
    return bad_input(fmt::format("--length: found {}, allowed are at most {} (what {} was made for)", source.length,
                                 model.config.context, source.model));
  const int32_t room = std::min(context, model.config.context);
  TRY(session.start(
      {.context = room, .sequences = writers, .kv_tokens = int64_t{room} * writers, .unread_events = room}));
  const TokenizerSpec& spec = model.tokenizer->spec();
  const std::vector<TokenId> beginning = spec.bos   ? std::vector<TokenId>{*spec.bos}
                                         : spec.eos ? std::vector<TokenId>{*spec.eos}
                                                    : model.tokenizer->encode("\n", {.add_bos = false});
  std::vector<Request> requests;
  for (int64_t i = 0; i < source.samples; ++i) {
    Request request{.id = static_cast<RequestId>(i + 1),
                    .prompt = beginning,
                    .seed = static_cast<uint64_t>(i + 1),
                    .max_new_tokens = static_cast<int32_t>(
                        std::min<int64_t>(tokens, room - static_cast<int64_t>(beginning.size()))),
                    .ignore_eos = true};
    request.sampling.temperature = 1;
    requests.push_back(std::move(request));
  }
  const auto all = static_cast<uint64_t>(source.samples * requests.front().max_new_tokens);
  ProgressBar bar("write calibration text", ProgressBar::Unit::tokens);
  TRY_ASSIGN(const std::vector<Generation> texts,
             generate_all({.engine = *session.engine,
                           .tokenizer = *model.tokenizer,
                           .requests = std::move(requests),
                           .at_once = writers,
                           .interrupts = interrupts,
                           .on_tokens = [&](uint64_t written) { bar.update(written, all); }}));
  CalibrationInput made{.origin = "text that the model wrote"};
  for (const Generation& text : texts) made.text += text.text + "\n";
  return made;
}

}  // namespace

Result<CalibrationInput> read_calibration(const CalibrationSource& source, const CommonOptions& common,
                                          const Interrupts& interrupts) {
  if (std::ranges::find(source.files, kSelf) != source.files.end()) {
    if (source.files.size() > 1)
      return bad_input("--calibration: found self beside files, allowed is self alone (a file of that name is ./self)");
    if (source.chat) return bad_input("--calibration-chat: found it with self, allowed with files of text");
    if (!source.chat_template.empty()) return bad_input("--chat-template: found it with self, allowed with files of text");
    return write_self(source, common, interrupts);
  }
  return CalibrationReader(source).run();
}

}  // namespace quintet
