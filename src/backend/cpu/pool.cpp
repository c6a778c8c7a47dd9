// Spinning, sleeping and waking of the CPU backend's threads.
#include "backend/cpu/pool.h"

#include <sched.h>

#include <algorithm>
#include <utility>

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

/// How long a worker polls for the next loop before it sleeps: longer than the gap between two loops of a
/// step, and than the sampling and planning between two steps, short enough that an idle server takes no
/// measurable time.
constexpr int64_t kIdleSpinUs = 1000;

/// How long the caller polls for workers that are still inside a loop, giving its core away now and then.
/// Long: on a machine with twenty other busy processes, sleeping after 50 us made a token ten times slower
/// than polling on, as each wake-up waited for a time slice.
constexpr int64_t kLoopSpinUs = 10000;

// The state: the lower 15 bits count the workers inside the loop, then one bit says that more may come in,
// the upper 16 bits count loops. A worker that sleeps through exactly 65536 loops misses one, which nobody
// waits for.
constexpr uint32_t kOpen = 1u << 15;
constexpr uint32_t kInside = kOpen - 1;
constexpr uint32_t kNextLoop = 1u << 16;

constexpr bool is_open(uint32_t state) { return (state & kOpen) != 0; }
constexpr uint32_t loop_of(uint32_t state) { return state / kNextLoop; }

}  // namespace

int usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

Pool::Pool(int threads) : core_(static_cast<size_t>(threads > 0 ? threads : usable_cores())) {
  workers_.reserve(core_.size() - 1);
  for (int i = 1; i < static_cast<int>(core_.size()); ++i) workers_.emplace_back([this, i] { work(i); });
}

Pool::~Pool() {
  stop_.store(true);
  state_.fetch_add(kNextLoop);
  state_.notify_all();
  for (auto& worker : workers_) worker.join();
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
  Core& own = core_[static_cast<size_t>(thread)];
  own.index.store(here, std::memory_order_relaxed);
  const auto is_here = [&](const Core& core) {
    return &core != &own && core.index.load(std::memory_order_relaxed) == here;
  };
  cpu_set_t allowed;
  if (here < 0 || here >= CPU_SETSIZE || std::none_of(core_.begin(), core_.end(), is_here) ||
      sched_getaffinity(0, sizeof(allowed), &allowed) != 0 || CPU_COUNT(&allowed) < threads())
    return;
  cpu_set_t others = allowed;
  CPU_CLR(here, &others);
  if (sched_setaffinity(0, sizeof(others), &others) != 0) return;
  own.index.store(sched_getcpu(), std::memory_order_relaxed);
  (void)sched_setaffinity(0, sizeof(allowed), &allowed);
}

void Pool::run(const Loop& loop) {
  if (loop.count <= 0) return;
  if (workers_.empty() || loop.count == 1) return loop.call(loop.context, 0, {0, loop.count});
  open(loop);
  close();
  if (!has_thrown_.load(std::memory_order_relaxed)) return;
  has_thrown_.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(thrown_, nullptr));
}

/// Lets workers in and takes part.
void Pool::open(const Loop& loop) {
  loop_ = loop;
  taken_.store(0, std::memory_order_relaxed);
  // The loop before is closed and empty: only its count is left in the state. Publishes the fields above.
  state_.store((loop_of(state_.load(std::memory_order_relaxed)) + 1) * kNextLoop | kOpen);
  if (sleepers_.load() > 0) state_.notify_all();  // a system call: only where somebody sleeps
  take_part(0);
}

/// Lets nobody in any more, and waits for those inside.
void Pool::close() {
  const auto is_empty = [&] { return (state_.load(std::memory_order_acquire) & kInside) == 0; };
  if ((state_.fetch_and(~kOpen, std::memory_order_acq_rel) & kInside) == 0) return;
  if (spin(0, kLoopSpinUs, is_empty)) return;
  for (uint32_t state = state_.load(std::memory_order_acquire); (state & kInside) != 0;
       state = state_.load(std::memory_order_acquire))
    state_.wait(state, std::memory_order_acquire);
}

void Pool::take_part(int thread) {
  core_[static_cast<size_t>(thread)].index.store(sched_getcpu(), std::memory_order_relaxed);
  try {
    for (Range range = take(); !range.empty(); range = take()) loop_.call(loop_.context, thread, range);
  } catch (...) {  // one that left a thread would end the process
    taken_.store(loop_.count, std::memory_order_relaxed);
    if (!has_thrown_.exchange(true)) thrown_ = std::current_exception();
  }
}

/// Guided self-scheduling (Polychronopoulos and Kuck, 1987).
Range Pool::take() {
  int64_t begin = taken_.load(std::memory_order_relaxed);
  while (begin < loop_.count) {
    const int64_t size = std::max<int64_t>(1, (loop_.count - begin) / (threads() + 1));
    if (taken_.compare_exchange_weak(begin, begin + size, std::memory_order_relaxed))
      return {begin, begin + size};
  }
  return {};
}

/// Enters the loop that is open now, if it is another one than `seen`.
bool Pool::join(uint32_t& seen) {
  uint32_t state = state_.load(std::memory_order_acquire);
  while (is_open(state) && loop_of(state) != seen)
    if (state_.compare_exchange_weak(state, state + 1, std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
      seen = loop_of(state);
      return true;
    }
  return false;
}

void Pool::work(int thread) {
  uint32_t seen = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    const bool joined =
        spin(thread, kIdleSpinUs, [&] { return join(seen) || stop_.load(std::memory_order_relaxed); });
    if (!joined) {
      // The caller changes the state before it reads sleepers_, we raise sleepers_ before we read the state,
      // all sequentially consistent: one of the two sees the other.
      sleepers_.fetch_add(1);
      const uint32_t state = state_.load();
      if ((!is_open(state) || loop_of(state) == seen) && !stop_.load()) state_.wait(state);
      sleepers_.fetch_sub(1);
      continue;
    }
    if (stop_.load(std::memory_order_relaxed)) return;
    take_part(thread);
    // The last one out of a closed loop wakes the caller, who may sleep by now.
    const uint32_t before = state_.fetch_sub(1, std::memory_order_acq_rel);
    if (!is_open(before) && (before & kInside) == 1) state_.notify_all();
  }
}

}  // namespace quintet::cpu
