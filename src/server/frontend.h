// Between HTTP and the engine: submits requests, routes their tokens to the clients that wait, and cancels
// for those that left.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>

#include "engine/engine_client.h"
#include "server/answer.h"
#include "server/http.h"

namespace quintet {

/// Thread-safe. One thread of its own polls the engine.
class Frontend {
 public:
  Frontend(EngineClient& engine, const Tokenizer& tokenizer);
  ~Frontend();  ///< shut_down()

  /// Answers on `exchange`, at once where the engine refuses. `request.id` is chosen here.
  void submit(Request request, AnswerOptions options, std::shared_ptr<HttpExchange> exchange);

  size_t active() const;
  /// Waits until no request is left; false where some are after the time.
  bool wait_idle(int64_t timeout_ms);
  /// Cancels every request: each ends with an error for its client.
  void cancel_all();
  /// cancel_all(), waits for the engine to hear of it, answers for it where it does not, and joins the
  /// thread.
  void shut_down();

 private:
  struct Job;
  void run();
  void deliver(const TokenEvent& event);
  void finish(Job& job);
  void keep_alive();
  void remove(RequestId id);
  std::shared_ptr<Job> find(RequestId id) const;

  EngineClient& engine_;
  const Tokenizer& tokenizer_;
  mutable std::mutex mutex_;  ///< guards jobs_
  std::condition_variable idle_;
  std::unordered_map<RequestId, std::shared_ptr<Job>> jobs_;
  std::atomic<RequestId> next_id_{1};
  std::atomic<bool> stopping_{false};
  int64_t kept_alive_ms_ = 0;
  std::thread thread_;  ///< last: it uses the above
};

}  // namespace quintet
