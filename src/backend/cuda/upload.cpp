// Lanes of pinned memory between the page cache and the bus.
#include "backend/cuda/upload.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/units.h"

namespace quintet::cuda {
namespace {

/// Two chunks a lane and twelve lanes: 48 MiB of pinned memory, and as much on the device. A copy from the page cache by one
/// thread is an eighth as fast as the bus.
constexpr size_t kChunkBytes = size_t{2} << 20, kMostLanes = 12;

/// Large pages that are there already are pinned ten times as fast as what cudaMallocHost asks the system for.
Result<void*> allocate_pinned(size_t bytes) {
  constexpr size_t kHugePage = size_t{2} << 20;
  bytes = (bytes + kHugePage - 1) / kHugePage * kHugePage;
  void* const memory = std::aligned_alloc(kHugePage, bytes);
  if (!memory) return no_room(fmt::format("host memory: asked for {} to load weights through", format_bytes(bytes)));
  (void)::madvise(memory, bytes, MADV_HUGEPAGE);  // a hint
  std::memset(memory, 0, bytes);
  if (const cudaError_t code = cudaHostRegister(memory, bytes, cudaHostRegisterDefault); code != cudaSuccess) {
    std::free(memory);
    return device_status(code, "cudaHostRegister").error();
  }
  return memory;
}

}  // namespace

void free_pinned(void* memory) {
  (void)cudaHostUnregister(memory);
  std::free(memory);
}

Status Uploader::reserve(Lane& lane, size_t bytes) {
  if (!lane.stream.get()) QUINTET_CUDA(cudaStreamCreateWithFlags(lane.stream.out(), cudaStreamNonBlocking));
  if (lane.bytes >= bytes) return {};
  lane.bytes = 0;
  for (Lane::Turn& turn : lane.turns) {
    turn.pinned.reset();
    turn.device.reset();
    TRY_ASSIGN(*turn.pinned.out(), allocate_pinned(bytes));
    QUINTET_CUDA(cudaMalloc(turn.device.out(), bytes));
    if (!turn.sent.get()) QUINTET_CUDA(cudaEventCreateWithFlags(turn.sent.out(), cudaEventDisableTiming));
  }
  lane.bytes = bytes;
  return {};
}

Status Uploader::send_chunk(Lane& lane, Lane::Turn& turn, const Chunk& chunk) {
  QUINTET_CUDA(cudaEventSynchronize(turn.sent.get()));
  std::memcpy(turn.pinned.get(), chunk.source->bytes.data() + chunk.offset, chunk.bytes);
  // In the order of the lane's stream, what read the device's half of the turn before is done when this copy begins.
  QUINTET_CUDA(cudaMemcpyAsync(turn.device.get(), turn.pinned.get(), chunk.bytes, cudaMemcpyHostToDevice, lane.stream.get()));
  QUINTET_CUDA(cudaEventRecord(turn.sent.get(), lane.stream.get()));
  QUINTET_CUDA(chunk.source->consume(chunk.offset, {static_cast<const uint8_t*>(turn.device.get()), chunk.bytes}, lane.stream.get()));
  return {};
}

Status Uploader::send(std::span<const Source> sources, cudaStream_t after) {
  std::vector<Chunk> chunks;
  size_t longest = kChunkBytes;  // at least, so that a lane's memory is not pinned anew for every unit that divides it otherwise
  for (const Source& source : sources) {
    const size_t step = std::max(source.unit, kChunkBytes / source.unit * source.unit);
    for (size_t offset = 0; offset < source.bytes.size(); offset += step) {
      chunks.push_back({.source = &source, .offset = offset, .bytes = std::min(step, source.bytes.size() - offset)});
      longest = std::max(longest, step);
    }
  }
  const auto cores = static_cast<size_t>(std::max(1u, std::thread::hardware_concurrency()));
  const size_t lanes = std::min({cores, kMostLanes, chunks.size()});
  if (lanes_.size() < lanes) lanes_.resize(lanes);
  int device = 0;
  QUINTET_CUDA(cudaGetDevice(&device));
  QUINTET_CUDA(cudaStreamSynchronize(after));

  std::atomic<size_t> next{0};
  std::mutex mutex;
  Status first_error;
  const auto run_lane = [&](Lane& lane) -> Status {
    QUINTET_CUDA(cudaSetDevice(device));  // the runtime's current device is a thread's own
    TRY(reserve(lane, longest));          // here, so that the first lane sends while the others' memory is pinned
    size_t turn = 0;
    for (size_t i = next++; i < chunks.size(); i = next++) TRY(send_chunk(lane, lane.turns[turn++ % lane.turns.size()], chunks[i]));
    QUINTET_CUDA(cudaStreamSynchronize(lane.stream.get()));
    return {};
  };
  if (!workers_) workers_.emplace();
  workers_->run(static_cast<int>(lanes), [&](int i) {
    Lane& lane = lanes_[static_cast<size_t>(i)];
    const Status status = run_lane(lane);
    if (status) return;
    next = chunks.size();  // the others need not go on
    if (lane.stream.get()) (void)cudaStreamSynchronize(lane.stream.get());  // what is under way reads the lane's memory and writes the caller's
    const std::lock_guard lock(mutex);
    if (first_error) first_error = status;
  });
  return first_error;
}

}  // namespace quintet::cuda
