// Encodes prompts, runs them together, and scores the answers.
#include "cli/task_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/conversation.h"
#include "cli/generation.h"

namespace quintet {
namespace {

Result<std::vector<TokenId>> encode(const Model& model, const TaskQuestion& question,
                                    const std::string& where, bool raw) {
  if (!question.messages_json.empty()) {
    TRY_ASSIGN(const auto messages, parse_messages(question.messages_json, where, nullptr));
    return encode_conversation(model, messages);
  }
  if (raw || (!model.chat_template && model.chat_template_source.empty()))
    return model.tokenizer->encode(question.prompt, {});
  TRY_ASSIGN(auto content, json_text(question.prompt, where));
  return encode_conversation(
      model, nlohmann::ordered_json::array({{{"role", "user"}, {"content", std::move(content)}}}));
}

}  // namespace

Result<std::vector<TaskAnswer>> ask_tasks(Session& session, const std::vector<TaskQuestion>& questions,
                                          const TaskRunOptions& options, const Interrupts& interrupts) {
  const Model& model = *session.model;
  if (!model.tokenizer)
    return bad_input(fmt::format("{}: found no tokenizer, allowed is a model with one", model.path));
  std::vector<Request> requests;
  std::vector<std::vector<std::string>> stop;
  int64_t longest = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    const std::string where = fmt::format("question {}", i + 1);
    Request request{.id = i + 1, .max_new_tokens = questions[i].max_tokens, .stop_ids = model.stop_ids};
    TRY_ASSIGN(request.prompt, encode(model, questions[i], where, options.raw));
    const auto room = static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens;
    if (room > model.config.context)
      return bad_input(fmt::format(
          "{}: found {} tokens and {} of an answer, allowed are {} together ({}'s context)", where,
          request.prompt.size(), request.max_new_tokens, model.config.context, model.path));
    longest = std::max(longest, room);
    requests.push_back(std::move(request));
    stop.push_back(questions[i].stop);
  }
  const auto at_once =
      static_cast<int32_t>(std::min<size_t>(questions.size(), static_cast<size_t>(options.at_once)));
  const auto context = static_cast<int32_t>(longest);
  TRY(session.start(
      {.context = context, .sequences = at_once, .kv_tokens = longest * at_once, .unread_events = context}));
  TRY_ASSIGN(const std::vector<Generation> made, generate_all({.engine = *session.engine,
                                                               .tokenizer = *model.tokenizer,
                                                               .requests = std::move(requests),
                                                               .stop = std::move(stop),
                                                               .at_once = at_once,
                                                               .interrupts = interrupts,
                                                               .on_tokens = options.on_tokens}));
  std::vector<TaskAnswer> answers;
  for (size_t i = 0; i < made.size(); ++i)
    answers.push_back({.text = made[i].text, .score = score_answer(questions[i], made[i].text)});
  return answers;
}

}  // namespace quintet
