// A loop whose turns threads take one by one.
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace quintet {

int thread_count(int threads) {
  return threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void parallel_for(int64_t count, int threads, const std::function<void(int64_t i)>& body) {
  const auto wanted = std::min<int64_t>(thread_count(threads), count);
  std::atomic<int64_t> next{0};
  std::atomic_flag thrown;
  std::exception_ptr first;
  const auto work = [&] {
    try {
      for (int64_t i = next++; i < count; i = next++) body(i);
    } catch (...) {  // one that left a thread would end the process
      next = count;
      if (!thrown.test_and_set()) first = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    others.reserve(static_cast<size_t>(std::max<int64_t>(0, wanted - 1)));
    try {
      for (int64_t i = 1; i < wanted; ++i) others.emplace_back(work);
    } catch (const std::system_error&) {
    }
    work();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace quintet
