// The kernels of each SIMD target, and the choice of one.
#include "backend/cpu/kernels.h"

#include "base/check.h"

namespace quintet {

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
  simd = resolve_simd(simd);
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
