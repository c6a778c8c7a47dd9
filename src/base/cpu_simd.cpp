// Asks the processor.
#include "base/cpu_simd.h"

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

CpuSimd resolve_simd(CpuSimd simd) {
  if (simd != CpuSimd::best) return simd;
  return cpu_has(CpuSimd::avx512) ? CpuSimd::avx512
         : cpu_has(CpuSimd::avx2) ? CpuSimd::avx2
                                  : CpuSimd::baseline;
}

}  // namespace quintet
