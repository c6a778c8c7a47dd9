// The table of backends and how --device picks one.
#include "cli/backend_choice.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "backend/cpu/ceilings.h"
#include "backend/cpu/cpu.h"
#include "backend/reference/reference.h"
#ifdef QUINTET_HAVE_CUDA
#include "backend/cuda/ceilings.h"
#include "backend/cuda/cuda.h"
#include "backend/cuda/kernel_variants.h"
#endif

namespace quintet {
namespace {

struct BackendEntry {
  std::string_view name;
  std::string_view shown;  ///< as --help writes it
  bool numbered;           ///< takes ":N", the index of a device
  bool automatic;          ///< "auto" may pick it
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions& options, int index);
};

#ifdef QUINTET_HAVE_CUDA
CudaOptions cuda_options(const BackendOptions& options, int ordinal) {
  const CudaPath path = options.cuda_path == "hopper" ? CudaPath::hopper : options.cuda_path == "sm80" ? CudaPath::sm80 : CudaPath::automatic;
  return {.ordinal = ordinal, .eager = options.eager, .path = path, .table = options.table, .for_racecheck = options.for_racecheck};
}

/// The N of "cuda:N".
int ordinal_of(std::string_view device) {
  int ordinal = 0;
  const std::string_view digits = device.substr(device.find(':') + 1);
  std::from_chars(digits.data(), digits.data() + digits.size(), ordinal);
  return ordinal;
}
#endif

// In the order in which "auto" tries them.
constexpr std::array kBackends = {
#ifdef QUINTET_HAVE_CUDA
    BackendEntry{"cuda", "cuda[:N]", true, true,
                 [](const BackendOptions& options, int index) -> Result<std::unique_ptr<Backend>> {
                   return make_cuda_backend(cuda_options(options, index));
                 }},
#endif
    BackendEntry{"cpu", "cpu", false, true,
                 [](const BackendOptions& options, int) -> Result<std::unique_ptr<Backend>> {
                   return make_cpu_backend(CpuOptions{.threads = options.threads});
                 }},
    BackendEntry{"reference", "reference", false, false,
                 [](const BackendOptions& options, int) -> Result<std::unique_ptr<Backend>> {
                   return make_reference_backend({.kv = options.reference_kv});
                 }},
};

constexpr auto kNames = [] {
  std::array<std::string_view, kBackends.size()> names;
  for (size_t i = 0; i < names.size(); ++i) names[i] = kBackends[i].shown;
  return names;
}();

BackendCandidate candidate(const BackendEntry& entry, int index) {
  return {.device = entry.numbered ? fmt::format("{}:{}", entry.name, index) : std::string(entry.name),
          .make = entry.make,
          .index = index};
}

constexpr std::array<std::string_view, 3> kCudaPaths = {"auto", "hopper", "sm80"};

/// `cuda_path` as in BackendOptions.
Result<std::vector<BackendCandidate>> choose(std::string_view device, std::string_view cuda_path) {
  std::vector<BackendCandidate> found;
  const bool forced = cuda_path != "auto";
  if (device == "auto") {
    for (const auto& entry : kBackends)
      if (entry.automatic && (!forced || entry.name == "cuda")) found.push_back(candidate(entry, 0));
    if (found.empty()) return bad_input(fmt::format("--cuda-path: found '{}', which is not in this build (it has no GPU kernels)", cuda_path));
    return found;
  }
  const size_t colon = device.find(':');
  const std::string_view name = device.substr(0, colon);
  for (const auto& entry : kBackends) {
    if (entry.name != name) continue;
    int index = 0;
    bool valid = true;
    if (colon != std::string_view::npos) {
      const std::string_view digits = device.substr(colon + 1);
      const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
      valid = entry.numbered && failed == std::errc() && end == digits.data() + digits.size() && index >= 0;
    }
    if (valid) found.push_back(candidate(entry, index));
  }
  if (!found.empty()) return found;
  const bool left_out = name == "cuda" && std::ranges::none_of(kBackends, [](const auto& entry) { return entry.name == "cuda"; });
  return bad_input(fmt::format("--device: found '{}'{}, allowed are auto, {}", device,
                               left_out ? ", which is not in this build" : "", fmt::join(kNames, ", ")));
}

Error no_choices(std::string_view device) {
  return bad_input(fmt::format("--tune: found device {}, allowed is a GPU: elsewhere there are no choices among kernels", device));
}

}  // namespace

std::span<const std::string_view> backend_names() { return kNames; }
std::span<const std::string_view> cuda_paths() { return kCudaPaths; }

std::string backend_details() {
#ifdef QUINTET_HAVE_CUDA
  return fmt::format("cuda     kernels for {}\n", cuda_architecture_names(cuda_architectures()));
#else
  return {};
#endif
}

Status check_device(std::string_view device) {
  TRY(choose(device, "auto"));
  return {};
}

Result<std::vector<BackendCandidate>> backend_candidates(const BackendOptions& options) {
  return choose(options.device, options.cuda_path);
}

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options) {
  TRY_ASSIGN(const auto candidates, choose(options.device, options.cuda_path));
  for (size_t i = 0; i + 1 < candidates.size(); ++i)
    if (auto made = candidates[i].make(options, candidates[i].index)) return made;
  return candidates.back().make(options, candidates.back().index);
}

Result<DeviceCeilings> measure_device_ceilings(std::string_view device, int threads) {
#ifdef QUINTET_HAVE_CUDA
  if (device.starts_with("cuda:")) {
    TRY_ASSIGN(const CudaCeilings ceilings, measure_cuda_ceilings());
    return DeviceCeilings{.read_bytes_per_s = ceilings.read_bytes_per_s, .upload_bytes_per_s = ceilings.upload_bytes_per_s};
  }
#endif
  (void)device;
  return DeviceCeilings{.read_bytes_per_s = measure_cpu_ceilings(threads).read_bytes_per_s};
}

Result<std::optional<double>> measure_vendor_products(std::string_view device, std::span<const ProductShape> products, int64_t rows) {
#ifdef QUINTET_HAVE_CUDA
  if (device.starts_with("cuda:")) return measure_library_products(products, rows);
#endif
  (void)device, (void)products, (void)rows;
  return std::optional<double>();
}

Result<KernelTable> kernel_table_of(const BackendOptions& options, std::string_view device) {
#ifdef QUINTET_HAVE_CUDA
  if (device.starts_with("cuda:")) return options.table.value_or(committed_kernel_table(cuda_device_name(ordinal_of(device))));
#endif
  (void)options;
  return no_choices(device);
}

Result<std::vector<KernelVariant>> kernel_variants(const BackendOptions& options, std::string_view device, WeightFormat format) {
#ifdef QUINTET_HAVE_CUDA
  if (device.starts_with("cuda:")) return cuda_kernel_variants(cuda_options(options, ordinal_of(device)), format);
#endif
  (void)options, (void)format;
  return no_choices(device);
}

std::optional<int> device_clock_mhz(std::string_view device) {
#ifdef QUINTET_HAVE_CUDA
  if (device.starts_with("cuda:")) return cuda_clock_mhz();
#endif
  (void)device;
  return std::nullopt;
}

}  // namespace quintet
