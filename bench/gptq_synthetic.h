// Weights and activations of a layer that nobody has downloaded, made on the GPU; and what rounding loses.
#pragma once

#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace quintet::bench {

/// Random directions that inputs have in common, beside noise of their own.
inline constexpr int kDirections = 8;

/// weights [n, k]: rows of different sizes, one weight in 200 six times as large.
cudaError_t make_weights(float* weights, int64_t n, int64_t k, uint64_t seed, cudaStream_t stream);
/// inputs [tokens, k] of tokens first, first + 1, ...: channel sizes over a decade, six channels 10 to 30 times as large; each
/// token a random mixture of kDirections directions, the r-th of weight 1 / (r + 1), and noise with heavy tails.
cudaError_t make_inputs(__half* inputs, int64_t first, int tokens, int64_t k, uint64_t seed, cudaStream_t stream);
cudaError_t widen(const __half* from, float* to, int64_t count, cudaStream_t stream);

struct Rounded {
  const float* weights;  ///< [n, k]
  const uint8_t* codes;  ///< [n, k]; null: those nearest to the weights
  const float2* ranges;  ///< [n, k / group]
  int64_t n, k;
  int group, offset, most;  ///< a symmetric format
};
/// errors [n, k]: weights less what their codes stand for.
cudaError_t rounding_errors(const Rounded& rounded, float* errors, cudaStream_t stream);

}  // namespace quintet::bench
