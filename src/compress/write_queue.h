// One thread that writes while others compute.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "base/result.h"

namespace quintet {

/// Jobs done one after the other on a thread of their own. After the first error (no memory is one) the rest is
/// dropped. One thread may call.
class WriteQueue {
 public:
  using Job = std::function<Status()>;

  WriteQueue() : thread_([this](const std::stop_token& stop) { run(stop); }) {}

  /// Waits while as many as memory should hold are waiting. The error of an earlier job, if there was one.
  Status push(Job job);
  /// Waits until all are done. The first error.
  Status drain();
  /// Drains the queue at the end of a scope that what its jobs use ends with.
  class Drained {
   public:
    explicit Drained(WriteQueue& queue) : queue_(queue) {}
    Drained(const Drained&) = delete;
    Drained& operator=(const Drained&) = delete;
    ~Drained() { (void)queue_.drain(); }

   private:
    WriteQueue& queue_;
  };

 private:
  static constexpr size_t kWaiting = 2;
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<Job> jobs_;  ///< the first one is being done
  Status failed_;
  std::jthread thread_;
};

}  // namespace quintet
