// From a row of logits to a token: the one definition of sampling, which every backend follows (host backends
// call it).
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/step_view.h"

namespace quintet {

/// Entries of SampleArgs::alternatives for one row.
inline constexpr int kAlternatives = 20;

/// Philox4x32-10 (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011).
std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter, std::array<uint32_t, 2> key);

/// The 32 random bits of `token` when the token at `position` is drawn under `seed`:
/// word (token & 3) of philox4x32({token >> 2, low(position), high(position), 0}, {low(seed), high(seed)}).
uint32_t sample_noise(uint64_t seed, int64_t position, TokenId token);

/// Samples rows. The transforms, in this order:
///   1. repeat penalty, for each distinct token of the history: l > 0 ? l / r : l * r;
///   2. l -= count * frequency_penalty + presence_penalty, for the same tokens;
///   3. l += bias;
///   4. tokens that the mask forbids become -Inf;
///      (log-probabilities, and the alternatives, are those of the logits as they are here)
///   5. temperature 0: the largest logit, of equal ones the lowest id, is the token. Otherwise l /
///   temperature;
///   6. top_k: the k largest stay, of equal ones the lower ids;
///   7. top_p: of these, in that order, the fewest whose probabilities (among those that stayed) reach top_p;
///   8. min_p: of these, those at least min_p times as probable as the most probable one;
///   9. Gumbel-max: the token that maximises l / temperature + g, of equal ones the lowest id, where
///      g = -log(-log(u)), u = (sample_noise + 0.5) / 2^32, in double.
/// The noise of a token depends on (seed, position, token) alone, so a device may take the maximum in any
/// order and the cuts in any way that keeps the same set.
///
/// Owns scratch for one vocabulary, so that sampling allocates nothing. One thread at a time.
class RowSampler {
 public:
  explicit RowSampler(int32_t vocabulary);
  int32_t vocabulary() const { return static_cast<int32_t>(count_.size()); }

  /// Samples logit row `row` of `step` from `logits` [vocabulary], which it changes. `alternatives` is null
  /// or [kAlternatives]: entries beyond step.sample[row].logprobs get token -1. A NaN or +Inf logit, or no
  /// token that is allowed, gives kSampleNotFinite and token 0. `own_token`: what -1 in the history means.
  Sampled sample(const StepView& step, int32_t row, std::span<float> logits, Alternative* alternatives, TokenId own_token = -1);

 private:
  void penalize(const StepView& step, const SampleParams& params, TokenId own_token, std::span<float> logits);
  /// Fills kept_ with the tokens that survive the cuts, by falling logit; false: no cut applies, every token
  /// stays.
  bool cut(const SampleParams& params, std::span<const float> logits, float max);
  TokenId draw(const SampleParams& params, std::span<const float> logits, TokenId best, bool all) const;

  std::vector<int32_t> count_;  ///< [vocabulary] zero between calls
  std::vector<TokenId> kept_;   ///< [vocabulary] scratch
  size_t kept_size_ = 0;
};

}  // namespace quintet
