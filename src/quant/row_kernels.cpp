// The kernels of each SIMD target, and the choice of one.
#include "quant/row_kernels.h"

#include "base/check.h"

namespace quintet {
namespace rows_avx512 {
const RowKernels& kernels();
}
namespace rows_avx2 {
const RowKernels& kernels();
}
namespace rows_baseline {
const RowKernels& kernels();
}

const RowKernels& row_kernels(CpuSimd simd) {
  simd = resolve_simd(simd);
  QUINTET_CHECK(cpu_has(simd),
                "this machine lacks the instructions that rounding needs (x86-64-v2, or aarch64)");
#if defined(__x86_64__)
  if (simd == CpuSimd::avx512) return rows_avx512::kernels();
  if (simd == CpuSimd::avx2) return rows_avx2::kernels();
#endif
  return rows_baseline::kernels();
}

}  // namespace quintet
