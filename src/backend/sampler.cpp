// Penalties, cuts and the Gumbel-max draw of one row of logits.
#include "backend/sampler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/check.h"

namespace quintet {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kLanes = 4;

// Vectors of the compiler's own, lowered to whatever the target has: loops over lanes were not vectorised,
// which cost 240 us for 49152 logits.
using Floats = float __attribute__((vector_size(kLanes * 4)));
using Ints = int32_t __attribute__((vector_size(kLanes * 4)));

Floats load_floats(const float* p) {
  Floats v;
  std::memcpy(&v, p, sizeof(v));
  return v;
}

/// e^x for x <= 0, to about 2 ulp.
inline Floats exp_nonpositive(Floats x) {
  const Floats floor = Floats{} - 87.0f;
  x = x > floor ? x : floor;
  const Floats shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the low bits become round(x / ln 2)
  const Floats n = shifted - 12582912.0f;
  const Floats r = (x - n * 0.693359375f) + n * 2.12194440e-4f;  // Cody and Waite: ln 2 in two parts
  Floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;  // minimax polynomial of e^r (Moshier, Cephes expf)
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  return reinterpret_cast<Floats>(reinterpret_cast<Ints>(p) + (reinterpret_cast<Ints>(shifted) << 23));
}

/// sum of e^((l - max) * inverse_temperature), lane by lane in blocks of 4096, lanes and blocks added in
/// double.
double exp_sum(std::span<const float> logits, float max, float inverse_temperature) {
  double total = 0;
  for (size_t begin = 0; begin < logits.size(); begin += 4096) {
    const size_t end = std::min(begin + 4096, logits.size());
    Floats sum{};
    size_t i = begin;
    for (; i + kLanes <= end; i += kLanes)
      sum += exp_nonpositive((load_floats(&logits[i]) - max) * inverse_temperature);
    if (i < end) {
      float tail[kLanes];
      std::fill(std::begin(tail), std::end(tail),
                -kInfinity);  // adds e^-87 each, which no float sum above 0 notices
      std::copy(&logits[i], logits.data() + end, tail);
      sum += exp_nonpositive((load_floats(tail) - max) * inverse_temperature);
    }
    for (size_t j = 0; j < kLanes; ++j) total += static_cast<double>(sum[j]);
  }
  return total;
}

/// The largest logit, or NaN where one is NaN or +Inf.
float checked_max(std::span<const float> logits) {
  Floats largest = Floats{} - kInfinity;
  const Floats limit = Floats{} + std::numeric_limits<float>::max();
  Ints good = Ints{} - 1;
  const auto take = [&](Floats l) {
    good &= l <= limit;
    largest = l > largest ? l : largest;
  };
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) take(load_floats(&logits[i]));
  if (i < logits.size()) {
    float tail[kLanes];
    std::fill(std::begin(tail), std::end(tail), -kInfinity);
    std::copy(&logits[i], logits.data() + logits.size(), tail);
    take(load_floats(tail));
  }
  float max = -kInfinity;
  for (size_t j = 0; j < kLanes; ++j) {
    if (!good[j]) return std::numeric_limits<float>::quiet_NaN();
    max = std::max(max, largest[j]);
  }
  return max;
}

double gumbel(uint32_t noise) { return -std::log(-std::log((noise + 0.5) * 0x1p-32)); }

/// An upper bound of gumbel(noise) without logarithms: -log(u) >= 1 - u, so g <= -log(1 - u) < (leading ones
/// + 1) ln 2. The first bound is within rounding of g only where u is near 1, hence the margin.
double gumbel_bound(uint32_t noise) { return (std::countl_one(noise) + 1) * 0.693147180559945309 + 1e-6; }
constexpr double kGumbelMax = 22.9;  // of noise 2^32 - 1: -log(2^-33) = 22.87

}  // namespace

std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
    c = {static_cast<uint32_t>(b >> 32) ^ c[1] ^ key[0], static_cast<uint32_t>(b),
         static_cast<uint32_t>(a >> 32) ^ c[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return c;
}

namespace {

std::array<uint32_t, 4> noise_of_four(uint64_t seed, int64_t position, uint32_t quarter) {
  const auto where = static_cast<uint64_t>(position);
  return philox4x32({quarter, static_cast<uint32_t>(where), static_cast<uint32_t>(where >> 32), 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
}

}  // namespace

uint32_t sample_noise(uint64_t seed, int64_t position, TokenId token) {
  const auto id = static_cast<uint32_t>(token);
  return noise_of_four(seed, position, id >> 2)[id & 3];
}

RowSampler::RowSampler(int32_t vocabulary)
    : count_(static_cast<size_t>(vocabulary)), kept_(static_cast<size_t>(vocabulary)) {}

void RowSampler::penalize(const StepView& step, const SampleParams& params, TokenId own_token, std::span<float> logits) {
  const auto vocabulary = static_cast<int32_t>(logits.size());
  const auto valid = [&](TokenId token) { return token >= 0 && token < vocabulary; };
  if (params.counts_history()) {
    const auto counted = [&](int32_t i) { return step.history[i] == -1 ? own_token : step.history[i]; };
    for (int32_t i = params.history_begin; i < params.history_end; ++i)
      if (const TokenId token = counted(i); valid(token)) ++count_[static_cast<size_t>(token)];
    for (int32_t i = params.history_begin; i < params.history_end; ++i) {
      const TokenId token = counted(i);
      if (!valid(token) || count_[static_cast<size_t>(token)] == 0) continue;
      float& l = logits[static_cast<size_t>(token)];
      l = l > 0 ? l / params.repeat_penalty : l * params.repeat_penalty;
      l -= static_cast<float>(count_[static_cast<size_t>(token)]) * params.frequency_penalty +
           params.presence_penalty;
      count_[static_cast<size_t>(token)] = 0;
    }
  }
  for (int32_t i = params.bias_begin; i < params.bias_end; ++i)
    if (valid(step.bias_token[i])) logits[static_cast<size_t>(step.bias_token[i])] += step.bias_value[i];
  if (params.mask_row >= 0) {
    const uint32_t* mask = step.mask + int64_t{params.mask_row} * ((vocabulary + 31) / 32);
    for (int32_t token = 0; token < vocabulary; ++token)
      if (!(mask[token >> 5] >> (token & 31) & 1)) logits[static_cast<size_t>(token)] = -kInfinity;
  }
}

bool RowSampler::cut(const SampleParams& params, std::span<const float> logits, float max) {
  const size_t vocabulary = logits.size();
  const bool by_k = params.top_k > 0 && static_cast<size_t>(params.top_k) < vocabulary;
  const bool by_p = params.top_p < 1;
  if (!by_k && !by_p && params.min_p <= 0) return false;

  const auto before = [&](TokenId a, TokenId b) {
    const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
    return la > lb || (la == lb && a < b);
  };
  const double temperature = params.temperature;
  const auto weight = [&](TokenId token) {
    return std::exp((static_cast<double>(logits[static_cast<size_t>(token)]) - max) / temperature);
  };
  // A logit under `floor` is cut for sure, so that few tokens are sorted.
  double floor = -std::numeric_limits<double>::infinity();
  double total = 0;
  if (by_p && !by_k) {
    // Tokens of less than (1 - top_p) / vocabulary each cannot together make up 1 - top_p. Half of it:
    // rounding.
    total =
        exp_sum(logits, max, static_cast<float>(std::min(1 / temperature, 1e30)));  // finite: 0 * Inf is NaN
    const double share =
        std::max(0.5 * (1 - static_cast<double>(params.top_p)) / static_cast<double>(vocabulary), 1e-30);
    floor = max + temperature * std::log(share * total);
  }
  if (params.min_p > 0)  // min_p keeps a prefix of the order as well, and top_p only shortens it
    if (!by_p)
      floor = std::max(floor,
                       max + temperature * std::log(static_cast<double>(params.min_p)) - 1e-3 * temperature);

  size_t size = 0;
  for (size_t i = 0; i < vocabulary; ++i)
    if (logits[i] > -kInfinity && static_cast<double>(logits[i]) >= floor)
      kept_[size++] = static_cast<TokenId>(i);
  const size_t candidates = size;
  const auto begin = kept_.begin();
  const auto at = [&](size_t i) { return begin + static_cast<std::ptrdiff_t>(i); };
  if (by_k) size = std::min(size, static_cast<size_t>(params.top_k));
  // Sorted in growing stretches: most cuts end after a few tokens.
  size_t sorted = 0;
  const auto sort_to = [&](size_t count) {
    if (count <= sorted) return;
    count = std::min(candidates, std::max(count, 4 * sorted));
    std::partial_sort(at(sorted), at(count), at(candidates), before);
    sorted = count;
  };
  if (by_k) sort_to(size);
  if (by_p) {
    if (by_k) {
      total = 0;
      for (size_t i = 0; i < size; ++i) total += weight(kept_[i]);
    }
    double sum = 0;
    for (size_t i = 0; i < size; ++i) {
      if (i >= sorted) sort_to(i + 64);
      sum += weight(kept_[i]);
      if (sum >= static_cast<double>(params.top_p) * total) {
        size = i + 1;
        break;
      }
    }
  }
  if (params.min_p > 0) {
    size_t probable = 0;
    while (probable < size) {
      if (probable >= sorted) sort_to(probable + 64);
      if (weight(kept_[probable]) < static_cast<double>(params.min_p)) break;
      ++probable;
    }
    size = std::max<size_t>(probable, 1);
  }
  kept_size_ = size;
  return true;
}

TokenId RowSampler::draw(const SampleParams& params, std::span<const float> logits, TokenId best,
                         bool all) const {
  const double inverse = 1 / static_cast<double>(params.temperature);
  const auto score_of = [&](TokenId token, uint32_t noise) {
    return static_cast<double>(logits[static_cast<size_t>(token)]) * inverse + gumbel(noise);
  };
  TokenId winner = best;
  double top = score_of(best, sample_noise(params.seed, params.position, best));
  const auto consider = [&](TokenId token, uint32_t noise) {
    const double scaled = static_cast<double>(logits[static_cast<size_t>(token)]) * inverse;
    if (scaled + gumbel_bound(noise) < top) return;  // most tokens end here, without a logarithm
    const double score = scaled + gumbel(noise);
    if (score > top || (score == top && token < winner)) {
      top = score;
      winner = token;
    }
  };
  if (!all) {
    for (size_t i = 0; i < kept_size_; ++i)
      consider(kept_[i], sample_noise(params.seed, params.position, kept_[i]));
    return winner;
  }
  const auto vocabulary = static_cast<TokenId>(logits.size());
  for (TokenId first = 0; first < vocabulary; first += 4) {
    const TokenId end = std::min(first + 4, vocabulary);
    float largest = -kInfinity;
    for (TokenId token = first; token < end; ++token)
      largest = std::max(largest, logits[static_cast<size_t>(token)]);
    if (static_cast<double>(largest) * inverse + kGumbelMax < top) continue;
    const auto noise = noise_of_four(params.seed, params.position, static_cast<uint32_t>(first) >> 2);
    for (TokenId token = first; token < end; ++token) consider(token, noise[static_cast<size_t>(token & 3)]);
  }
  return winner;
}

Sampled RowSampler::sample(const StepView& step, int32_t row, std::span<float> logits,
                           Alternative* alternatives, TokenId own_token) {
  QUINTET_CHECK(logits.size() == count_.size(), "{} logits for a vocabulary of {}", logits.size(),
                count_.size());
  const SampleParams& params = step.sample[row];
  if (alternatives) std::fill_n(alternatives, kAlternatives, Alternative{-1, -kInfinity});
  float max = checked_max(logits);
  if (std::isnan(max)) return {.status = kSampleNotFinite};
  const bool changes =
      params.counts_history() || params.bias_begin < params.bias_end || params.mask_row >= 0;
  if (changes) {
    penalize(step, params, own_token, logits);
    max = checked_max(logits);
  }
  if (!std::isfinite(max)) return {.status = kSampleNotFinite};

  const auto best = static_cast<TokenId>(std::find(logits.begin(), logits.end(), max) - logits.begin());
  const double log_total = static_cast<double>(max) + std::log(exp_sum(logits, max, 1));
  const auto logprob = [&](TokenId token) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(token)]) - log_total);
  };
  if (alternatives && params.logprobs > 0) {
    const auto wanted =
        std::min({static_cast<size_t>(params.logprobs), static_cast<size_t>(kAlternatives), kept_.size()});
    std::iota(kept_.begin(), kept_.end(), 0);
    std::partial_sort(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(wanted), kept_.end(),
                      [&](TokenId a, TokenId b) {
                        const float la = logits[static_cast<size_t>(a)], lb = logits[static_cast<size_t>(b)];
                        return la > lb || (la == lb && a < b);
                      });
    for (size_t i = 0; i < wanted && logits[static_cast<size_t>(kept_[i])] > -kInfinity; ++i)
      alternatives[i] = {kept_[i], logprob(kept_[i])};
  }
  TokenId token = best;
  if (params.temperature > 0) {
    const bool all = !cut(params, logits, max);
    token = draw(params, logits, best, all);
  }
  return {.token = token, .logprob = logprob(token)};
}

}  // namespace quintet
