// The fast CPU backend: packed weights, 16-bit activations, SIMD chosen at run time, a pool of threads.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"
#include "base/cpu_simd.h"

namespace quintet {

struct CpuOptions {
  int threads = 0;  ///< 0: the cores this process may use
  /// Others are for tests and comparisons. All but the baseline give the same bits.
  CpuSimd simd = CpuSimd::best;
};

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace quintet
