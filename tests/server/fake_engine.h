// A tokenizer of bytes and an engine that says what a test tells it to: deterministic, and open to
// inspection.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "engine/engine_client.h"
#include "model/model.h"

namespace quintet {

/// Ids 0 to 255 are bytes; behind them come the special tokens.
class ByteTokenizer : public Tokenizer {
 public:
  static constexpr TokenId kBos = 256, kEos = 257, kImStart = 258, kImEnd = 259;

  ByteTokenizer() {
    for (int i = 0; i < 256; ++i) spec_.tokens.emplace_back(1, static_cast<char>(i));
    for (const char* text : {"<s>", "</s>", "<|im_start|>", "<|im_end|>", "<｜fin｜>", "§", "<|im_end|>x"})
      spec_.tokens.emplace_back(text);
    spec_.types.assign(spec_.tokens.size(), TokenizerSpec::TokenType::normal);
    for (TokenId id = kBos; id < vocabulary(); ++id) spec_.types[id] = TokenizerSpec::TokenType::control;
    spec_.bos = kBos;
    spec_.eos = kEos;
  }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    std::vector<TokenId> ids;
    if (options.add_bos) ids.push_back(kBos);
    for (size_t at = 0; at < text.size();) {
      TokenId special = -1;
      const bool literal = std::find(options.not_special_at.begin(), options.not_special_at.end(), at) !=
                           options.not_special_at.end();
      for (TokenId id = kBos; options.parse_special && !literal && id < vocabulary(); ++id)
        if (text.substr(at).starts_with(spec_.tokens[id])) special = id;
      ids.push_back(special >= 0 ? special : static_cast<unsigned char>(text[at]));
      at += special >= 0 ? spec_.tokens[special].size() : 1;
    }
    return ids;
  }
  std::string piece(TokenId token, bool special) const override {
    return is_special(token) && !special ? "" : spec_.tokens.at(token);
  }
  std::string decode(const std::vector<TokenId>& tokens, bool special = false) const override {
    std::string text;
    for (TokenId token : tokens) text += piece(token, special);
    return text;
  }
  std::string_view token_text(TokenId token) const override { return spec_.tokens.at(token); }
  std::optional<TokenId> find(std::string_view text) const override {
    const auto found = std::find(spec_.tokens.begin(), spec_.tokens.end(), text);
    if (found == spec_.tokens.end()) return {};
    return static_cast<TokenId>(found - spec_.tokens.begin());
  }
  int32_t vocabulary() const override { return static_cast<int32_t>(spec_.tokens.size()); }
  bool is_special(TokenId token) const override { return token >= kBos; }
  const TokenizerSpec& spec() const override { return spec_; }
  const std::vector<TokenId>& end_tokens() const override { return ends_; }

 private:
  TokenizerSpec spec_;
  std::vector<TokenId> ends_ = {kEos, kImEnd};
};

inline std::vector<TokenId> bytes_of(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

/// Makes one token of every running request a poll.
class FakeEngine : public EngineClient {
 public:
  /// What a request is answered; by default its own prompt, special tokens left out.
  std::function<std::vector<TokenId>(const Request&)> reply = [](const Request& request) {
    std::vector<TokenId> ids;
    std::copy_if(request.prompt.begin(), request.prompt.end(), std::back_inserter(ids),
                 [](TokenId id) { return id < ByteTokenizer::kBos; });
    return ids;
  };
  /// How a reply that runs out ends: EOS, or an error with this message.
  std::string error_message;
  bool endless = false;             ///< the reply begins anew when it runs out
  std::atomic<int64_t> step_us{0};  ///< how long a step takes
  EngineLimits engine_limits = {.context = 4096, .sequences = 256, .waiting = 256, .kv_tokens = 1 << 20};

  void hold(bool on) {
    std::lock_guard lock(mutex_);
    held_ = on;
    wake_.notify_all();
  }

  Status submit(Request request) override {
    std::lock_guard lock(mutex_);
    if (static_cast<int32_t>(running_.size()) >= engine_limits.sequences)
      return no_room("the queue is full: found 256 requests, allowed are 256");
    requests_.push_back(request);
    Running run{request, reply(request), 0};
    running_.emplace(request.id, std::move(run));
    wake_.notify_all();
    return {};
  }

  void cancel(RequestId id) override {
    std::lock_guard lock(mutex_);
    if (running_.count(id)) cancelled_.insert(id);
    wake_.notify_all();
  }

  std::vector<TokenEvent> poll(int64_t timeout_us) override {
    if (step_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(step_us));
    std::unique_lock lock(mutex_);
    wake_.wait_for(lock, std::chrono::microseconds(timeout_us),
                   [&] { return !cancelled_.empty() || (!held_ && !running_.empty()); });
    std::vector<TokenEvent> events;
    for (const RequestId id : std::exchange(cancelled_, {})) {
      events.push_back(end_of(running_.at(id), FinishReason::cancelled));
      running_.erase(id);
      ++cancels_;
    }
    if (held_) return events;
    for (auto it = running_.begin(); it != running_.end();) {
      events.push_back(step(it->second));
      it = events.back().finish == FinishReason::none ? std::next(it) : running_.erase(it);
    }
    ++steps_;
    return events;
  }

  EngineLimits limits() const override { return engine_limits; }
  EngineStats stats() const override {
    std::lock_guard lock(mutex_);
    return {.running = static_cast<int32_t>(running_.size()), .waiting = 0, .steps = steps_};
  }

  size_t running() const { return static_cast<size_t>(stats().running); }
  int cancels() const {
    std::lock_guard lock(mutex_);
    return cancels_;
  }
  std::vector<Request> requests() const {
    std::lock_guard lock(mutex_);
    return requests_;
  }

  /// Wait until `count` requests run, or have been cancelled; false after ten seconds.
  bool wait_running(size_t count) const {
    return wait([&] { return running() == count; });
  }
  bool wait_cancels(int count) const {
    return wait([&] { return cancels() == count; });
  }

 private:
  struct Running {
    Request request;
    std::vector<TokenId> reply;
    size_t made;
  };

  template <class Condition>
  static bool wait(Condition condition) {
    for (int i = 0; i < 10'000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return false;
  }

  TokenEvent end_of(const Running& run, FinishReason finish) const {
    TokenEvent event;
    event.id = run.request.id;
    event.index = static_cast<int32_t>(run.made);
    event.finish = finish;
    event.usage.prompt_tokens = static_cast<int32_t>(run.request.prompt.size());
    event.usage.completion_tokens = static_cast<int32_t>(run.made);
    return event;
  }

  TokenEvent step(Running& run) const {
    if (run.made >= run.reply.size() && !endless) {
      TokenEvent event = end_of(run, error_message.empty() ? FinishReason::stop : FinishReason::error);
      event.message = error_message;
      return event;
    }
    const TokenId token = run.reply[run.made % run.reply.size()];
    const auto index = static_cast<int32_t>(run.made++);
    const int32_t room = engine_limits.context - static_cast<int32_t>(run.request.prompt.size());
    const int32_t most = run.request.max_new_tokens > 0 ? std::min(run.request.max_new_tokens, room) : room;
    TokenEvent event = end_of(run, index + 1 >= most ? FinishReason::length : FinishReason::none);
    event.index = index;
    event.token = token;
    event.logprob = -0.25f * static_cast<float>(index % 8);
    for (int32_t i = 0; i < run.request.sampling.logprobs; ++i)
      event.alternatives.push_back({token + i, event.logprob - static_cast<float>(i)});
    return event;
  }

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool held_ = false;
  std::map<RequestId, Running> running_;
  std::set<RequestId> cancelled_;
  std::vector<Request> requests_;
  int cancels_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace quintet
