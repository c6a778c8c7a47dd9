// A ring of stages in shared memory, filled by bulk copies and drained by warps that compute.
#pragma once

#include "backend/cuda/kernels/ptx.cuh"

namespace quintet::cuda {

#if __CUDA_ARCH__ >= 900
/// Barriers of a ring, initialised by one thread: `fillers` lanes arrive at a stage's `full`, `drainers` warps at its `empty`.
__device__ __forceinline__ void ring_init(uint64_t* full, uint64_t* empty, int stages, int fillers, int drainers) {
  for (int s = 0; s < stages; ++s) {
    barrier_init(shared_address(&full[s]), fillers);
    barrier_init(shared_address(&empty[s]), drainers);
  }
}

/// One lane that fills its share of every stage, stage after stage. A copy takes its thread hundreds of cycles to set up, so
/// each copy of a stage has a lane of its own: one thread for all of them was what limited the products.
class RingFiller {
 public:
  /// `to`: where this lane's share of stage 0 lies.
  __device__ RingFiller(const uint64_t* full, const uint64_t* empty, const void* to, int stages, int stage_bytes)
      : full_(shared_address(full)), empty_(shared_address(empty)), to_(shared_address(to)), stages_(stages), stage_bytes_(stage_bytes) {}

  /// Waits until the next stage is free and asks for `bytes` bytes, a multiple of 16; 0: nothing of this stage.
  template <bool kWeights>
  __device__ __forceinline__ void put(const uint8_t* from, int bytes) {
    barrier_wait(empty_ + stage_ * 8, parity_);
    const uint32_t full = full_ + stage_ * 8, to = to_ + stage_ * stage_bytes_;
    barrier_expect(full, bytes);
    if (bytes > 0) {
      if constexpr (kWeights) bulk_copy_weights(to, from, bytes, full);
      else bulk_copy(to, from, bytes, full);
    }
    if (++stage_ == stages_) stage_ = 0, parity_ ^= 1;
  }

 private:
  uint32_t full_, empty_, to_;
  int stages_, stage_bytes_, stage_ = 0;
  uint32_t parity_ = 1;  // the first round finds every stage free
};
#endif

}  // namespace quintet::cuda
