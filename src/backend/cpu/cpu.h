// The fast CPU backend: packed weights, 16-bit activations, SIMD chosen at run time, a pool of threads.
#pragma once

#include <cstdint>
#include <memory>

#include "backend/backend.h"

namespace quintet {

/// Instruction sets that the kernels exist for. All but the last give the same bits.
enum class CpuSimd : uint8_t {
  best,      ///< of those that this machine runs
  avx512,    ///< AVX-512 with VNNI
  avx2,      ///< AVX2 with FMA and F16C
  baseline,  ///< what every machine of the architecture has
};

struct CpuOptions {
  int threads = 0;               ///< 0: the cores this process may use
  CpuSimd simd = CpuSimd::best;  ///< others are for tests and comparisons
};

/// Whether this machine runs it.
bool cpu_has(CpuSimd simd);

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options);

}  // namespace quintet
