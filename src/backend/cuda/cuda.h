// The CUDA backend: one GPU, compressed weights read at memory speed, one numeric path for prompts and decode.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "backend/backend.h"
#include "backend/kernel_table.h"

namespace quintet {

/// Which set of kernels computes. Both give the same bits on a device that runs both.
enum class CudaPath {
  automatic,  ///< the fastest that the device runs
  hopper,     ///< bulk copies and wgmma: compute capability 9.0 alone
  sm80,       ///< mma.sync and cp.async: 8.0 and later
};

struct CudaOptions {
  int ordinal = 0;     ///< which device
  bool eager = false;  ///< decode steps are issued kernel by kernel rather than replayed as graphs
  CudaPath path = CudaPath::automatic;
  std::optional<KernelTable> table;  ///< choices among kernels; nothing: the committed ones of the device
  int most_shared_bytes = 0;   ///< of shared memory a block, as if the device had no more: what cards with less run can be tested; 0: what it has
  bool for_racecheck = false;  ///< barriers in a form that compute-sanitizer's racecheck follows: slower
};

/// The architectures that this build has kernels for: "80,90a".
std::string_view cuda_architectures();
/// Such a list for people: "sm_80, sm_90a".
std::string cuda_architecture_names(std::string_view architectures);
/// As the driver names it: "NVIDIA H200"; empty where there is no such device.
std::string cuda_device_name(int ordinal);
/// "auto", "hopper" or "sm80".
std::string_view cuda_path_name(CudaPath path);

/// The path of a device of this compute capability among kernels for `architectures`: those of "90a" are the Hopper path's and run
/// on 9.0 alone, those of "80" run on all 8.x, those of "90" (a forced sm80 path on Hopper, for tests) on 9.x. bad_input where
/// there is none.
Result<CudaPath> choose_cuda_path(CudaPath wanted, std::string_view architectures, int major, int minor);

/// not_found where there is no driver, no device or not that one; bad_input where this build has no kernels for the device. The
/// message names what was found and what is allowed.
Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options);

}  // namespace quintet
