// How the blocks of one launch wait for each other: counters in global memory that only grow until the last block ends.
// All blocks must be on the device at once.
#pragma once

#include <cstdint>

namespace quintet::cuda {

/// By one thread, after a barrier among those whose writes it publishes.
__device__ __forceinline__ void publish(uint32_t* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0],1;" ::"l"(counter) : "memory");
}
/// publish() with a number of its own instead of a count.
__device__ __forceinline__ void announce(uint32_t* place, uint32_t number) {
  asm volatile("st.release.gpu.global.u32 [%0],%1;" ::"l"(place), "r"(number) : "memory");
}
/// By one thread, before a barrier among those that read what was published.
__device__ __forceinline__ void wait_for(const uint32_t* counter, uint32_t target) {
  uint32_t value;
  do {
    asm volatile("ld.acquire.gpu.global.u32 %0,[%1];" : "=r"(value) : "l"(counter) : "memory");
  } while (value < target);
}

/// Barrier `id` among `count` threads of a block.
template <int id, int count>
__device__ __forceinline__ void named_barrier() {
  asm volatile("bar.sync %0,%1;" ::"n"(id), "n"(count) : "memory");
}

}  // namespace quintet::cuda
