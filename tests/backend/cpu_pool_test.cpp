// The threads of the CPU backend: regions and barriers in order, and no work while idle.
#include "backend/cpu/pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace quintet::cpu {
namespace {

TEST(CpuPool, EveryThreadRunsEachRegionOnceAndIsDoneAfterwards) {
  for (int threads : {1, 2, 5}) {
    Pool pool(threads);
    ASSERT_EQ(pool.threads(), threads);
    std::vector<int> runs(
        static_cast<size_t>(threads));  // plain: the regions themselves must order the accesses
    for (int region = 1; region <= 300; ++region) {
      pool.run([&](int thread) { ++runs[static_cast<size_t>(thread)]; });
      for (int count : runs) ASSERT_EQ(count, region);
      if (region % 100 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));  // let them sleep
    }
  }
}

TEST(CpuPool, NobodyPassesABarrierBeforeAllHaveCome) {
  for (int threads : {1, 2, 4}) {
    Pool pool(threads);
    std::vector<int> value(static_cast<size_t>(threads));
    std::atomic<int> wrong{0};
    pool.run([&](int thread) {
      for (int round = 1; round <= 200; ++round) {
        value[static_cast<size_t>(thread)] = round;
        pool.barrier(thread);
        for (int other : value) wrong += other != round;
        pool.barrier(thread);
      }
    });
    EXPECT_EQ(wrong, 0);
  }
}

TEST(CpuPool, PartsCoverEverythingOnce) {
  for (int threads : {1, 2, 3, 7})
    for (int64_t count : {0, 1, 2, 6, 7, 100}) {
      int64_t next = 0;
      for (int thread = 0; thread < threads; ++thread) {
        const Range range = part_of(count, thread, threads);
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.end, range.begin);
        next = range.end;
      }
      EXPECT_EQ(next, count);
    }
}

TEST(CpuPool, EveryItemIsTakenOnceInEachRegionAndAfterEachBarrier) {
  for (int threads : {1, 2, 3, 5}) {
    Pool pool(threads);
    for (int64_t count : {0, 1, 2, 7, 100, 1000}) {
      std::vector<std::atomic<int>> takes(static_cast<size_t>(count));
      const auto take_all = [&] {
        for (Range range = pool.take(count); !range.empty(); range = pool.take(count))
          for (int64_t i = range.begin; i < range.end; ++i) ++takes[static_cast<size_t>(i)];
      };
      for (int region = 1; region <= 20; ++region) {
        pool.run([&](int thread) {
          take_all();
          pool.barrier(thread);
          take_all();
        });
        for (const auto& taken : takes) ASSERT_EQ(taken, 2 * region);
      }
    }
  }
}

TEST(CpuPool, IdleThreadsSleep) {
  Pool pool(4);
  pool.run([](int) {});
  std::this_thread::sleep_for(
      std::chrono::milliseconds(50));  // longer than they spin, even on a busy machine
  const std::clock_t before = std::clock();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  const double used_s = static_cast<double>(std::clock() - before) / CLOCKS_PER_SEC;
  EXPECT_LT(used_s, 0.05);  // three spinning threads would use 0.3 s or more
}

}  // namespace
}  // namespace quintet::cpu
