// The only place that names concrete backends: from --device to a Backend.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace quintet {

struct BackendOptions {
  std::string device = "auto";  ///< "auto", "cpu", "reference", "cuda[:N]"
  int threads = 0;              ///< of the CPU backend; 0: what the machine has
};

Result<std::unique_ptr<Backend>> make_backend(const BackendOptions& options);

}  // namespace quintet
