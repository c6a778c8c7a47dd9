// Encodes prompts, runs them together, and scores the answers.
#include "cli/task_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "cli/conversation.h"
#include "cli/generation.h"

namespace quintet {
namespace {

Result<std::vector<TokenId>> encode(const Model& model, const TaskQuestion& question, bool raw) {
  if (!question.messages_json.empty()) {
    TRY_ASSIGN(const auto messages, parse_messages(question.messages_json, question.origin, nullptr));
    return encode_conversation(model, messages);
  }
  if (raw || (!model.chat_template && model.chat_template_source.empty()))
    return model.tokenizer->encode(question.prompt, {});
  TRY_ASSIGN(auto content, json_text(question.prompt, question.origin));
  return encode_conversation(
      model, nlohmann::ordered_json::array({{{"role", "user"}, {"content", std::move(content)}}}));
}

}  // namespace

Result<std::vector<std::vector<TokenId>>> encode_tasks(const Model& model, const std::vector<TaskQuestion>& questions, bool raw) {
  if (!model.tokenizer)
    return bad_input(fmt::format("{}: found no tokenizer, allowed is a model with one", model.path));
  std::vector<std::vector<TokenId>> prompts;
  for (const TaskQuestion& question : questions) {
    auto prompt = encode(model, question, raw);
    if (!prompt) {
      Error error = std::move(prompt).error();
      if (!error.message.starts_with(question.origin)) error.message = fmt::format("{}: {}", question.origin, error.message);
      return error;
    }
    if (static_cast<int64_t>(prompt->size()) + question.max_tokens > model.config.context)
      return bad_input(fmt::format(
          "{}: found {} tokens and {} of an answer, allowed are {} together ({}'s context)", question.origin,
          prompt->size(), question.max_tokens, model.config.context, model.path));
    prompts.push_back(std::move(*prompt));
  }
  return prompts;
}

Result<std::vector<TaskAnswer>> ask_tasks(Session& session, const std::vector<TaskQuestion>& questions,
                                          const TaskRunOptions& options, const Interrupts& interrupts) {
  const Model& model = *session.model;
  TRY_ASSIGN(auto prompts, encode_tasks(model, questions, options.raw));
  std::vector<Request> requests;
  std::vector<std::vector<std::string>> stop;
  int64_t longest = 0;
  for (size_t i = 0; i < questions.size(); ++i) {
    Request request{.id = i + 1, .max_new_tokens = questions[i].max_tokens, .stop_ids = model.stop_ids};
    request.prompt = std::move(prompts[i]);
    longest = std::max(longest, static_cast<int64_t>(request.prompt.size()) + request.max_new_tokens);
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
