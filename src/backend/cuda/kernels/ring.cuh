// Rings of stages in shared memory, drained by warps that compute: filled by bulk copies (Hopper) or by cp.async.
#pragma once

#include "backend/cuda/kernels/ptx.cuh"

namespace quintet::cuda {

#if QUINTET_CUDA_HOPPER
/// Barriers of a ring, initialised by one thread: `fillers` lanes arrive at a stage's `full`, `drainers` warps at its `empty`.
__device__ __forceinline__ void ring_init(uint64_t* full, uint64_t* empty, int stages, int fillers, int drainers) {
  for (int s = 0; s < stages; ++s) {
    barrier_init(shared_address(&full[s]), fillers);
    barrier_init(shared_address(&empty[s]), drainers);
  }
}

/// Gives `barrier` what a warp has done before, with whatever its lanes have read or written: one lane arrives for all, after a
/// barrier of the warp. racecheck does not follow that chain, but follows each lane's own arrival (docs/performance.md): for it
/// `arriving_lanes` is 32, and barriers count as many arrivals a warp.
__device__ __forceinline__ void ring_release(uint32_t barrier, int lane, int arriving_lanes) {
  __syncwarp();
  if (lane < arriving_lanes) barrier_arrive(barrier);
}

/// One lane that fills its share of every stage, stage after stage. A copy takes its thread hundreds of cycles to set up, so
/// each copy of a stage has a lane of its own: one thread for all of them was what limited the products.
class RingFiller {
 public:
  /// `to`: where this lane's share of stage 0 lies.
  __device__ RingFiller(const uint64_t* full, const uint64_t* empty, const void* to, int stages, int stage_bytes)
      : full_(shared_address(full)), empty_(shared_address(empty)), to_(shared_address(to)), stages_(stages), stage_bytes_(stage_bytes) {}

  /// Waits until fewer than `window` stages are on their way. A lane calls it before every put() or never.
  __device__ __forceinline__ void keep_within(int window) {
    for (; on_the_way_ >= min(window, stages_); --on_the_way_) {
      barrier_wait(full_ + oldest_ * 8, oldest_parity_);
      if (++oldest_ == stages_) oldest_ = 0, oldest_parity_ ^= 1;
    }
    ++on_the_way_;
  }

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
  int on_the_way_ = 0, oldest_ = 0;  // stages asked for and not known to be there; the first of them
  uint32_t oldest_parity_ = 0;
};
#endif

/// One of kThreads threads that fill stages by cp.async, 16 bytes at a time: each stage has kFirst bytes of one source and behind
/// them, or elsewhere, kSecond bytes of another. Both are multiples of 16 and are copied as one span, so that no thread idles between;
/// a thread's addresses are formed once a run of stages, since forming them is most of what a copy costs.
template <int kFirst, int kSecond, int kThreads>
class SpanCopier {
  static_assert(kFirst % 16 == 0 && kSecond % 16 == 0);
  static constexpr int kFirstChunks = kFirst / 16, kChunks = kFirstChunks + kSecond / 16;
  static constexpr int kWhole = kFirstChunks / kThreads;  // rounds of the first source in which every thread copies
  static constexpr int kMixed = (kChunks - kWhole * kThreads + kThreads - 1) / kThreads;

 public:
  /// Stages lie one first_step (of the first source) and second_step apart; the second source's bytes go second_at bytes behind the
  /// first one's in a stage.
  __device__ SpanCopier(int index, int first_step, int second_step, int second_at) : index_(index), first_step_(first_step) {
#pragma unroll
    for (int r = 0; r < kMixed; ++r) {
      const int chunk = (kWhole + r) * kThreads + index;
      mixed_step_[r] = chunk < kFirstChunks ? first_step : second_step;
      mixed_to_[r] = chunk < kFirstChunks ? chunk * 16 : second_at + (chunk - kFirstChunks) * 16;
      keep(mixed_step_[r]);
      keep(mixed_to_[r]);
    }
    first_to_ = index * 16;
    keep(first_to_);
  }
  /// The next stage to copy.
  __device__ __forceinline__ void begin(const uint8_t* first, const uint8_t* second) {
    first_ = first + index_ * 16;
#pragma unroll
    for (int r = 0; r < kMixed; ++r) {
      const int chunk = (kWhole + r) * kThreads + index_;
      mixed_[r] = chunk < kFirstChunks ? first + chunk * 16 : second + (chunk - kFirstChunks) * 16;
    }
  }
  /// Copies a stage to `to` and goes on to the next.
  __device__ __forceinline__ void copy(uint32_t to) {
#pragma unroll
    for (int r = 0; r < kWhole; ++r) copy_async_16(to + first_to_ + r * kThreads * 16, first_ + r * kThreads * 16);
#pragma unroll
    for (int r = 0; r < kMixed; ++r)
      if ((kWhole + r + 1) * kThreads <= kChunks || (kWhole + r) * kThreads + index_ < kChunks) copy_async_16(to + mixed_to_[r], mixed_[r]);
    first_ += first_step_;
#pragma unroll
    for (int r = 0; r < kMixed; ++r) mixed_[r] += mixed_step_[r];
  }

 private:
  int index_, first_step_, first_to_;
  const uint8_t* first_ = nullptr;
  const uint8_t* mixed_[kMixed ? kMixed : 1] = {};
  int mixed_step_[kMixed ? kMixed : 1] = {}, mixed_to_[kMixed ? kMixed : 1] = {};
};

/// kBytes, a multiple of 16, by a warp; `to` and `from` are this lane's first 16.
template <int kBytes>
__device__ __forceinline__ void copy_warp(uint32_t to, const uint8_t* from, int lane) {
  static_assert(kBytes % 16 == 0);
  constexpr int kWhole = kBytes / 512, kTail = kBytes % 512 / 16;
#pragma unroll
  for (int r = 0; r < kWhole; ++r) copy_async_16(to + r * 512, from + r * 512);
  if (kTail > 0 && lane < kTail) copy_async_16(to + kWhole * 512, from + kWhole * 512);
}

/// kBytes, a multiple of 16, by kThreads threads, of which this one is `index`.
template <int kBytes, int kThreads>
__device__ __forceinline__ void copy_span(uint32_t to, const uint8_t* from, int index) {
  static_assert(kBytes % 16 == 0);
#pragma unroll
  for (int at = 0; at < kBytes / 16; at += kThreads)
    if (at + kThreads <= kBytes / 16 || at + index < kBytes / 16) copy_async_16(to + (at + index) * 16, from + (at + index) * 16);
}

/// copy_async_wait for a number of groups that is known at run time: at most kMostPending.
inline constexpr int kMostPending = 4;
__device__ __forceinline__ void copy_async_wait_for(int pending) {
  switch (pending) {
    case 0: copy_async_wait<0>(); break;
    case 1: copy_async_wait<1>(); break;
    case 2: copy_async_wait<2>(); break;
    case 3: copy_async_wait<3>(); break;
    default: copy_async_wait<4>(); break;
  }
}

}  // namespace quintet::cuda
