#include "gptq_synthetic.h"

namespace quintet::bench {
namespace {

/// SplitMix64 (Steele, Lea, Flood 2014) of a counter: as many streams as seeds.
__device__ uint64_t mix(uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
  z = (z ^ z >> 27) * 0x94D049BB133111EBu;
  return z ^ z >> 31;
}
__device__ float uniform(uint32_t bits) { return (static_cast<float>(bits >> 8) + 0.5f) * 0x1p-24f; }
/// Box and Muller.
__device__ float normal(uint64_t bits) {
  return sqrtf(-2 * __logf(uniform(static_cast<uint32_t>(bits)))) * __cosf(6.2831853f * uniform(static_cast<uint32_t>(bits >> 32)));
}

__global__ void weights_kernel(float* out, int64_t k, uint64_t seed) {
  const int64_t row = blockIdx.y, column = blockIdx.x * 256 + threadIdx.x;
  if (column >= k) return;
  const float size = 0.02f * __expf(0.3f * normal(mix(seed ^ static_cast<uint64_t>(row) << 40)));
  const uint64_t bits = mix(seed + static_cast<uint64_t>(row * k + column));
  out[row * k + column] = size * normal(bits) * (mix(bits) % 200 == 0 ? 6.f : 1.f);
}

__global__ void inputs_kernel(__half* out, int64_t first, int64_t k, uint64_t seed) {
  __shared__ float share[kDirections];
  const uint64_t token = static_cast<uint64_t>(first) + blockIdx.x;
  if (threadIdx.x < kDirections) share[threadIdx.x] = normal(mix(seed ^ (token << 8 | threadIdx.x))) / static_cast<float>(threadIdx.x + 1);
  __syncthreads();
  for (int64_t column = threadIdx.x; column < k; column += blockDim.x) {
    const uint64_t channel = mix(seed * 3 + static_cast<uint64_t>(column)),
                   noise = mix(seed * 5 + token * static_cast<uint64_t>(k) + static_cast<uint64_t>(column));
    float x = 0.5f * normal(noise) * (mix(noise) % 100 == 0 ? 4.f : 1.f);
    for (int r = 0; r < kDirections; ++r) x += share[r] * normal(mix(channel + static_cast<uint64_t>(r)));
    float size = 0.1f * __expf(2.3f * uniform(static_cast<uint32_t>(channel >> 20)));
    if (column % (k / 6) == 17) size *= 10.f + 4.f * static_cast<float>(column * 6 / k);
    out[static_cast<size_t>(blockIdx.x) * k + column] = __float2half_rn(x * size);
  }
}

__global__ void widen_kernel(const __half* from, float* to, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t{256} + threadIdx.x; i < count; i += int64_t{256} * gridDim.x) to[i] = __half2float(from[i]);
}

__global__ void errors_kernel(const Rounded p, float* errors) {
  const int64_t row = blockIdx.y, column = blockIdx.x * 256 + threadIdx.x;
  if (column >= p.k) return;
  const int64_t i = row * p.k + column;
  const float scale = p.ranges[row * (p.k / p.group) + column / p.group].x, weight = p.weights[i];
  const int nearest = scale > 0 ? min(max(__float2int_rn(weight / scale) + p.offset, 0), p.most) : p.offset;
  errors[i] = weight - scale * static_cast<float>((p.codes ? p.codes[i] : nearest) - p.offset);
}

dim3 columns_by_rows(int64_t columns, int64_t rows) {
  return dim3(static_cast<unsigned>((columns + 255) / 256), static_cast<unsigned>(rows));
}

}  // namespace

cudaError_t make_weights(float* weights, int64_t n, int64_t k, uint64_t seed, cudaStream_t stream) {
  weights_kernel<<<columns_by_rows(k, n), 256, 0, stream>>>(weights, k, seed);
  return cudaGetLastError();
}
cudaError_t make_inputs(__half* inputs, int64_t first, int tokens, int64_t k, uint64_t seed, cudaStream_t stream) {
  inputs_kernel<<<static_cast<unsigned>(tokens), 512, 0, stream>>>(inputs, first, k, seed);
  return cudaGetLastError();
}
cudaError_t widen(const __half* from, float* to, int64_t count, cudaStream_t stream) {
  widen_kernel<<<2048, 256, 0, stream>>>(from, to, count);
  return cudaGetLastError();
}
cudaError_t rounding_errors(const Rounded& rounded, float* errors, cudaStream_t stream) {
  errors_kernel<<<columns_by_rows(rounded.k, rounded.n), 256, 0, stream>>>(rounded, errors);
  return cudaGetLastError();
}

}  // namespace quintet::bench
