// Spinning, sleeping and waking of the CPU backend's threads.
#include "backend/cpu/pool.h"

#include <sched.h>

#include <algorithm>

#include "base/units.h"

namespace quintet::cpu {
namespace {

inline void pause_cpu() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// How long a worker polls for the next region before it sleeps: longer than the gap between two regions of a
/// step, and than the sampling and planning between two steps, short enough that an idle server takes no
/// measurable time.
constexpr int64_t kIdleSpinUs = 1000;

/// How long a thread polls for others inside a region, giving its core away now and then. Long, since a step
/// has hundreds of such waits: on a machine with twenty other busy processes, sleeping after 50 us made a
/// token ten times slower than polling on, as each wake-up waited for a time slice.
constexpr int64_t kRegionSpinUs = 10000;

}  // namespace

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

/// Polls until ready() or the spin time has passed; says which. Gives the core away now and then: where there
/// are more threads than free cores, the one waited for may need it.
template <class Ready>
bool Pool::spin(int thread, int64_t spin_us, Ready&& ready) {
  for (int i = 0; i < 64; ++i) {
    if (ready()) return true;
    pause_cpu();
  }
  const int64_t until = now_us() + spin_us;
  for (int round = 1; now_us() < until; ++round) {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
      pause_cpu();
    }
    if (round % 16 != 0) continue;
    leave_shared_core(thread);
    sched_yield();
  }
  return false;
}

/// Two threads of a pool on one core take turns, each waiting for the other, and look busy to the kernel,
/// which moves neither for many milliseconds though other cores may idle: the one that notices goes
/// elsewhere.
void Pool::leave_shared_core(int thread) {
  const int here = sched_getcpu();
  core_[static_cast<size_t>(thread)].index.store(here, std::memory_order_relaxed);
  const auto is_here = [&](const Core& core) {
    return &core != &core_[static_cast<size_t>(thread)] && core.index.load(std::memory_order_relaxed) == here;
  };
  cpu_set_t allowed;
  if (here < 0 || here >= CPU_SETSIZE || std::none_of(core_.begin(), core_.end(), is_here) ||
      sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < threads())
    return;
  cpu_set_t others = allowed;
  CPU_CLR(here, &others);
  if (sched_setaffinity(0, sizeof(others), &others) != 0) return;
  core_[static_cast<size_t>(thread)].index.store(sched_getcpu(), std::memory_order_relaxed);
  (void)sched_setaffinity(0, sizeof(allowed), &allowed);
}

void Pool::call(int thread) {
  core_[static_cast<size_t>(thread)].index.store(sched_getcpu(), std::memory_order_relaxed);
  function_(context_, thread);
}

Pool::Pool(int threads) : core_(static_cast<size_t>(threads > 0 ? threads : usable_cores())) {
  const auto count = static_cast<int>(core_.size());
  workers_.reserve(static_cast<size_t>(count - 1));
  for (int i = 1; i < count; ++i) workers_.emplace_back([this, i] { work(i); });
}

Pool::~Pool() {
  stop_.store(true);
  epoch_.fetch_add(1);
  epoch_.notify_all();
  for (auto& worker : workers_) worker.join();
}

void Pool::region(Region function, void* context) {
  taken_.store(0, std::memory_order_relaxed);  // published with the epoch below
  if (workers_.empty()) return function(context, 0);
  function_ = function;
  context_ = context;
  pending_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  epoch_.fetch_add(1);                            // publishes the fields above
  if (sleepers_.load() > 0) epoch_.notify_all();  // a system call: only where somebody sleeps
  call(0);
  if (spin(0, kRegionSpinUs, [&] { return pending_.load(std::memory_order_acquire) == 0; })) return;
  // Only the last worker notifies; a count that went from 2 to 1 meanwhile leaves us asleep, which is right.
  for (int left = pending_.load(std::memory_order_acquire); left != 0;
       left = pending_.load(std::memory_order_acquire))
    pending_.wait(left, std::memory_order_acquire);
}

Range Pool::take(int64_t count) {
  int64_t begin = taken_.load(std::memory_order_relaxed);
  while (begin < count) {
    // Guided self-scheduling (Polychronopoulos and Kuck, 1987).
    const int64_t left = count - begin;
    const int64_t size = workers_.empty() ? left : std::max<int64_t>(1, left / (threads() + 1));
    if (taken_.compare_exchange_weak(begin, begin + size, std::memory_order_relaxed))
      return {begin, begin + size};
  }
  return {};
}

void Pool::barrier(int thread) {
  if (workers_.empty()) return taken_.store(0, std::memory_order_relaxed);
  const uint32_t epoch = barrier_epoch_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == threads() - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    taken_.store(0, std::memory_order_relaxed);
    barrier_epoch_.store(epoch + 1, std::memory_order_release);
    barrier_epoch_.notify_all();  // no system call where nobody sleeps
    return;
  }
  const auto passed = [&] { return barrier_epoch_.load(std::memory_order_acquire) != epoch; };
  if (spin(thread, kRegionSpinUs, passed)) return;
  while (!passed()) barrier_epoch_.wait(epoch, std::memory_order_acquire);
}

void Pool::work(int thread) {
  uint32_t seen = 0;
  while (true) {
    if (!spin(thread, kIdleSpinUs, [&] { return epoch_.load(std::memory_order_acquire) != seen; })) {
      // The caller raises the epoch before it reads sleepers_, we raise sleepers_ before we read the epoch
      // (inside wait), all sequentially consistent: one of the two sees the other.
      sleepers_.fetch_add(1);
      while (epoch_.load() == seen) epoch_.wait(seen);
      sleepers_.fetch_sub(1);
    }
    ++seen;
    if (stop_.load(std::memory_order_relaxed)) return;
    call(thread);
    if (pending_.fetch_sub(1, std::memory_order_acq_rel) == 1) pending_.notify_one();
  }
}

}  // namespace quintet::cpu
