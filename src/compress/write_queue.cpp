// A bounded queue and its thread.
#include "compress/write_queue.h"

#include <new>
#include <utility>

namespace quintet {
namespace {

/// An exception that left the thread would end the process.
Status done(const WriteQueue::Job& job) {
  try {
    return job();
  } catch (const std::bad_alloc&) {
    return no_room("out of memory");
  }
}

}  // namespace

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
    const Job& job = jobs_.front();  // stays where it is while others are pushed
    lock.unlock();
    const Status status = done(job);
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
