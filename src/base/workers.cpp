// A call is a number that goes up; each thread takes its own turn of it once.
#include "base/workers.h"

#include <algorithm>
#include <system_error>

namespace quintet {

Workers::~Workers() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  begin_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::turn(int number) {
  try {
    (*body_)(number);
  } catch (...) {  // one that left a thread would end the process
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = std::current_exception();
  }
}

void Workers::work(int number) {
  uint64_t done = 0;
  std::unique_lock lock(mutex_);
  for (;;) {
    begin_.wait(lock, [&] { return closing_ || (call_ != done && number < count_); });
    if (closing_) return;
    done = call_;
    lock.unlock();
    turn(number);
    lock.lock();
    if (--left_ == 0) end_.notify_one();
  }
}

void Workers::run(int count, const std::function<void(int i)>& body) {
  try {
    while (static_cast<int>(threads_.size()) + 1 < count) threads_.emplace_back(&Workers::work, this, static_cast<int>(threads_.size()) + 1);
  } catch (const std::system_error&) {
  }
  const int taken = std::min(count, static_cast<int>(threads_.size()) + 1);
  {
    const std::lock_guard lock(mutex_);
    body_ = &body, count_ = taken, left_ = std::max(taken - 1, 0), first_ = nullptr;
    ++call_;
  }
  begin_.notify_all();
  if (count > 0) turn(0);
  for (int number = taken; number < count; ++number) turn(number);
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return left_ == 0; });
  if (first_) std::rethrow_exception(std::exchange(first_, nullptr));
}

}  // namespace quintet
