// The gate's activation.
#pragma once

#include <cuda_fp16.h>

namespace quintet::cuda {

/// The gate's activation, in FP32: 0 SiLU, 1 GELU (tanh form).
__device__ __forceinline__ float activate(int kind, float x) {
  if (kind == 0) return __fdividef(x, 1.f + __expf(-x));  // two units in the last place; zero where the exponential is none
  const float inner = 0.7978845608028654f * (x + 0.044715f * x * x * x);
  return 0.5f * x * (1.f + tanhf(inner));
}

}  // namespace quintet::cuda
