// Measures what the GPU can do at all.
#include "backend/cuda/ceilings.h"

#include <algorithm>

#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/rt/status.h"

namespace quintet {

Result<CudaCeilings> measure_cuda_ceilings() {
  using namespace cuda;
  constexpr size_t kBytes = size_t{4} << 30;
  Handle<void*, cudaFree> memory;
  QUINTET_CUDA(cudaMalloc(memory.out(), kBytes + 256));
  QUINTET_CUDA(cudaMemset(memory.get(), 0x5a, kBytes));
  Event begin, end;
  QUINTET_CUDA(cudaEventCreate(begin.out()));
  QUINTET_CUDA(cudaEventCreate(end.out()));
  int device = 0, multiprocessors = 0, khz = 0;
  QUINTET_CUDA(cudaGetDevice(&device));
  QUINTET_CUDA(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device));
  QUINTET_CUDA(cudaDeviceGetAttribute(&khz, cudaDevAttrClockRate, device));
  CudaCeilings ceilings{.sm_mhz = khz / 1000};
  auto* out = reinterpret_cast<uint32_t*>(static_cast<char*>(memory.get()) + kBytes);
  for (const int blocks : {2, 4, 8, 16})
    for (int run = 0; run < 6; ++run) {
      QUINTET_CUDA(cudaEventRecord(begin.get()));
      QUINTET_CUDA(launch_read(memory.get(), kBytes, out, multiprocessors * blocks, {}));
      QUINTET_CUDA(cudaEventRecord(end.get()));
      QUINTET_CUDA(cudaEventSynchronize(end.get()));
      float ms = 0;
      QUINTET_CUDA(cudaEventElapsedTime(&ms, begin.get(), end.get()));
      ceilings.read_bytes_per_s = std::max(ceilings.read_bytes_per_s, kBytes / (ms * 1e-3));
    }
  return ceilings;
}

}  // namespace quintet
