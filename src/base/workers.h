// Threads that are kept between pieces of work, where starting them each time would take as long as the work.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

namespace quintet {

class Workers {
 public:
  Workers() = default;
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;
  ~Workers();

  /// Calls body(i) once for every i in [0, count), each on a thread of its own, of which the caller is one, and waits for all. Threads that
  /// the system has no room for are done without: their turns follow on the caller's. One call at a time. Where a body throws the caller gets
  /// the first exception once all have ended.
  void run(int count, const std::function<void(int i)>& body);

 private:
  void work(int number);
  void turn(int number);

  std::mutex mutex_;
  std::condition_variable begin_, end_;
  const std::function<void(int)>* body_ = nullptr;  ///< of the call that is under way
  uint64_t call_ = 0;
  int count_ = 0, left_ = 0;  ///< left_: turns of others that have not ended
  bool closing_ = false;
  std::exception_ptr first_;
  std::vector<std::thread> threads_;
};

}  // namespace quintet
