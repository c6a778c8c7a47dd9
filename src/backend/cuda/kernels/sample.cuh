// Sampling of a row on the device: penalties, bias, the greedy choice or a Gumbel-max draw, and the log-probability, by
// the definition in backend/sampler.h. Cuts (top-k, top-p, min-p) are refused when a step is staged.
#pragma once

#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/ptx.cuh"

namespace quintet::cuda {

/// Philox4x32-10 (Salmon et al. 2011); the word of `token` at `position` under `seed`, as sampler.h defines it.
__device__ __forceinline__ uint32_t device_noise(uint64_t seed, int64_t position, int token) {
  uint32_t c0 = static_cast<uint32_t>(token) >> 2, c1 = static_cast<uint32_t>(position), c2 = static_cast<uint32_t>(position >> 32), c3 = 0;
  uint32_t k0 = static_cast<uint32_t>(seed), k1 = static_cast<uint32_t>(seed >> 32);
#pragma unroll
  for (int round = 0; round < 10; ++round) {
    const uint32_t a_high = __umulhi(0xD2511F53u, c0), a_low = 0xD2511F53u * c0;
    const uint32_t b_high = __umulhi(0xCD9E8D57u, c2), b_low = 0xCD9E8D57u * c2;
    c0 = b_high ^ c1 ^ k0, c2 = a_high ^ c3 ^ k1, c1 = b_low, c3 = a_low;
    k0 += 0x9E3779B9u, k1 += 0xBB67AE85u;
  }
  const uint32_t words[4] = {c0, c1, c2, c3};
  return words[token & 3];
}

/// grid: x = rows; 1024 threads.
__global__ void __launch_bounds__(1024) sample_rows(const __grid_constant__ DeviceSampleParams p) {
  __shared__ double best_score[32];
  __shared__ int best_token[32];
  __shared__ float warp_float[32];
  __shared__ int not_finite;
  launch_dependents();
  wait_for_previous();
  const int row = blockIdx.x, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const SampleParams params = p.params[row];
  float* logits = p.logits + static_cast<size_t>(row) * p.stride;
  if (threadIdx.x == 0) {
    not_finite = 0;
    // Penalties and bias touch few tokens; one thread keeps their order the host's.
    if (params.repeat_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0)
      for (int i = params.history_begin; i < params.history_end; ++i) {
        const int token = p.history[i];
        if (token < 0 || token >= p.vocabulary) continue;
        int count = 0;
        bool seen = false;
        for (int j = params.history_begin; j < params.history_end; ++j) {
          count += p.history[j] == token;
          seen |= j < i && p.history[j] == token;
        }
        if (seen) continue;
        float l = logits[token];
        l = l > 0 ? l / params.repeat_penalty : l * params.repeat_penalty;
        l -= __fadd_rn(__fmul_rn(static_cast<float>(count), params.frequency_penalty), params.presence_penalty);
        logits[token] = l;
      }
    for (int i = params.bias_begin; i < params.bias_end; ++i) {
      const int token = p.bias_token[i];
      if (token >= 0 && token < p.vocabulary) logits[token] += p.bias_value[i];
    }
  }
  __syncthreads();
  if (params.mask_row >= 0) {
    const uint32_t* mask = p.mask + static_cast<int64_t>(params.mask_row) * ((p.vocabulary + 31) / 32);
    for (int t = threadIdx.x; t < p.vocabulary; t += 1024)
      if (!(mask[t >> 5] >> (t & 31) & 1)) logits[t] = -INFINITY;
    __syncthreads();
  }
  float maximum = -INFINITY;
  bool bad = false;
  for (int t = threadIdx.x; t < p.vocabulary; t += 1024) {
    const float l = logits[t];
    bad |= !(l <= 3.402823466e38f);
    maximum = fmaxf(maximum, l);
  }
  if (bad) not_finite = 1;
#pragma unroll
  for (int step = 16; step > 0; step /= 2) maximum = fmaxf(maximum, __shfl_xor_sync(0xffffffffu, maximum, step));
  if (lane == 0) warp_float[warp] = maximum;
  __syncthreads();
  for (int w = 0; w < 32; ++w) maximum = fmaxf(maximum, warp_float[w]);
  __syncthreads();
  float sum = 0;
  double score = -INFINITY;
  int token = -1;
  const bool greedy = params.temperature <= 0;
  const double inverse = greedy ? 1. : 1. / static_cast<double>(params.temperature);
  for (int t = threadIdx.x; t < p.vocabulary; t += 1024) {
    const float l = logits[t];
    sum += __expf(l - maximum);
    if (l == -INFINITY) continue;
    double s = static_cast<double>(l) * inverse;
    if (!greedy) {
      const uint32_t noise = device_noise(params.seed, params.position, t);
      // -log(-log(u)) <= (leading ones + 1) ln 2: most tokens end here, without a logarithm in double.
      if (s + (__clz(~noise) + 1) * 0.693147180559945309 + 1e-6 < score) continue;
      s += -log(-log((noise + 0.5) * 0x1p-32));
    }
    if (s > score || (s == score && t < token)) score = s, token = t;
  }
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
    const double other = __shfl_xor_sync(0xffffffffu, score, step);
    const int id = __shfl_xor_sync(0xffffffffu, token, step);
    if (id >= 0 && (token < 0 || other > score || (other == score && id < token))) score = other, token = id;
  }
  if (lane == 0) best_score[warp] = score, best_token[warp] = token, warp_float[warp] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    sum = warp_float[0];
    for (int w = 1; w < 32; ++w) {
      sum += warp_float[w];
      const int id = best_token[w];
      if (id >= 0 && (token < 0 || best_score[w] > score || (best_score[w] == score && id < token))) score = best_score[w], token = id;
    }
    Sampled result;
    if (not_finite || token < 0) {
      result.status = kSampleNotFinite;
    } else {
      result.token = token;
      result.logprob = logits[token] - maximum - logf(sum);
    }
    p.out[row] = result;
  }
}

}  // namespace quintet::cuda
