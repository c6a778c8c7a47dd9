// Which SIMD targets this program has, and which of them this machine runs.
#include "backend/cpu/kernels.h"

#include "base/check.h"

namespace quintet {

bool cpu_has(CpuSimd simd) {
  switch (simd) {
    case CpuSimd::best: return true;
#if defined(__x86_64__)
    case CpuSimd::avx512:
      return cpu_has(CpuSimd::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") &&
             __builtin_cpu_supports("avx512vnni");
    case CpuSimd::avx2:  // F16C came before AVX2 everywhere, and clang 14 cannot ask for it
      return cpu_has(CpuSimd::baseline) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
             __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
    case CpuSimd::baseline:
      return __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") &&
             __builtin_cpu_supports("popcnt") && __builtin_cpu_supports("pclmul") &&
             __builtin_cpu_supports("aes");
#else
    case CpuSimd::avx512:
    case CpuSimd::avx2: return false;
    case CpuSimd::baseline: return true;
#endif
  }
  return false;
}

namespace cpu {

#if defined(__x86_64__)
namespace avx512 {
const Kernels& kernels();
}
namespace avx2 {
const Kernels& kernels();
}
#endif
namespace baseline {
const Kernels& kernels();
}

const Kernels& kernels_of(CpuSimd simd) {
  if (simd == CpuSimd::best)
    simd = cpu_has(CpuSimd::avx512) ? CpuSimd::avx512
           : cpu_has(CpuSimd::avx2) ? CpuSimd::avx2
                                    : CpuSimd::baseline;
  QUINTET_CHECK(cpu_has(simd),
                "this machine lacks the instructions that the cpu backend needs (x86-64-v2, or aarch64)");
#if defined(__x86_64__)
  if (simd == CpuSimd::avx512) return avx512::kernels();
  if (simd == CpuSimd::avx2) return avx2::kernels();
#endif
  return baseline::kernels();
}

}  // namespace cpu
}  // namespace quintet
