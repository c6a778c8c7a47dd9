// Lanes of pinned memory between the page cache and the bus.
#include "backend/cuda/upload.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/parallel.h"

namespace quintet::cuda {
namespace {

/// Two chunks a lane and eight lanes: 64 MiB of pinned memory, and as much on the device. A copy from the page cache by one
/// thread is several times slower than the bus.
constexpr size_t kChunkBytes = size_t{4} << 20;
constexpr int kMostLanes = 8;

}  // namespace

Status Uploader::reserve(Lane& lane, size_t bytes) {
  if (!lane.stream.get()) QUINTET_CUDA(cudaStreamCreateWithFlags(lane.stream.out(), cudaStreamNonBlocking));
  if (lane.bytes >= bytes) return {};
  lane.bytes = 0;
  for (Lane::Turn& turn : lane.turns) {
    turn.pinned.reset();
    turn.device.reset();
    QUINTET_CUDA(cudaMallocHost(turn.pinned.out(), bytes));
    QUINTET_CUDA(cudaMalloc(turn.device.out(), bytes));
    if (!turn.sent.get()) QUINTET_CUDA(cudaEventCreateWithFlags(turn.sent.out(), cudaEventDisableTiming));
  }
  lane.bytes = bytes;
  return {};
}

Status Uploader::send_chunk(Lane& lane, Lane::Turn& turn, std::span<const uint8_t> chunk, size_t offset, const Consume& consume) {
  QUINTET_CUDA(cudaEventSynchronize(turn.sent.get()));
  std::memcpy(turn.pinned.get(), chunk.data(), chunk.size());
  // In the order of the lane's stream, what read the device's half of the turn before is done when this copy begins.
  QUINTET_CUDA(cudaMemcpyAsync(turn.device.get(), turn.pinned.get(), chunk.size(), cudaMemcpyHostToDevice, lane.stream.get()));
  QUINTET_CUDA(cudaEventRecord(turn.sent.get(), lane.stream.get()));
  QUINTET_CUDA(consume(offset, {static_cast<const uint8_t*>(turn.device.get()), chunk.size()}, lane.stream.get()));
  return {};
}

Status Uploader::send(std::span<const uint8_t> bytes, size_t unit, cudaStream_t after, const Consume& consume) {
  const size_t chunk_bytes = std::max(unit, kChunkBytes / unit * unit), chunks = (bytes.size() + chunk_bytes - 1) / chunk_bytes;
  const auto cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const auto lanes = static_cast<size_t>(std::min<int64_t>(std::min(cores, kMostLanes), static_cast<int64_t>(chunks)));
  if (lanes_.size() < lanes) lanes_.resize(lanes);
  int device = 0;
  QUINTET_CUDA(cudaGetDevice(&device));
  for (size_t i = 0; i < lanes; ++i) TRY(reserve(lanes_[i], chunk_bytes));
  QUINTET_CUDA(cudaStreamSynchronize(after));

  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status first_error;
  const auto run_lane = [&](Lane& lane) -> Status {
    QUINTET_CUDA(cudaSetDevice(device));  // the runtime's current device is a thread's own
    size_t turn = 0;
    for (size_t i = next++; i < chunks; i = next++) {
      const size_t offset = i * chunk_bytes;
      TRY(send_chunk(lane, lane.turns[turn++ % lane.turns.size()], bytes.subspan(offset, std::min(chunk_bytes, bytes.size() - offset)), offset,
                     consume));
    }
    QUINTET_CUDA(cudaStreamSynchronize(lane.stream.get()));
    return {};
  };
  parallel_for(static_cast<int64_t>(lanes), static_cast<int>(lanes), [&](int64_t i) {
    const Status status = run_lane(lanes_[static_cast<size_t>(i)]);
    if (status) return;
    next = chunks;  // the others need not go on
    const std::lock_guard lock(mutex);
    if (first_error) first_error = status;
  });
  return first_error;
}

}  // namespace quintet::cuda
