// Detokenizes, looks for stop strings, and cuts the text into chunks.
#include "server/answer.h"

#include <algorithm>

#include "server/errors.h"
#include "server/sse.h"

namespace quintet {
namespace {

size_t count_characters(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

}  // namespace

Answer::Answer(const Tokenizer& tokenizer, AnswerOptions options)
    : tokenizer_(tokenizer), options_(std::move(options)), detokenizer_(tokenizer), stop_(options_.stop) {
  for (const TokenId token : options_.continues) detokenizer_.push(token);
}

void Answer::take_text(const std::string& text) {
  received_bytes_ += text.size();
  received_characters_ += count_characters(text);
  const std::string released = stop_.push(text);
  released_bytes_ += released.size();
  text_ += released;
}

void Answer::take_token(const TokenEvent& event) {
  ++tokens_;
  if (options_.logprobs) {
    TokenLogprob token{{tokenizer_.piece(event.token, true), event.logprob}, {}, received_characters_};
    const size_t alternatives =
        std::min(event.alternatives.size(), static_cast<size_t>(options_.top_logprobs));
    for (size_t i = 0; i < alternatives; ++i)
      token.alternatives.push_back(
          {tokenizer_.piece(event.alternatives[i].token, true), event.alternatives[i].logprob});
    pending_.push_back({std::move(token), received_bytes_});
  }
  take_text(detokenizer_.push(event.token));
}

std::string Answer::push(const TokenEvent& event) {
  if (done()) return {};
  const bool ends_it =
      event.finish == FinishReason::stop &&
      std::find(options_.stop_ids.begin(), options_.stop_ids.end(), event.token) != options_.stop_ids.end();
  if (event.token >= 0 && event.index >= next_index_ && !stopped()) {
    next_index_ = event.index + 1;
    if (!ends_it) take_token(event);
  }
  if (event.finish == FinishReason::none) return flush(false);

  usage_ = event.usage;
  message_ = event.message;
  finish_ = event.finish;
  if (stopped()) {
    // The engine may have gone on for a token or two before it heard.
    finish_ = FinishReason::stop;
    usage_.completion_tokens = tokens_;
  } else if (failure() == FinishReason::none) {
    take_text(detokenizer_.finish());
    if (stopped()) {
      finish_ = FinishReason::stop;
    } else {
      const std::string held = stop_.finish();
      released_bytes_ += held.size();
      text_ += held;
    }
  }
  return flush(true);
}

std::string Answer::flush(bool last) {
  AnswerPiece piece;
  piece.with_logprobs = options_.logprobs;
  // A token goes out with the first byte of its text; one without text when all before it is out. What a stop
  // string took back never does.
  size_t ready = 0;
  while (ready < pending_.size() && (pending_[ready].begin_bytes < released_bytes_ ||
                                     (last && !stopped() && failure() == FinishReason::none)))
    piece.logprobs.push_back(std::move(pending_[ready++].token));
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<ptrdiff_t>(ready));

  if (!options_.stream) {
    std::move(piece.logprobs.begin(), piece.logprobs.end(), std::back_inserter(logprobs_));
    return {};
  }
  std::string out;
  if (!begun_ && failure() == FinishReason::none) {
    begun_ = true;
    AnswerPiece role;
    role.first = true;
    if (options_.head.endpoint == Endpoint::chat) out += chunk(std::move(role));
  }
  piece.text = std::exchange(text_, {});
  if (!piece.text.empty() || !piece.logprobs.empty()) out += chunk(std::move(piece));
  if (!last) return out;

  if (failure() == FinishReason::error) {
    out += sse_event(error_json(status_error(500, message_, "internal_error")));
  } else if (failure() == FinishReason::cancelled) {
    out += sse_event(
        error_json(status_error(503, "The answer was cancelled: the server is stopping.", "cancelled")));
  } else {
    AnswerPiece end;
    end.finish = finish_;
    out += chunk(std::move(end));
    if (options_.include_usage) out += sse_event(usage_chunk_json(options_.head, usage_));
  }
  out += kSseDone;
  return out;
}

std::string Answer::chunk(AnswerPiece piece) {
  return sse_event(chunk_json(options_.head, piece, options_.include_usage));
}

std::string Answer::body() const {
  AnswerPiece piece;
  piece.text = text_;
  piece.logprobs = logprobs_;
  piece.with_logprobs = options_.logprobs;
  piece.finish = finish_;
  return answer_json(options_.head, piece, usage_);
}

}  // namespace quintet
