// The only place that names concrete backends: from --device to a Backend.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/library_products.h"
#include "backend/kernel_table.h"

namespace quintet {

struct BackendOptions {
  std::string device = "auto";  ///< "auto", "cpu", "reference", "cuda[:N]"
  int threads = 0;              ///< of the CPU backend; 0: what the machine has
  DType reference_kv = DType::f32;  ///< of the reference backend: what keys and values are rounded to
  bool eager = false;           ///< of the CUDA backend: no graphs
  std::string kernel_table;     ///< of the CUDA backend: the file that `table` was read from
  std::optional<KernelTable> table;  ///< of the CUDA backend; nothing: the committed one
  bool for_racecheck = false;   ///< of the CUDA backend: see CudaOptions
  std::string cuda_path = "auto";  ///< of the CUDA backend: one of cuda_paths(); but "auto" they leave no other device to --device auto
};

/// Backends of this build, the preferred one first: "cuda[:N]", "cpu", "reference".
std::span<const std::string_view> backend_names();
/// What --cuda-path may say, in every build: "auto" and the sets of kernels of the CUDA backend.
std::span<const std::string_view> cuda_paths();
/// What `--version` adds about them, lines with ends; may be empty.
std::string backend_details();

/// Checks --device without starting anything: a name that is not in this build is bad_input.
Status check_device(std::string_view device);

/// What a device can do at all: the denominators of a bench's figures.
struct DeviceCeilings {
  double read_bytes_per_s = 0;  ///< of memory that no cache holds
  double upload_bytes_per_s = 0;  ///< over the bus to it, from memory that is pinned; 0: there is no bus
};
/// Measures the device of this name (BackendInfo::name); `threads` as in BackendOptions.
Result<DeviceCeilings> measure_device_ceilings(std::string_view device, int threads);
/// Milliseconds that the vendor's library takes for these FP16 products of `rows` rows on this device; nothing where the
/// device has no such library, or it is not installed.
Result<std::optional<double>> measure_vendor_products(std::string_view device, std::span<const ProductShape> products, int64_t rows);
/// The clock of its multiprocessors as it runs now; nothing for devices that have none or do not tell.
std::optional<int> device_clock_mhz(std::string_view device);

/// The choices among kernels that a backend of these options on this device (BackendInfo::name) makes; bad_input where it has none.
Result<KernelTable> kernel_table_of(const BackendOptions& options, std::string_view device);
/// The variants of this device's product of a format, and what they take; launches nothing.
Result<std::vector<KernelVariant>> kernel_variants(const BackendOptions& options, std::string_view device, WeightFormat format);

/// One way to compute that --device allows; "auto" allows several.
struct BackendCandidate {
  std::string device;  ///< "cuda:0"
  Result<std::unique_ptr<Backend>> (*make)(const BackendOptions& options, int index);
  int index = 0;
};

/// In the order in which they are to be tried. The last one is what must work.
Result<std::vector<BackendCandidate>> backend_candidates(const BackendOptions& options);

/// The first candidate that this machine has: for verbs that load no weights.
Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

}  // namespace quintet
