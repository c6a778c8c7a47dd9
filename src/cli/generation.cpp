// Submits, polls, detokenizes, cancels.
#include "cli/generation.h"

#include <algorithm>

#include "base/units.h"
#include "sampling/stop_matcher.h"

namespace quintet {
namespace {

constexpr int64_t kPoll_us = 50'000;  // how late a Ctrl-C may be seen

double per_second(int32_t tokens, int64_t duration_us) {
  return static_cast<double>(tokens) * 1e6 / static_cast<double>(std::max<int64_t>(duration_us, 1));
}

}  // namespace

Result<Generation> generate(const GenerateArgs& args) {
  const RequestId id = args.request.id;
  TRY(args.engine.submit(args.request));
  Generation done;
  Detokenizer detokenizer(args.tokenizer);
  StopMatcher stops(args.stop);
  Status output_status;
  const auto deliver = [&](const std::string& text) {
    if (text.empty()) return;
    done.text += text;
    if (!args.on_text || !output_status) return;
    output_status = args.on_text(text);
    if (!output_status) args.engine.cancel(id);
  };
  bool cancelled = false;
  for (;;) {
    if (args.interrupts && args.interrupts->signal() != 0 && !cancelled) {
      args.engine.cancel(id);
      cancelled = true;
    }
    for (const TokenEvent& event : args.engine.poll(kPoll_us)) {
      if (event.id != id) continue;
      if (event.token >= 0 && !stops.stopped()) {
        done.tokens.push_back(event.token);
        deliver(stops.push(detokenizer.push(event.token)));
        if (stops.stopped()) args.engine.cancel(id);
      }
      if (event.finish == FinishReason::none) continue;
      deliver(stops.push(detokenizer.finish()));
      if (!stops.stopped()) deliver(stops.finish());
      done.finish = event.finish;
      done.usage = event.usage;
      if (event.finish == FinishReason::error) return internal_error(event.message);
      TRY(output_status);
      if (stops.stopped()) {
        // The engine may have gone on for a token or two before it heard.
        done.finish = FinishReason::stop;
        done.usage.completion_tokens = static_cast<int32_t>(done.tokens.size());
      } else if (event.finish == FinishReason::cancelled && !cancelled) {
        return internal_error(event.message);
      }
      return done;
    }
  }
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
