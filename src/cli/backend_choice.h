// The only place that names concrete backends: from --device to a Backend.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backend/backend.h"

namespace quintet {

struct BackendOptions {
  std::string device = "auto";  ///< "auto", "cpu", "reference", "cuda[:N]"
  int threads = 0;              ///< of the CPU backend; 0: what the machine has
};

/// Backends of this build, the preferred one first.
std::span<const std::string_view> backend_names();

/// Checks --device without starting anything: a name that is not in this build is bad_input.
Status check_device(std::string_view device);

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

}  // namespace quintet
