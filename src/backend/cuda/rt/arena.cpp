// Slabs of device memory.
#include "backend/cuda/rt/arena.h"

#include <algorithm>

#include "base/units.h"

namespace quintet::cuda {

Result<void*> Arena::allocate(size_t bytes) {
  constexpr size_t kPage = size_t{2} << 20, kSlab = size_t{64} << 20;
  bytes = padded(bytes);
  if (bytes > left_) {
    const size_t slab_bytes = (std::max(bytes, kSlab) + kPage - 1) / kPage * kPage;
    Slab slab;
    if (const cudaError_t code = cudaMalloc(slab.out(), slab_bytes); code != cudaSuccess) {
      (void)cudaGetLastError();  // this failure is told; it must not show up again as a latched one
      size_t free_bytes = 0, total_bytes = 0;
      (void)cudaMemGetInfo(&free_bytes, &total_bytes);
      return no_room(fmt::format("GPU memory: asked for {}, free are {} of {}", format_bytes(slab_bytes),
                                 format_bytes(free_bytes), format_bytes(total_bytes)));
    }
    next_ = static_cast<std::byte*>(slab.get());
    left_ = slab_bytes;
    slabs_.push_back(std::make_shared<Slab>(std::move(slab)));
  }
  void* result = next_;
  next_ += bytes;
  left_ -= bytes;
  return result;
}

void Arena::release_unheld() {
  if (slabs_.empty()) return;
  const auto unheld = [](const std::shared_ptr<Slab>& slab) { return slab.use_count() == 1; };
  if (unheld(slabs_.back())) left_ = 0;
  std::erase_if(slabs_, unheld);  // cudaFree waits for the device
}

}  // namespace quintet::cuda
