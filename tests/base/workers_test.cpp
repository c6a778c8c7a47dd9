// Each call's turns once, on threads that stay; what a body throws reaches the caller when no turn is left.
#include "base/workers.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <set>
#include <thread>
#include <vector>

namespace quintet {
namespace {

TEST(Workers, EveryTurnOfEveryCallIsTakenOnceOnTheSameThreads) {
  Workers workers;
  std::mutex mutex;
  std::set<std::thread::id> threads;
  for (int call = 0; call < 300; ++call)
    for (const int count : {3, 0, 1, 7, 2}) {
      std::vector<std::atomic<int>> turns(static_cast<size_t>(count));
      workers.run(count, [&](int i) {
        ++turns[static_cast<size_t>(i)];
        const std::lock_guard lock(mutex);
        threads.insert(std::this_thread::get_id());
      });
      for (const auto& turn : turns) ASSERT_EQ(turn, 1) << "call " << call << " of " << count;
    }
  EXPECT_EQ(threads.size(), 7u);
}

TEST(Workers, TurnsRunAtTheSameTime) {
  Workers workers;
  for (int call = 0; call < 3; ++call) {
    std::atomic<int> inside = 0;
    workers.run(5, [&](int) {
      for (++inside; inside < 5;) std::this_thread::yield();
    });
    EXPECT_EQ(inside, 5);
  }
}

TEST(Workers, WhatABodyThrowsReachesTheCallerAndTheNextCallRuns) {
  Workers workers;
  for (int thrower = 0; thrower < 4; ++thrower) {
    std::atomic<int> ended = 0;
    EXPECT_THROW(workers.run(4,
                             [&](int i) {
                               if (i == thrower) throw std::bad_alloc();
                               std::this_thread::sleep_for(std::chrono::milliseconds(5));
                               ++ended;
                             }),
                 std::bad_alloc);
    EXPECT_EQ(ended, 3) << "a turn was left behind";
    workers.run(4, [&](int) { ++ended; });
    EXPECT_EQ(ended, 7);
  }
}

}  // namespace
}  // namespace quintet
