// One over the root of a row's mean square: the scale of an RMS norm.
#pragma once

namespace quintet::cuda {

/// NaN where the sum has overflowed: a row of such numbers is at fault, and must not become one of zeros.
__device__ __forceinline__ float inverse_rms(float square_sum, int count, float eps) {
  const float mean = square_sum / count + eps, scale = rsqrtf(mean);
  return mean == INFINITY ? NAN : scale;
}

}  // namespace quintet::cuda
