// One request through an engine from start to end, its text as it comes.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "cli/interrupt.h"
#include "engine/engine_client.h"
#include "text/tokenizer.h"

namespace quintet {

struct Generation {
  std::vector<TokenId> tokens;  ///< without the id that ended it
  std::string text;
  FinishReason finish = FinishReason::none;
  Usage usage;
};

struct GenerateArgs {
  EngineClient& engine;
  const Tokenizer& tokenizer;
  Request request;
  std::vector<std::string> stop;           ///< the text ends before the first of them (check_stop_strings)
  const Interrupts* interrupts = nullptr;  ///< a signal cancels: the generation ends with what it has
  /// Whole characters, as they come; an error from it cancels the request and is returned. May be empty.
  std::function<Status(std::string_view text)> on_text;
};

Result<Generation> generate(const GenerateArgs& args);

struct BatchArgs {
  EngineClient& engine;
  const Tokenizer& tokenizer;
  std::vector<Request> requests;               ///< of different ids
  std::vector<std::vector<std::string>> stop;  ///< of each request, as GenerateArgs::stop; empty: none has any
  int32_t at_once = 1;                         ///< submitted and not finished
  const Interrupts& interrupts;                ///< a signal ends it: cancelled
  std::function<void(uint64_t tokens)> on_tokens;  ///< generated so far, of all
};

/// Many requests, several at once; answers in the order of the requests, the same whatever runs beside them.
Result<std::vector<Generation>> generate_all(const BatchArgs& args);

/// "stop", "length", ...: the words of OpenAI's API, and "cancelled".
std::string_view finish_name(FinishReason reason);

/// "prompt 34 tokens at 1234.5/s, decode 8 tokens at 91.2/s, first token after 0.123 s", or "prompt 34
/// tokens, cancelled before the first token".
std::string speed_line(const Generation& generation);

}  // namespace quintet
