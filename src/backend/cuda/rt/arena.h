// Device memory for what stays: weights and buffers, carved from slabs of at least 64 MiB (a multiple of 2 MiB), so that
// thousands of small vectors do not each cost a page of the device.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <vector>

#include "backend/cuda/rt/status.h"

namespace quintet::cuda {

class Arena {
 public:
  /// `bytes` aligned to 256; freed with the arena, or by release_unheld(). no_room names what was asked for and what is free.
  Result<void*> allocate(size_t bytes);
  /// Keeps the slab of the last allocation from release_unheld(), and beyond the arena's own life.
  std::shared_ptr<const void> hold() const { return slabs_.back(); }
  /// Frees the slabs that nobody holds, once the device has done what it was told. Nothing in them may be used any more.
  void release_unheld();
  /// What an allocation of `bytes` takes.
  static constexpr size_t padded(size_t bytes) { return (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment; }

 private:
  static constexpr size_t kAlignment = 256;
  using Slab = Handle<void*, cudaFree>;
  std::vector<std::shared_ptr<Slab>> slabs_;  ///< `next_` lies in the last one
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

}  // namespace quintet::cuda
