// The way of a model file's bytes onto the device: several threads copy them from the page cache into pinned memory, and each
// sends its chunks over the bus and starts what unpacks them there, while the others copy.
#pragma once

#include <array>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "backend/cuda/rt/status.h"
#include "base/workers.h"

namespace quintet::cuda {

/// Of memory that is registered with the driver.
void free_pinned(void* memory);

class Uploader {
 public:
  /// Starts, on `stream`, work on the chunk whose first byte lay at `offset` and which lies at `device` now; it may read
  /// `device` until the stream has run what was started. Called from several threads at once.
  using Consume = std::function<cudaError_t(size_t offset, std::span<const uint8_t> device, cudaStream_t stream)>;

  /// Bytes that go in chunks of a multiple of `unit` bytes (the last one may be shorter).
  struct Source {
    std::span<const uint8_t> bytes;
    size_t unit = 1;
    Consume consume;
  };
  /// Sends all of them and returns when everything that their `consume` started is done. Work on `after` that was issued before is
  /// done first. The first error.
  Status send(std::span<const Source> sources, cudaStream_t after);

  /// Gives buffers and threads back; the next send() makes new ones.
  void release() { lanes_.clear(), workers_.reset(); }

 private:
  /// A thread's two chunks in turns: one is filled while the other crosses the bus.
  struct Lane {
    struct Turn {
      Handle<void*, free_pinned> pinned;
      Handle<void*, cudaFree> device;
      Event sent;  ///< `pinned` may be filled again
    };
    std::array<Turn, 2> turns;
    Stream stream;
    size_t bytes = 0;  ///< of a chunk
  };
  struct Chunk {
    const Source* source;
    size_t offset, bytes;
  };
  static Status reserve(Lane& lane, size_t bytes);
  static Status send_chunk(Lane& lane, Lane::Turn& turn, const Chunk& chunk);

  std::vector<Lane> lanes_;
  std::optional<Workers> workers_;  ///< one a lane, not started for each weight, which takes a few milliseconds
};

}  // namespace quintet::cuda
