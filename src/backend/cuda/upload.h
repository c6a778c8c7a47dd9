// The way of a model file's bytes onto the device: several threads copy them from the page cache into pinned memory, and each
// sends its chunks over the bus and starts what unpacks them there, while the others copy.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <vector>

#include "backend/cuda/rt/status.h"

namespace quintet::cuda {

class Uploader {
 public:
  /// Starts, on `stream`, work on the chunk whose first byte lay at `offset` and which lies at `device` now; it may read
  /// `device` until the stream has run what was started. Called from several threads at once.
  using Consume = std::function<cudaError_t(size_t offset, std::span<const uint8_t> device, cudaStream_t stream)>;

  /// Sends `bytes` in chunks of a multiple of `unit` bytes (the last one may be shorter) and returns when everything that
  /// `consume` started is done. Work on `after` that was issued before is done first. The first error.
  Status send(std::span<const uint8_t> bytes, size_t unit, cudaStream_t after, const Consume& consume);

  /// Gives the buffers back; the next send() makes new ones.
  void release() { lanes_.clear(); }

 private:
  /// A thread's two chunks in turns: one is filled while the other crosses the bus.
  struct Lane {
    struct Turn {
      Handle<void*, cudaFreeHost> pinned;
      Handle<void*, cudaFree> device;
      Event sent;  ///< `pinned` may be filled again
    };
    std::array<Turn, 2> turns;
    Stream stream;
    size_t bytes = 0;  ///< of a chunk
  };
  static Status reserve(Lane& lane, size_t bytes);
  static Status send_chunk(Lane& lane, Lane::Turn& turn, std::span<const uint8_t> chunk, size_t offset, const Consume& consume);

  std::vector<Lane> lanes_;
};

}  // namespace quintet::cuda
