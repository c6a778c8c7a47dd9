// A bounded queue and its thread.
#include "compress/write_queue.h"

#include <utility>

namespace quintet {

Status WriteQueue::push(Job job) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.size() < kWaiting || !failed_; });
  if (!failed_) return failed_;
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return {};
}

Status WriteQueue::drain() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return jobs_.empty(); });
  return failed_;
}

void WriteQueue::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [&] { return !jobs_.empty(); })) {
    lock.unlock();
    const Status status = jobs_.front()();
    lock.lock();
    if (status) {
      jobs_.pop_front();
    } else {
      failed_ = status;
      jobs_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace quintet
