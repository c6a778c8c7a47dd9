// The JSON of OpenAI's answers: whole, and chunk by chunk.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/request.h"

namespace quintet {

enum class Endpoint : uint8_t { chat, completions };

/// What every piece of one answer repeats.
struct AnswerHead {
  Endpoint endpoint = Endpoint::chat;
  std::string id;  ///< "chatcmpl-..." or "cmpl-..."
  std::string model;
  std::string fingerprint;  ///< "fp_..."
  int64_t created_unix_s = 0;
};

/// A token's probability as clients see it: `text` may be half a character, `bytes` are exact.
struct TokenLogprob {
  struct Entry {
    std::string bytes;
    float logprob = 0;
  };
  Entry chosen;
  std::vector<Entry> alternatives;
  size_t text_offset = 0;  ///< of the token in the answer's text, in bytes
};

/// A piece of an answer, or all of it.
struct AnswerPiece {
  std::string text;
  std::vector<TokenLogprob> logprobs;
  bool first = false;  ///< a chat stream begins with the role
  bool with_logprobs = false;
  FinishReason finish = FinishReason::none;  ///< none: null; stop, length
};

/// One chunk of a stream. With `usage_follows`, "usage" is null in every chunk but the last one.
std::string chunk_json(const AnswerHead& head, const AnswerPiece& piece, bool usage_follows);
/// The chunk without choices that ends a stream with include_usage.
std::string usage_chunk_json(const AnswerHead& head, const Usage& usage);
/// A whole answer.
std::string answer_json(const AnswerHead& head, const AnswerPiece& piece, const Usage& usage);

/// One model as /v1/models lists it.
struct ModelCard {
  std::string id;
  int64_t created_unix_s = 0;
  int32_t context_tokens = 0;
};
std::string model_json(const ModelCard& card);
std::string model_list_json(const ModelCard& card);

}  // namespace quintet
