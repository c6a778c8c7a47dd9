// A loop whose turns threads take one by one.
#include "base/parallel.h"

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

namespace quintet {

int thread_count(int threads) {
  return threads > 0 ? threads : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

void parallel_for(int64_t count, int threads, const std::function<void(int64_t i)>& body) {
  const auto wanted = std::min<int64_t>(thread_count(threads), count);
  std::atomic<int64_t> next{0};
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) body(i);
  };
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < wanted; ++i) others.emplace_back(work);
  work();
}

}  // namespace quintet
