// The instruction sets that vector code is compiled for, and which of them this machine runs.
#pragma once

#include <cstdint>

namespace quintet {

enum class CpuSimd : uint8_t {
  best,      ///< of those that this machine runs
  avx512,    ///< AVX-512 with VNNI
  avx2,      ///< AVX2 with FMA and F16C
  baseline,  ///< what every machine of the architecture has
};

/// Whether this machine runs it.
bool cpu_has(CpuSimd simd);
/// The one that `best` stands for; any other as it is.
CpuSimd resolve_simd(CpuSimd simd);

}  // namespace quintet
