// Measures what the GPU can do at all.
#include "backend/cuda/ceilings.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <memory>

#include "backend/cuda/path.h"
#include "backend/cuda/rt/status.h"

namespace quintet {

Result<CudaCeilings> measure_cuda_ceilings() {
  using namespace cuda;
  constexpr size_t kBytes = size_t{4} << 30;
  int device = 0;
  cudaDeviceProp properties;
  QUINTET_CUDA(cudaGetDevice(&device));
  QUINTET_CUDA(cudaGetDeviceProperties(&properties, device));
  TRY_ASSIGN(const DeviceKernels kernels, device_kernels(CudaPath::automatic, properties));
  Handle<void*, cudaFree> memory;
  QUINTET_CUDA(cudaMalloc(memory.out(), kBytes + 256));
  QUINTET_CUDA(cudaMemset(memory.get(), 0x5a, kBytes));
  Event begin, end;
  QUINTET_CUDA(cudaEventCreate(begin.out()));
  QUINTET_CUDA(cudaEventCreate(end.out()));
  const auto seconds = [&]() -> Result<double> {
    float ms = 0;
    QUINTET_CUDA(cudaEventRecord(end.get()));
    QUINTET_CUDA(cudaEventSynchronize(end.get()));
    QUINTET_CUDA(cudaEventElapsedTime(&ms, begin.get(), end.get()));
    return ms * 1e-3;
  };
  CudaCeilings ceilings;
  auto* out = reinterpret_cast<uint32_t*>(static_cast<char*>(memory.get()) + kBytes);
  for (const int blocks : {2, 4, 8, 16})
    for (int run = 0; run < 6; ++run) {
      QUINTET_CUDA(cudaEventRecord(begin.get()));
      QUINTET_CUDA(kernels.kernels->read(memory.get(), kBytes, out, properties.multiProcessorCount * blocks, {}));
      TRY_ASSIGN(const double passed, seconds());
      ceilings.read_bytes_per_s = std::max(ceilings.read_bytes_per_s, kBytes / passed);
    }
  constexpr size_t kPinned = size_t{32} << 20;
  Handle<void*, cudaFreeHost> pinned;
  QUINTET_CUDA(cudaMallocHost(pinned.out(), kPinned));
  for (int run = 0; run < 8; ++run) {
    QUINTET_CUDA(cudaEventRecord(begin.get()));
    QUINTET_CUDA(cudaMemcpyAsync(memory.get(), pinned.get(), kPinned, cudaMemcpyHostToDevice));
    TRY_ASSIGN(const double passed, seconds());
    ceilings.upload_bytes_per_s = std::max(ceilings.upload_bytes_per_s, kPinned / passed);
  }
  return ceilings;
}

std::optional<int> cuda_clock_mhz() {
  // NVML comes with the driver, not with the toolkit: it is looked up, never linked.
  const std::unique_ptr<void, int (*)(void*)> library(dlopen("libnvidia-ml.so.1", RTLD_NOW), [](void* handle) { return handle ? dlclose(handle) : 0; });
  if (!library) return std::nullopt;
  const auto look_up = [&]<class Function>(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(library.get(), name));
    return function != nullptr;
  };
  constexpr int kClockSm = 1;  // NVML_CLOCK_SM
  int (*init)() = nullptr, (*shutdown)() = nullptr;
  int (*handle_of)(const char*, void**) = nullptr;
  int (*clock_of)(void*, int, unsigned*) = nullptr;
  if (!look_up(init, "nvmlInit_v2") || !look_up(shutdown, "nvmlShutdown") || !look_up(handle_of, "nvmlDeviceGetHandleByPciBusId_v2") ||
      !look_up(clock_of, "nvmlDeviceGetClockInfo") || init() != 0)
    return std::nullopt;
  int device = 0;
  std::array<char, 32> bus{};
  void* handle = nullptr;
  unsigned mhz = 0;
  const bool known = cudaGetDevice(&device) == cudaSuccess && cudaDeviceGetPCIBusId(bus.data(), static_cast<int>(bus.size()), device) == cudaSuccess &&
                     handle_of(bus.data(), &handle) == 0 && clock_of(handle, kClockSm, &mhz) == 0;
  (void)shutdown();
  return known ? std::optional<int>(static_cast<int>(mhz)) : std::nullopt;
}

}  // namespace quintet
