// Which SIMD targets this program has, and which of them this machine runs.
#include "backend/cpu/kernels.h"

#include <initializer_list>

namespace quintet::cpu {

#if defined(__x86_64__)
namespace avx512 { const Kernels& kernels(); }
namespace avx2 { const Kernels& kernels(); }
#endif
namespace baseline { const Kernels& kernels(); }

bool target_runs_here(SimdTarget target) {
  switch (target) {
#if defined(__x86_64__)
    case SimdTarget::avx512:
      return target_runs_here(SimdTarget::avx2) && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd") &&
             __builtin_cpu_supports("avx512vnni");
    case SimdTarget::avx2:
      return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
             __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("aes");
#else
    case SimdTarget::avx512:
    case SimdTarget::avx2: return false;
#endif
    case SimdTarget::baseline: return true;
  }
  return false;
}

SimdTarget best_target() {
  for (SimdTarget target : {SimdTarget::avx512, SimdTarget::avx2})
    if (target_runs_here(target)) return target;
  return SimdTarget::baseline;
}

const Kernels& kernels_of(SimdTarget target) {
#if defined(__x86_64__)
  if (target == SimdTarget::avx512) return avx512::kernels();
  if (target == SimdTarget::avx2) return avx2::kernels();
#endif
  (void)target;
  return baseline::kernels();
}

}  // namespace quintet::cpu
