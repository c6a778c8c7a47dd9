// The threads of the CPU backend: one parallel region at a time, each a function of the thread's index.
#pragma once

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace quintet::cpu {

/// Items [begin, end) of a loop.
struct Range {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

/// The part of `count` items that `thread` of `threads` does, where each thread has a fixed share.
inline Range part_of(int64_t count, int thread, int threads) {
  return {count * thread / threads, count * (thread + 1) / threads};
}

/// Threads that spin briefly for the next region, since the regions of a step follow each other within
/// microseconds, and then sleep. The caller of run() is thread 0. One caller at a time.
class Pool {
 public:
  /// 0: as many threads as the process may use cores.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(thread) once on every thread and returns when all are done.
  template <class Body>
  void run(Body&& body) {
    region([](void* context, int thread) { (*static_cast<std::remove_reference_t<Body>*>(context))(thread); },
           &body);
  }

  /// Waits until every thread of the running region has come here; `thread` is the caller's index.
  void barrier(int thread);

  /// Items of [0, count) that no thread has taken since the region began or passed its last barrier; empty
  /// once all are taken. The first takes are long, the last ones one item: whoever is held up leaves work to
  /// others.
  Range take(int64_t count);

 private:
  using Region = void (*)(void* context, int thread);
  void region(Region function, void* context);
  void call(int thread);
  void work(int thread);
  template <class Ready>
  bool spin(int thread, int64_t spin_us, Ready&& ready);
  void leave_shared_core(int thread);

  /// The core that a thread was last seen on, on a cache line of its own.
  struct alignas(64) Core {
    std::atomic<int> index{-1};
  };

  std::vector<std::thread> workers_;
  std::vector<Core> core_;  ///< [threads]
  Region function_ = nullptr;
  void* context_ = nullptr;
  // Each on a cache line of its own: the waiting threads poll them.
  alignas(64) std::atomic<uint32_t> epoch_{0};  ///< counts regions
  alignas(64) std::atomic<int> sleepers_{0};
  alignas(64) std::atomic<int> pending_{0};  ///< workers that have not finished the region
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<uint32_t> barrier_epoch_{0};
  alignas(64) std::atomic<int64_t> taken_{0};  ///< items that take() has given away
  std::atomic<bool> stop_{false};
};

/// Cores that this process may use.
int usable_cores();

}  // namespace quintet::cpu
