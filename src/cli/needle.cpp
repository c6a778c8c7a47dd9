// Builds the texts and reads the answers.
#include "cli/needle.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/generation.h"

namespace quintet {
namespace {

constexpr std::string_view kTask =
    "There is an important fact hidden inside a lot of irrelevant text. Find it and memorize it.\n";
constexpr std::string_view kFiller =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n";
constexpr std::string_view kQuestion = "What is the pass key? The pass key is";
constexpr int kDepths = 5;
constexpr int32_t kAnswer_tokens = 12;

int64_t count(const Tokenizer& tokenizer, std::string_view text) {
  return static_cast<int64_t>(tokenizer.encode(text, {}).size());
}

}  // namespace

std::string needle_prompt(const Tokenizer& tokenizer, int64_t tokens, double depth, int key) {
  const std::string fact = fmt::format("The pass key is {0}. Remember it. {0} is the pass key.\n", key);
  const int64_t fixed = count(tokenizer, fmt::format("{}{}{}", kTask, fact, kQuestion));
  const int64_t sentence = std::max<int64_t>(1, count(tokenizer, kFiller));
  int64_t fillers = std::max<int64_t>(0, (tokens - fixed) / sentence);
  for (;; --fillers) {
    const auto before = static_cast<int64_t>(depth * static_cast<double>(fillers) + 0.5);
    std::string text(kTask);
    for (int64_t i = 0; i < fillers; ++i) {
      if (i == before) text += fact;
      text += kFiller;
    }
    if (before >= fillers) text += fact;
    text += kQuestion;
    if (fillers <= 0 || count(tokenizer, text) <= tokens) return text;
  }
}

Result<std::vector<NeedleResult>> find_needles(Session& session, const std::vector<int64_t>& lengths,
                                               const Interrupts& interrupts) {
  const Model& model = *session.model;
  const auto context = static_cast<int32_t>(*std::max_element(lengths.begin(), lengths.end()));
  TRY(session.start({.context = context, .sequences = 1, .kv_tokens = context, .unread_events = context}));
  std::vector<NeedleResult> results;
  RequestId id = 0;
  for (const int64_t tokens : lengths) {
    NeedleResult result{.tokens = tokens};
    for (int i = 0; i < kDepths; ++i) {
      const int key = 10000 + (i * 17389 + static_cast<int>(tokens % 9973) * 7) % 89999;
      const std::string text = needle_prompt(*model.tokenizer, tokens - kAnswer_tokens, i / (kDepths - 1.0), key);
      Request request{.id = ++id,
                      .prompt = model.tokenizer->encode(text, {}),
                      .max_new_tokens = kAnswer_tokens,
                      .stop_ids = model.stop_ids};
      if (static_cast<int64_t>(request.prompt.size()) > tokens - kAnswer_tokens)
        return bad_input(fmt::format("--needle: found {}, allowed are {} and more (the question and its answer)", tokens,
                                     request.prompt.size() + kAnswer_tokens));
      TRY_ASSIGN(const Generation answer, generate({.engine = *session.engine,
                                                    .tokenizer = *model.tokenizer,
                                                    .request = std::move(request),
                                                    .interrupts = &interrupts}));
      if (interrupts.signal() != 0) return Error{ErrorKind::cancelled, "stopped by a signal"};
      ++result.asked;
      result.found += answer.text.find(fmt::format("{}", key)) != std::string::npos;
    }
    results.push_back(result);
  }
  return results;
}

}  // namespace quintet
