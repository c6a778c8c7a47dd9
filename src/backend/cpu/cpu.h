// The fast CPU backend: packed weights, 16-bit activations, SIMD chosen at run time, a pool of threads.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace quintet {

struct CpuOptions {
  int threads = 0;  ///< 0: the cores this process may use
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace quintet
