// One loop over threads, for work that no backend does: statistics, quantizers.
#pragma once

#include <cstdint>
#include <functional>

namespace quintet {

/// How many threads `threads` asks for. 0: one a core.
int thread_count(int threads);

/// Calls body(i) for every i in [0, count) on up to `threads` threads (0: one a core) and waits for all. The
/// order is not defined: bodies share nothing they write. Threads that the system has no room for are done without.
/// Where a body throws (no memory), no more are begun, and once all threads have ended the caller gets the first
/// exception; others are dropped.
void parallel_for(int64_t count, int threads, const std::function<void(int64_t i)>& body);

}  // namespace quintet
