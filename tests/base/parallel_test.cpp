// Every turn once; what a body throws reaches the caller when no thread is left.
#include "base/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace quintet {
namespace {

TEST(Parallel, EveryTurnIsTakenOnce) {
  for (const int threads : {1, 2, 7})
    for (const int64_t count : {0, 1, 5, 1000}) {
      std::vector<std::atomic<int>> turns(static_cast<size_t>(count));
      parallel_for(count, threads, [&](int64_t i) { ++turns[static_cast<size_t>(i)]; });
      for (const auto& turn : turns) ASSERT_EQ(turn, 1);
    }
}

TEST(Parallel, WhatABodyThrowsReachesTheCaller) {
  for (const int threads : {1, 2, 7}) {
    // On whichever thread: of the first turns all wait for each other, so that each is another's.
    for (int64_t thrower = 0; thrower < threads; ++thrower) {
      std::atomic<int> inside = 0, turns = 0;
      EXPECT_THROW(parallel_for(1'000'000, threads,
                                [&](int64_t i) {
                                  if (i < threads)
                                    for (++inside; inside < threads;) std::this_thread::yield();
                                  if (i == thrower) throw std::bad_alloc();
                                  ++turns;
                                  std::this_thread::sleep_for(std::chrono::microseconds(50));
                                }),
                   std::bad_alloc);
      EXPECT_LT(turns, 100'000) << "turns go on behind the exception";
    }
  }
}

TEST(Parallel, OfSeveralExceptionsTheFirstIsTold) {
  constexpr int kThreads = 4;
  std::atomic<int> inside = 0, left = 0;
  try {
    parallel_for(kThreads, kThreads, [&](int64_t i) {
      for (++inside; inside < kThreads;) std::this_thread::yield();
      if (i != 2) std::this_thread::sleep_for(std::chrono::milliseconds(100));
      ++left;
      throw std::runtime_error(std::to_string(i));
    });
    FAIL() << "nothing was thrown";
  } catch (const std::runtime_error& error) {
    EXPECT_EQ(error.what(), std::string("2"));
    EXPECT_EQ(left, kThreads) << "a thread was left behind";
  }
}

}  // namespace
}  // namespace quintet
