// The threads of the CPU backend: loops done once and whole, and no work while idle.
#include "backend/cpu/pool.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <new>
#include <thread>
#include <vector>

namespace quintet::cpu {
namespace {

TEST(CpuPool, EachItemOfEveryLoopIsDoneOnceAndBeforeTheLoopEnds) {
  for (int threads : {1, 2, 3, 5}) {
    Pool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    for (int64_t count : {0, 1, 2, 7, 100, 1000}) {
      std::vector<int> done(
          static_cast<size_t>(count));  // plain: the loops themselves must order the accesses
      for (int loop = 1; loop <= 100; ++loop) {
        pool.each(count, [&](int thread, int64_t item) {
          ASSERT_GE(thread, 0);
          ASSERT_LT(thread, threads);
          ++done[static_cast<size_t>(item)];
        });
        for (int times : done) ASSERT_EQ(times, loop);
        if (loop % 50 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));  // let them sleep
      }
    }
  }
}

TEST(CpuPool, RangesCoverAllItemsInOrderForEachThread) {
  Pool pool(3);
  for (int64_t count : {2, 5, 64, 1001}) {
    std::vector<int64_t> last(3, -1);
    std::atomic<int64_t> sum{0};
    pool.each_range(count, [&](int thread, Range range) {
      ASSERT_FALSE(range.empty());
      ASSERT_GT(range.begin, last[static_cast<size_t>(thread)]);
      last[static_cast<size_t>(thread)] = range.end - 1;
      sum += range.end - range.begin;
    });
    EXPECT_EQ(sum, count);
  }
}

TEST(CpuPool, WhatABodyThrowsOnAnyThreadReachesTheCaller) {
  for (int threads : {1, 3}) {
    Pool pool(threads);
    for (int thrower = 0; thrower < threads; ++thrower)
      for (int loop = 0; loop < 20; ++loop) {
        std::atomic<bool> thrown{false};
        std::atomic<int> begun{0};
        // Waits for the thread that is to throw, ten seconds at most, so that it gets something to do.
        const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
        const auto body = [&](int thread, int64_t) {
          ++begun;
          if (thread == thrower && !thrown.exchange(true)) throw std::bad_alloc();
          while (!thrown && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        };
        EXPECT_THROW(pool.each(1000, body), std::bad_alloc) << "thread " << thrower << " of " << threads;
        EXPECT_LT(begun, 1000) << "ranges were begun after it";
        std::atomic<int> done{0};
        pool.each(100, [&](int, int64_t) { ++done; });
        EXPECT_EQ(done, 100) << "the next loop";
      }
  }
}

TEST(CpuPool, OtherThreadsHelpWithALongLoop) {
  Pool pool(2);
  std::atomic<bool> helped{false};
  // Items that wait until somebody helps, for ten seconds at most: a helper that never comes fails the test.
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  pool.each(100, [&](int thread, int64_t) {
    if (thread != 0) helped = true;
    while (!helped && std::chrono::steady_clock::now() < until) std::this_thread::yield();
  });
  EXPECT_TRUE(helped);
}

TEST(CpuPool, NobodyWaitsForThreadsThatHaveTakenNothing) {
  // All threads on one core: were the caller to wait for each of them in each loop, every loop would take
  // several switches between them.
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  {
    Pool pool(4);
    rusage start{}, end{};
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // the workers sleep
    getrusage(RUSAGE_THREAD, &start);
    for (int loop = 0; loop < 1000; ++loop) pool.each(3, [](int, int64_t) {});
    getrusage(RUSAGE_THREAD, &end);
    EXPECT_LT(end.ru_nvcsw - start.ru_nvcsw, 500);  // voluntary switches of the caller
  }
  ASSERT_EQ(sched_setaffinity(0, sizeof(before), &before), 0);
}

TEST(CpuPool, IdleThreadsSleep) {
  Pool pool(4);
  pool.each(100, [](int, int64_t) {});
  std::this_thread::sleep_for(
      std::chrono::milliseconds(50));  // longer than they spin, even on a busy machine
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double used_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used_s, 0.05);  // three spinning threads would use 0.3 s or more
}

}  // namespace
}  // namespace quintet::cpu
