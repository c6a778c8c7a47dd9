// The CUDA backend: one GPU, compressed weights read at memory speed, one numeric path for prompts and decode.
#pragma once

#include <memory>
#include <string_view>

#include "backend/backend.h"

namespace quintet {

struct CudaOptions {
  int ordinal = 0;     ///< which device
  bool eager = false;  ///< decode steps are issued kernel by kernel rather than replayed as graphs
};

/// The architectures that this build has kernels for: "90a".
std::string_view cuda_architectures();

/// not_found where there is no driver, no device or not that one; bad_input where the device is too old. The message
/// names what was found and what is allowed.
Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options);

}  // namespace quintet
