// The kernels of each SIMD target, and the choice of one.
#include "quant/group_kernels.h"

#include "base/check.h"

namespace quintet {
namespace encode_avx512 {
const GroupKernels& kernels();
}
namespace encode_avx2 {
const GroupKernels& kernels();
}
namespace encode_baseline {
const GroupKernels& kernels();
}

const GroupKernels& group_kernels(CpuSimd simd) {
  simd = resolve_simd(simd);
  QUINTET_CHECK(cpu_has(simd),
                "this machine lacks the instructions that the encoders need (x86-64-v2, or aarch64)");
#if defined(__x86_64__)
  if (simd == CpuSimd::avx512) return encode_avx512::kernels();
  if (simd == CpuSimd::avx2) return encode_avx2::kernels();
#endif
  return encode_baseline::kernels();
}

}  // namespace quintet
