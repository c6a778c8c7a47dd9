// Jobs in order; the first error ends them, is told and holds nobody up.
#include "compress/write_queue.h"

#include <gtest/gtest.h>

#include <chrono>
#include <new>
#include <thread>
#include <vector>

namespace quintet {
namespace {

TEST(WriteQueue, JobsAreDoneInOrder) {
  WriteQueue queue;
  std::vector<int> done;
  for (int i = 0; i < 50; ++i)
    ASSERT_TRUE(queue.push([&done, i] {
      done.push_back(i);
      return Status();
    }));
  EXPECT_TRUE(queue.drain());
  ASSERT_EQ(done.size(), 50u);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(done[static_cast<size_t>(i)], i);
}

TEST(WriteQueue, TheFirstErrorDropsWhatWaitsAndIsToldEachTime) {
  for (const bool throws : {false, true}) {
    WriteQueue queue;
    int done = 0;
    Status pushed = queue.push([throws]() -> Status {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (throws) throw std::bad_alloc();
      return no_room("full");
    });
    for (int i = 0; i < 5; ++i) pushed = queue.push([&done] { return ++done, Status(); });
    ASSERT_FALSE(pushed);
    EXPECT_EQ(pushed.error().message, throws ? "out of memory" : "full");
    const Status drained = queue.drain();
    ASSERT_FALSE(drained);
    EXPECT_EQ(drained.error().kind, ErrorKind::no_room);
    EXPECT_EQ(done, 0);
  }
}

TEST(WriteQueue, WhatWaitsIsDoneBeforeAnExceptionTakesAwayWhatItUses) {
  WriteQueue queue;
  int done = 0;
  try {
    std::vector<int> used = {1};
    const WriteQueue::Drained drained(queue);
    for (int i = 0; i < 2; ++i)
      ASSERT_TRUE(queue.push([&used, &done] {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        done += used.at(0);
        return Status();
      }));
    throw std::bad_alloc();
  } catch (const std::bad_alloc&) {
    EXPECT_EQ(done, 2);
  }
}

}  // namespace
}  // namespace quintet
