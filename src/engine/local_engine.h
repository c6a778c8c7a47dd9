// The engine in this process: a loop on a thread of its own, behind two queues.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "engine/loop.h"

namespace quintet {

class LocalEngine : public EngineClient {
 public:
  struct Options {
    LoopOptions loop;
    int32_t vocabulary = 0;
    int32_t unread_events = 2048;
  };
  /// Owns the executor.
  static Result<std::unique_ptr<LocalEngine>> start(std::unique_ptr<Executor> executor, Options options);
  ~LocalEngine() override;

  Status submit(Request request) override;
  void cancel(RequestId id) override;
  std::vector<TokenEvent> poll(int64_t timeout_us) override;
  EngineLimits limits() const override { return options_.loop.limits; }
  EngineStats stats() const override;

 private:
  /// A request from its submission until its last event is polled.
  struct Open {
    int32_t unread_events = 0;
    bool cancelled = false;  ///< told to the loop already
  };
  struct Cancel {
    RequestId id;
    std::string why;
  };
  using Message = std::variant<Request, Cancel>;

  LocalEngine(std::unique_ptr<Executor> executor, Options options, std::unique_ptr<Loop> loop);
  void run();
  /// Waits while there is nothing to do; false: the engine is going.
  bool take_messages(std::vector<Message>& messages);
  void deliver(std::vector<TokenEvent>& events);

  std::unique_ptr<Executor> executor_;
  const Options options_;
  std::unique_ptr<Loop> loop_;  ///< of the thread alone

  mutable std::mutex mutex_;
  std::condition_variable arrived_;  ///< a message, or the end
  std::condition_variable emitted_;  ///< an event
  std::vector<Message> inbound_;
  std::deque<TokenEvent> outbound_;
  std::unordered_map<RequestId, Open> open_;
  EngineStats stats_;
  bool stopping_ = false;
  std::string lost_;  ///< why nothing runs any more; empty: all is well

  std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace quintet
