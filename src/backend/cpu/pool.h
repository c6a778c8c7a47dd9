// The threads of the CPU backend: loops whose items any of them may do.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace quintet::cpu {

/// Items [begin, end) of a loop.
struct Range {
  int64_t begin = 0, end = 0;
  bool empty() const { return begin >= end; }
};

/// Threads that help the caller with its loops. They spin briefly for the next loop, since the loops of a
/// step follow each other within microseconds, and then sleep. Nobody waits for a thread that has taken
/// nothing: on a busy machine the caller does alone what the others are not awake for. One caller at a time.
class Pool {
 public:
  /// 0: as many threads as the process may use cores.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const { return static_cast<int>(workers_.size()) + 1; }

  /// Calls body(thread, range) for ranges that together are [0, count), each item once, and returns when all
  /// are done. The caller is thread 0. The first ranges are long, the last ones single items: whoever is held
  /// up leaves work to others. Where a body throws (no memory), no more ranges are begun, and once no thread
  /// is inside the caller gets the first exception.
  template <class Body>
  void each_range(int64_t count, Body&& body) {
    const Loop loop{
        .call = [](void* context, int thread,
                   Range range) { (*static_cast<std::remove_reference_t<Body>*>(context))(thread, range); },
        .context = &body,
        .count = count};
    run(loop);
  }

  /// Calls body(thread, item) once for each item of [0, count).
  template <class Body>
  void each(int64_t count, Body&& body) {
    each_range(count, [&](int thread, Range range) {
      for (int64_t item = range.begin; item < range.end; ++item) body(thread, item);
    });
  }

 private:
  struct Loop {
    void (*call)(void* context, int thread, Range range) = nullptr;
    void* context = nullptr;
    int64_t count = 0;
  };
  /// The core that a thread was last seen on, on a cache line of its own.
  struct alignas(64) Core {
    std::atomic<int> index{-1};
  };

  void run(const Loop& loop);
  void open(const Loop& loop);
  void close();
  void take_part(int thread);
  Range take();
  void work(int thread);
  bool join(uint32_t& seen);
  template <class Ready>
  bool spin(int thread, int64_t spin_us, Ready&& ready);
  void leave_shared_core(int thread);

  std::vector<std::thread> workers_;
  std::vector<Core> core_;  ///< [threads]
  Loop loop_;               ///< written while the state is closed and no worker is in it
  std::exception_ptr thrown_;  ///< by a body of the loop: the first, written by whom has_thrown_ lets
  // Each on a cache line of its own: the waiting threads poll them.
  alignas(64) std::atomic<uint32_t> state_{
      0};  ///< count of loops, whether one is open, workers inside: see pool.cpp
  alignas(64) std::atomic<int64_t> taken_{0};  ///< items that take() has given away
  alignas(64) std::atomic<int> sleepers_{0};
  std::atomic<bool> stop_{false}, has_thrown_{false};
};

/// Cores that this process may use.
int usable_cores();

}  // namespace quintet::cpu
