// Chooses kernels by a device's compute capability.
#include "backend/cuda/path.h"

#include <algorithm>
#include <charconv>

#include "backend/cuda/rt/status.h"
#include "base/units.h"

namespace quintet {
namespace {

/// One architecture of a list such as "80,90a".
struct Architecture {
  int number = 0;      ///< 90: compute capability 9.0
  bool exact = false;  ///< "90a": its kernels run on that one alone
};

template <class Visit>
void each_architecture(std::string_view list, Visit&& visit) {
  while (!list.empty()) {
    const size_t comma = list.find(',');
    const std::string_view name = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    Architecture architecture;
    const auto [end, failed] = std::from_chars(name.data(), name.data() + name.size(), architecture.number);
    architecture.exact = end != name.data() + name.size();
    if (failed == std::errc()) visit(architecture);
  }
}

}  // namespace

std::string_view cuda_architectures() { return QUINTET_CUDA_ARCHITECTURES; }

std::string cuda_architecture_names(std::string_view architectures) {
  std::string names;
  each_architecture(architectures, [&](Architecture a) { names += fmt::format("{}sm_{}{}", names.empty() ? "" : ", ", a.number, a.exact ? "a" : ""); });
  return names;
}

std::string_view cuda_path_name(CudaPath path) {
  constexpr std::string_view kNames[] = {"auto", "hopper", "sm80"};
  return kNames[static_cast<size_t>(path)];
}

Result<CudaPath> choose_cuda_path(CudaPath wanted, std::string_view architectures, int major, int minor) {
  bool has[3] = {};
  each_architecture(architectures, [&](Architecture a) {
    if (a.number / 10 != major || (a.exact ? a.number % 10 != minor : a.number % 10 > minor)) return;
    has[static_cast<size_t>(a.exact ? CudaPath::hopper : CudaPath::sm80)] = true;
  });
  if (wanted != CudaPath::automatic) {
    if (has[static_cast<size_t>(wanted)]) return wanted;
    const bool never = wanted == CudaPath::hopper && (major != 9 || minor != 0);
    return bad_input(fmt::format("--cuda-path {}: found compute capability {}.{} and kernels for {}, allowed are {}", cuda_path_name(wanted), major, minor,
                                 cuda_architecture_names(architectures),
                                 never                           ? "compute capability 9.0 and kernels for sm_90a"
                                 : wanted == CudaPath::hopper    ? "kernels for sm_90a (QUINTET_CUDA_ARCHS of the build)"
                                                                 : fmt::format("kernels for sm_{}0 (QUINTET_CUDA_ARCHS of the build)", major)));
  }
  for (const CudaPath path : {CudaPath::hopper, CudaPath::sm80})
    if (has[static_cast<size_t>(path)]) return path;
  return bad_input(fmt::format("found compute capability {}.{}, this build has kernels for {}", major, minor, cuda_architecture_names(architectures)));
}

namespace cuda {

Result<DeviceKernels> device_kernels(CudaPath wanted, const cudaDeviceProp& properties) {
  TRY_ASSIGN(const CudaPath path, choose_cuda_path(wanted, cuda_architectures(), properties.major, properties.minor));
  // What the kernels of a path ask for at most; every device of its architectures has as much.
  const size_t shared_bytes = path == CudaPath::hopper ? size_t{227} << 10 : size_t{99} << 10;
  if (properties.sharedMemPerBlockOptin < shared_bytes)
    return bad_input(fmt::format("found {} of shared memory a block, allowed are {} and more", format_bytes(properties.sharedMemPerBlockOptin), format_bytes(shared_bytes)));
#if QUINTET_CUDA_HAS_HOPPER
  if (path == CudaPath::hopper) return DeviceKernels{&hopper::kernels(), &hopper::gptq_kernels(), path};
#endif
#if QUINTET_CUDA_HAS_SM80
  if (path == CudaPath::sm80) return DeviceKernels{&sm80::kernels(), &sm80::gptq_kernels(), path};
#endif
  return bad_input(fmt::format("this build has no kernels for the path {}", cuda_path_name(path)));
}

LaunchSite launch_site(const cudaDeviceProp& properties, const CudaOptions& options, cudaStream_t stream) {
  constexpr int kReservedBytes = 1024;  // of each block, by the driver
  int block_bytes = static_cast<int>(properties.sharedMemPerBlockOptin), multiprocessor_bytes = static_cast<int>(properties.sharedMemPerMultiprocessor);
  if (options.most_shared_bytes > 0) block_bytes = std::min(block_bytes, options.most_shared_bytes), multiprocessor_bytes = std::min(multiprocessor_bytes, options.most_shared_bytes + kReservedBytes);
  return {.stream = stream, .multiprocessors = properties.multiProcessorCount, .shared_bytes = block_bytes, .multiprocessor_shared_bytes = multiprocessor_bytes, .arriving_lanes = options.for_racecheck ? 32 : 1};
}

}  // namespace cuda
}  // namespace quintet
