// Sampling of a row on the device by the definition in backend/sampler.h: penalties, bias and mask, log-probabilities and
// alternatives, the cuts, the greedy choice or a Gumbel-max draw. One block a row.
//
// The cuts keep a prefix of the tokens in falling order of their logits (equal ones by rising id), so each is a token: the
// last one kept. It is found by radix selection over the bits of the logits, by count for top-k and by weight for top-p.
// Weights are whole numbers (2^45 is the weight of the most probable token), so that the order in which threads add them
// changes nothing.
#pragma once

#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/sample_params.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kSampleThreads = 1024, kSampleWarps = kSampleThreads / 32, kDigits = 256;
inline constexpr int kReportedAlternatives = 20;  ///< kAlternatives of backend/sampler.h
inline constexpr uint32_t kAllLanes = 0xffffffffu;

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

/// What the threads of a row's block exchange.
struct SampleShared {
  unsigned long long digit_weight[kDigits];
  unsigned long long warp_weight[kSampleWarps];
  double warp_score[kSampleWarps];
  float warp_value[kSampleWarps];
  int warp_token[kSampleWarps];
  int warp_count[kSampleWarps];
  unsigned long long above;  ///< select_prefix: weight of all digits above the one chosen
  int chosen, listed;
  Alternative list[kReportedAlternatives];
};

/// The row's logits and the block's threads' way through them.
struct SampleRow {
  float* logits;
  int vocabulary;
  SampleShared& shared;

  template <class Body>
  __device__ void each(Body&& body) const {
    for (int t = threadIdx.x; t < vocabulary; t += kSampleThreads) body(t, logits[t]);
  }
  /// Whole warps: body(token, logit, exists).
  template <class Body>
  __device__ void each_by_warp(Body&& body) const {
    for (int t = threadIdx.x; t - static_cast<int>(threadIdx.x % 32) < vocabulary; t += kSampleThreads)
      body(t, t < vocabulary ? logits[t] : -INFINITY, t < vocabulary);
  }
};

/// A prefix of the tokens in order: those of a greater key, and of this key those with an id up to last.
struct Prefix {
  uint32_t key = 0;
  int last = INT_MAX;
  __device__ bool contains(uint32_t other, int token) const { return other > key || (other == key && token <= last); }
};

/// Rises with the logit; 0 and -0 are equal.
__device__ __forceinline__ uint32_t order_key(float logit) {
  const uint32_t bits = __float_as_uint(logit + 0.f);
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

/// The largest logit in every thread, or NaN where one is NaN or +Inf.
__device__ inline float checked_max(const SampleRow& row) {
  float largest = -INFINITY;
  bool bad = false;
  row.each([&](int, float l) {
    bad |= !(l <= 3.402823466e38f);
    largest = fmaxf(largest, l);
  });
#pragma unroll
  for (int step = 16; step > 0; step /= 2) largest = fmaxf(largest, __shfl_xor_sync(kAllLanes, largest, step));
  if (threadIdx.x % 32 == 0) row.shared.warp_value[threadIdx.x / 32] = largest;
  bad = __syncthreads_or(bad);
  for (int w = 0; w < kSampleWarps; ++w) largest = fmaxf(largest, row.shared.warp_value[w]);
  __syncthreads();
  return bad ? NAN : largest;
}

/// log of the sum of e^(l - max), by a fixed tree: a thread's own tokens in order, lanes, warps in order.
__device__ inline float log_total(const SampleRow& row, float max) {
  float sum = 0;
  row.each([&](int, float l) { sum += expf(l - max); });
#pragma unroll
  for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
  if (threadIdx.x % 32 == 0) row.shared.warp_value[threadIdx.x / 32] = sum;
  __syncthreads();
  sum = 0;
  for (int w = 0; w < kSampleWarps; ++w) sum += row.shared.warp_value[w];
  __syncthreads();
  return logf(sum);
}

/// Adds `weight` of the lanes that have one to the sums of their digits: lanes of a digit join first, since most tokens share
/// a few digits. Weights are below 2^46.
__device__ inline void add_to_digits(SampleShared& shared, bool has, uint32_t digit, uint64_t weight) {
  if (!__any_sync(kAllLanes, has)) return;
  const uint32_t peers = __match_any_sync(kAllLanes, has ? digit : kDigits);
  // 23 bits at a time, so that 32 of them fit a word.
  const uint64_t low = __reduce_add_sync(peers, static_cast<uint32_t>(weight & 0x7fffff));
  const uint64_t high = __reduce_add_sync(peers, static_cast<uint32_t>(weight >> 23));
  if (has && static_cast<int>(threadIdx.x % 32) == __ffs(static_cast<int>(peers)) - 1)
    atomicAdd(&shared.digit_weight[digit], static_cast<unsigned long long>(low + (high << 23)));
}

/// The first warp finds the highest digit at which the sum from the top reaches `target`; -1: none does.
__device__ inline void choose_digit(SampleShared& shared, uint64_t target) {
  constexpr int kEach = kDigits / 32;
  if (threadIdx.x >= 32) return;
  const int lane = static_cast<int>(threadIdx.x), top = kDigits - 1 - lane * kEach;
  uint64_t own = 0;
  for (int i = 0; i < kEach; ++i) own += shared.digit_weight[top - i];
  uint64_t sum = own;
  for (int step = 1; step < 32; step *= 2) {
    const uint64_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  const uint32_t reached = __ballot_sync(kAllLanes, sum >= target);
  if (reached == 0) {
    if (lane == 0) shared.chosen = -1;
  } else if (lane == __ffs(static_cast<int>(reached)) - 1) {
    uint64_t above = sum - own;
    int digit = top;
    while (above + shared.digit_weight[digit] < target) above += shared.digit_weight[digit--];
    shared.chosen = digit;
    shared.above = above;
  }
}

/// The id of the `count`-th token, by rising id, of those of this key within `within`; there are that many.
__device__ inline int nth_of_key(const SampleRow& row, uint32_t key, const Prefix& within, int count) {
  const int each = (row.vocabulary + kSampleThreads - 1) / kSampleThreads;
  const int begin = min(static_cast<int>(threadIdx.x) * each, row.vocabulary), end = min(begin + each, row.vocabulary);
  const auto counts = [&](int t) { return order_key(row.logits[t]) == key && within.contains(key, t); };
  int own = 0;
  for (int t = begin; t < end; ++t) own += counts(t);
  int before = own;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (int step = 1; step < 32; step *= 2) {
    const int other = __shfl_up_sync(kAllLanes, before, step);
    if (lane >= step) before += other;
  }
  if (lane == 31) row.shared.warp_count[warp] = before;
  before -= own;
  __syncthreads();
  for (int w = 0; w < warp; ++w) before += row.shared.warp_count[w];
  if (before < count && count <= before + own)
    for (int t = begin; t < end; ++t)
      if (counts(t) && ++before == count) row.shared.chosen = t;
  __syncthreads();
  const int token = row.shared.chosen;
  __syncthreads();
  return token;
}

/// The shortest prefix of `within` whose weights reach `target` (1 or more), or `within` where all of it does not.
/// weigh(logit) rises with the logit.
template <class Weigh>
__device__ Prefix select_prefix(const SampleRow& row, const Prefix& within, uint64_t target, Weigh&& weigh) {
  SampleShared& shared = row.shared;
  uint32_t key = 0;
  uint64_t of_key = 0;
  for (int shift = 24; shift >= 0; shift -= 8) {
    for (int d = threadIdx.x; d < kDigits; d += kSampleThreads) shared.digit_weight[d] = 0;
    __syncthreads();
    row.each_by_warp([&](int t, float l, bool exists) {
      const uint32_t own = order_key(l);
      const bool has = exists && l > -INFINITY && within.contains(own, t) && (shift == 24 || (own ^ key) >> (shift + 8) == 0);
      add_to_digits(shared, has, own >> shift & (kDigits - 1), has ? weigh(l) : 0);
    });
    __syncthreads();
    choose_digit(shared, target);
    __syncthreads();
    if (shared.chosen < 0) return within;
    key |= static_cast<uint32_t>(shared.chosen) << shift;
    target -= shared.above;
    of_key = shared.digit_weight[shared.chosen];
    __syncthreads();
  }
  const float logit = __uint_as_float(key & 0x80000000u ? key & 0x7fffffffu : ~key);
  const uint64_t each = weigh(logit), wanted = (target + each - 1) / each;
  if (wanted * each >= of_key) return {.key = key, .last = within.key == key ? within.last : INT_MAX};
  return {.key = key, .last = nth_of_key(row, key, within, static_cast<int>(wanted))};
}

/// Penalties, bias and mask change the logits. Each distinct token of the history is changed once, by whoever takes its count.
__device__ inline void change_logits(const DeviceSampleParams& p, const SampleParams& params, const SampleRow& row, int own_token, int* count) {
  const auto valid = [&](int token) { return token >= 0 && token < row.vocabulary; };
  if (params.repeat_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0) {
    const auto each_of_history = [&](auto&& body) {
      for (int i = params.history_begin + static_cast<int>(threadIdx.x); i < params.history_end; i += kSampleThreads) {
        const int token = p.history[i] == -1 ? own_token : p.history[i];
        if (valid(token)) body(token);
      }
      __syncthreads();
    };
    each_of_history([&](int token) { count[token] = 0; });
    each_of_history([&](int token) { atomicAdd(&count[token], 1); });
    each_of_history([&](int token) {
      const int times = atomicExch(&count[token], 0);
      if (times == 0) return;
      float l = row.logits[token];
      l = l > 0 ? l / params.repeat_penalty : __fmul_rn(l, params.repeat_penalty);
      row.logits[token] = l - __fadd_rn(__fmul_rn(static_cast<float>(times), params.frequency_penalty), params.presence_penalty);
    });
  }
  // A token may have several entries: one thread keeps their order the host's.
  if (threadIdx.x == 0)
    for (int i = params.bias_begin; i < params.bias_end; ++i)
      if (valid(p.bias_token[i])) row.logits[p.bias_token[i]] += p.bias_value[i];
  __syncthreads();
  if (params.mask_row >= 0) {
    const uint32_t* mask = p.mask + static_cast<int64_t>(params.mask_row) * ((row.vocabulary + 31) / 32);
    row.each([&](int t, float) {
      if (!(mask[t >> 5] >> (t & 31) & 1)) row.logits[t] = -INFINITY;
    });
    __syncthreads();
  }
}

/// The most likely tokens in order, as many as are asked for.
__device__ inline void list_alternatives(const SampleRow& row, int wanted, float max, float log_sum, Alternative* out) {
  SampleShared& shared = row.shared;
  const Prefix prefix = select_prefix(row, {}, static_cast<uint64_t>(wanted), [](float) -> uint64_t { return 1; });
  if (threadIdx.x == 0) shared.listed = 0;
  __syncthreads();
  row.each([&](int t, float l) {
    if (l > -INFINITY && prefix.contains(order_key(l), t)) shared.list[atomicAdd(&shared.listed, 1)] = {t, l};
  });
  __syncthreads();
  if (static_cast<int>(threadIdx.x) < shared.listed) {
    const Alternative own = shared.list[threadIdx.x];
    int rank = 0;
    for (int i = 0; i < shared.listed; ++i)
      rank += shared.list[i].logprob > own.logprob || (shared.list[i].logprob == own.logprob && shared.list[i].token < own.token);
    out[rank] = {own.token, own.logprob - max - log_sum};
  }
  __syncthreads();
}

/// What the cuts leave: a prefix, and of it the logits of at least `floor` below the largest.
struct Kept {
  Prefix prefix;
  double floor = -INFINITY;
};

__device__ inline Kept cut(const SampleRow& row, const SampleParams& params, float max) {
  Kept kept;
  if (params.top_k > 0 && params.top_k < row.vocabulary)
    kept.prefix = select_prefix(row, kept.prefix, static_cast<uint64_t>(params.top_k), [](float) -> uint64_t { return 1; });
  if (params.top_p < 1) {
    const double inverse = fmin(1 / static_cast<double>(params.temperature), 1e30);
    // The exponent's rounding to FP32 is made good by the first term of its series.
    const auto weigh = [&](float l) -> uint64_t {
      const double exact = (static_cast<double>(l) - max) * inverse;
      const float x = static_cast<float>(fmax(exact, -200.));
      return __float2ull_rn(ldexpf(fmaf(expf(x), static_cast<float>(fmax(exact, -200.) - x), expf(x)), 45));
    };
    uint64_t total = 0;
    row.each([&](int t, float l) {
      if (l > -INFINITY && kept.prefix.contains(order_key(l), t)) total += weigh(l);
    });
#pragma unroll
    for (int step = 16; step > 0; step /= 2) total += __shfl_xor_sync(kAllLanes, total, step);
    if (threadIdx.x % 32 == 0) row.shared.warp_weight[threadIdx.x / 32] = total;
    __syncthreads();
    total = 0;
    for (int w = 0; w < kSampleWarps; ++w) total += row.shared.warp_weight[w];
    __syncthreads();
    const auto target = static_cast<uint64_t>(ceil(static_cast<double>(params.top_p) * static_cast<double>(total)));
    kept.prefix = select_prefix(row, kept.prefix, target > 0 ? target : 1, weigh);
  }
  if (params.min_p > 0) kept.floor = static_cast<double>(params.temperature) * log(static_cast<double>(params.min_p));
  return kept;
}

/// The lowest id whose logit is the largest.
__device__ inline int greedy(const SampleRow& row, float max) {
  SampleShared& shared = row.shared;
  int token = INT_MAX;
  row.each([&](int t, float l) {
    if (l == max) token = min(token, t);
  });
  token = __reduce_min_sync(kAllLanes, token);
  if (threadIdx.x % 32 == 0) shared.warp_token[threadIdx.x / 32] = token;
  __syncthreads();
  for (int w = 0; w < kSampleWarps; ++w) token = min(token, shared.warp_token[w]);
  return token;
}

/// The token with the highest l / temperature + noise of those kept.
__device__ inline int draw(const SampleRow& row, const SampleParams& params, const Kept& kept, float max) {
  SampleShared& shared = row.shared;
  const double inverse = 1. / static_cast<double>(params.temperature);
  double score = -INFINITY;
  int token = -1;
  const auto better = [&](double other, int id) { return id >= 0 && (token < 0 || other > score || (other == score && id < token)); };
  row.each([&](int t, float l) {
    if (l == -INFINITY || !kept.prefix.contains(order_key(l), t) || static_cast<double>(l) - max < kept.floor) return;
    double s = __dmul_rn(static_cast<double>(l), inverse);
    const uint32_t noise = device_noise(params.seed, params.position, t);
    // -log(-log(u)) <= (leading ones + 1) ln 2: most tokens end here, without a logarithm in double.
    if (s + (__clz(static_cast<int>(~noise)) + 1) * 0.693147180559945309 + 1e-6 < score) return;
    s = __dadd_rn(s, -log(-log((noise + 0.5) * 0x1p-32)));
    if (better(s, t)) score = s, token = t;
  });
#pragma unroll
  for (int step = 16; step > 0; step /= 2) {
    const double other = __shfl_xor_sync(kAllLanes, score, step);
    const int id = __shfl_xor_sync(kAllLanes, token, step);
    if (better(other, id)) score = other, token = id;
  }
  if (threadIdx.x % 32 == 0) shared.warp_score[threadIdx.x / 32] = score, shared.warp_token[threadIdx.x / 32] = token;
  __syncthreads();
  for (int w = 0; w < kSampleWarps; ++w)
    if (better(shared.warp_score[w], shared.warp_token[w])) score = shared.warp_score[w], token = shared.warp_token[w];
  return token;
}

/// Before any row of this step writes over what the step before sampled.
__global__ void __launch_bounds__(kSampleThreads) row_tokens(const __grid_constant__ RowTokensParams p) {
  launch_dependents();
  wait_for_previous();
  const int i = blockIdx.x * kSampleThreads + threadIdx.x;
  if (i >= p.rows) return;
  const int row = p.logit_row[i], token = p.token[row];
  p.out[i] = token < 0 ? p.sampled[p.prev[row]].token : token;
}

/// grid: x = rows.
__global__ void __launch_bounds__(kSampleThreads) sample_rows(const __grid_constant__ SampleRowsParams args) {
  __shared__ SampleShared shared;
  launch_dependents();
  wait_for_previous();
  const DeviceSampleParams& p = args.step;
  const int index = blockIdx.x;
  const SampleParams params = p.params[index];
  const SampleRow row = {p.logits + static_cast<size_t>(index) * p.stride, p.vocabulary, shared};
  Alternative* alternatives = args.alternatives ? args.alternatives + static_cast<size_t>(index) * kReportedAlternatives : nullptr;
  if (alternatives && threadIdx.x < kReportedAlternatives) alternatives[threadIdx.x] = {-1, -INFINITY};
  float max = checked_max(row);
  const bool changes = params.repeat_penalty != 1 || params.presence_penalty != 0 || params.frequency_penalty != 0 ||
                       params.bias_begin < params.bias_end || params.mask_row >= 0;
  if (!isnan(max) && changes) {
    change_logits(p, params, row, args.own_token ? args.own_token[index] : -1, args.counts + static_cast<size_t>(index) * p.vocabulary);
    max = checked_max(row);
  }
  if (!isfinite(max)) {
    if (threadIdx.x == 0) p.out[index] = {.token = 0, .logprob = 0, .status = kSampleNotFinite};
    return;
  }
  const float log_sum = log_total(row, max);
  const int wanted = min(min(params.logprobs, kReportedAlternatives), p.vocabulary);
  if (alternatives && wanted > 0) list_alternatives(row, wanted, max, log_sum, alternatives);
  const int token = params.temperature > 0 ? draw(row, params, cut(row, params, max), max) : greedy(row, max);
  if (threadIdx.x == 0) p.out[index] = {.token = token, .logprob = row.logits[token] - max - log_sum, .status = 0};
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
