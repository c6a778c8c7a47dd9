// Submits, polls, detokenizes, cancels.
#include "cli/generation.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/units.h"
#include "sampling/stop_matcher.h"

namespace quintet {
namespace {

constexpr int64_t kPoll_us = 50'000;  // how late a Ctrl-C may be seen

double per_second(int32_t tokens, int64_t duration_us) {
  return static_cast<double>(tokens) * 1e6 / static_cast<double>(std::max<int64_t>(duration_us, 1));
}

/// The answer to one request as its events come in.
class Answer {
 public:
  Answer(const Tokenizer& tokenizer, const std::vector<std::string>& stop)
      : detokenizer_(tokenizer), stops_(stop) {}

  /// The text that an event completes. Behind a stop string there is none.
  std::string take(const TokenEvent& event) {
    std::string text;
    if (event.token >= 0 && !stops_.stopped()) {
      done_.tokens.push_back(event.token);
      text = stops_.push(detokenizer_.push(event.token));
    }
    if (event.finish != FinishReason::none) {
      text += stops_.push(detokenizer_.finish());
      if (!stops_.stopped()) text += stops_.finish();
      done_.finish = event.finish;
      done_.usage = event.usage;
      // The engine may have gone on for a token or two before it heard of a stop string.
      if (stops_.stopped() && event.finish != FinishReason::error) {
        done_.finish = FinishReason::stop;
        done_.usage.completion_tokens = static_cast<int32_t>(done_.tokens.size());
      }
    }
    done_.text += text;
    return text;
  }
  bool stopped() const { return stops_.stopped(); }
  Generation& generation() { return done_; }

 private:
  Detokenizer detokenizer_;
  StopMatcher stops_;
  Generation done_;
};

}  // namespace

Result<Generation> generate(const GenerateArgs& args) {
  const RequestId id = args.request.id;
  TRY(args.engine.submit(args.request));
  Answer answer(args.tokenizer, args.stop);
  Status output_status;
  bool cancelled = false;
  for (;;) {
    if (args.interrupts && args.interrupts->signal() != 0 && !cancelled) {
      args.engine.cancel(id);
      cancelled = true;
    }
    for (const TokenEvent& event : args.engine.poll(kPoll_us)) {
      if (event.id != id) continue;
      const std::string text = answer.take(event);
      if (!text.empty() && args.on_text && output_status) {
        output_status = args.on_text(text);
        if (!output_status) args.engine.cancel(id);
      }
      if (event.finish == FinishReason::none) {
        if (answer.stopped()) args.engine.cancel(id);
        continue;
      }
      if (event.finish == FinishReason::error) return internal_error(event.message);
      TRY(output_status);
      if (event.finish == FinishReason::cancelled && !answer.stopped() && !cancelled)
        return internal_error(event.message);
      return std::move(answer.generation());
    }
  }
}

Result<std::vector<Generation>> generate_all(const BatchArgs& args) {
  static const std::vector<std::string> kNone;
  std::map<RequestId, size_t> index;
  std::vector<std::unique_ptr<Answer>> answers(args.requests.size());
  size_t next = 0, open = 0, finished = 0;
  uint64_t tokens = 0;
  while (finished < answers.size()) {
    for (; next < answers.size() && open < static_cast<size_t>(args.at_once); ++next, ++open) {
      TRY(args.engine.submit(args.requests[next]));
      index[args.requests[next].id] = next;
      answers[next] = std::make_unique<Answer>(args.tokenizer, args.stop.empty() ? kNone : args.stop[next]);
    }
    if (args.interrupts.signal() != 0) return Error{ErrorKind::cancelled, "stopped by a signal"};
    for (const TokenEvent& event : args.engine.poll(kPoll_us)) {
      const auto at = index.find(event.id);
      if (at == index.end()) continue;
      Answer& answer = *answers[at->second];
      tokens += event.token >= 0;
      const bool was_stopped = answer.stopped();
      answer.take(event);
      if (event.finish == FinishReason::error) return internal_error(event.message);
      if (event.finish == FinishReason::cancelled && !answer.stopped()) return internal_error(event.message);
      if (event.finish == FinishReason::none) {
        if (answer.stopped() && !was_stopped) args.engine.cancel(event.id);
        continue;
      }
      ++finished, --open;
      index.erase(at);
    }
    if (args.on_tokens) args.on_tokens(tokens);
  }
  std::vector<Generation> all;
  for (const auto& answer : answers) all.push_back(std::move(answer->generation()));
  return all;
}

std::string_view finish_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::none: return "none";
    case FinishReason::stop: return "stop";
    case FinishReason::length: return "length";
    case FinishReason::cancelled: return "cancelled";
    case FinishReason::error: return "error";
  }
  return "none";
}

std::string speed_line(const Generation& generation) {
  const Usage& usage = generation.usage;
  const std::string cached =
      usage.cached_tokens > 0 ? fmt::format(" ({} cached)", usage.cached_tokens) : std::string();
  std::string line = fmt::format("prompt {} tokens{}", usage.prompt_tokens, cached);
  // What was cut off before its first token has no speed.
  if (usage.prefill_us == 0)
    return line + ", " + std::string(finish_name(generation.finish)) + " before the first token";
  const int32_t computed = usage.prompt_tokens - usage.cached_tokens;
  line += fmt::format(" at {:.1f}/s", per_second(computed, usage.prefill_us));
  // The first token comes out of the prompt's last step: decoding made the others.
  if (usage.completion_tokens > 1)
    line += fmt::format(", decode {} tokens at {:.1f}/s", usage.completion_tokens,
                        per_second(usage.completion_tokens - 1, usage.decode_us));
  return line + fmt::format(", first token after {:.3f} s",
                            static_cast<double>(usage.queue_us + usage.prefill_us) * 1e-6);
}

}  // namespace quintet
