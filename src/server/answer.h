// One answer in the making: token events go in, pieces of OpenAI's JSON come out. No I/O, no threads.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "engine/request.h"
#include "sampling/stop_matcher.h"
#include "server/shapes.h"
#include "text/tokenizer.h"

namespace quintet {

struct AnswerOptions {
  AnswerHead head;
  bool stream = false;
  bool include_usage = false;
  bool logprobs = false;
  int32_t top_logprobs = 0;
  std::vector<std::string> stop;
  std::vector<TokenId> stop_ids;  ///< one that ends the answer is no part of its text
  /// The prompt's last tokens, where the text goes on from them; may be empty.
  std::vector<TokenId> continues;
};

/// Not thread-safe. The tokenizer must outlive it.
class Answer {
 public:
  Answer(const Tokenizer& tokenizer, AnswerOptions options);

  /// Takes one event and returns what to write to the stream (empty where the answer is not one).
  std::string push(const TokenEvent& event);

  /// A stop string was found: the request is to be cancelled. The answer is whole once its last event has
  /// come.
  bool stopped() const { return stop_.stopped(); }
  bool done() const { return finish_ != FinishReason::none; }
  /// Once done: none, or why there is no (whole) answer.
  FinishReason failure() const {
    return finish_ == FinishReason::error || finish_ == FinishReason::cancelled ? finish_
                                                                                : FinishReason::none;
  }
  const std::string& message() const { return message_; }
  const Usage& usage() const { return usage_; }
  /// Once done without failure, where it is no stream: the body.
  std::string body() const;
  bool stream() const { return options_.stream; }

 private:
  void take_token(const TokenEvent& event);
  void take_text(const std::string& text);
  std::string flush(bool last);
  std::string chunk(AnswerPiece piece);

  const Tokenizer& tokenizer_;
  const AnswerOptions options_;
  Detokenizer detokenizer_;
  StopMatcher stop_;

  struct PendingToken {
    TokenLogprob token;
    size_t begin_bytes;  ///< where its text begins
  };
  std::vector<PendingToken> pending_;   ///< tokens whose text may still turn out to be a stop string's
  std::vector<TokenLogprob> logprobs_;  ///< of a whole answer
  std::string text_;                    ///< of a whole answer; of a stream, what the next chunk takes
  size_t received_bytes_ = 0, received_characters_ = 0;  ///< of text that the tokens gave
  size_t released_bytes_ = 0;                            ///< of text that no stop string can take back
  int32_t next_index_ = 0;                               ///< of the next token: older events are repeats
  int32_t tokens_ = 0;
  bool begun_ = false;
  FinishReason finish_ = FinishReason::none;
  Usage usage_;
  std::string message_;
};

}  // namespace quintet
