// Vector code of the encoders: scales of groups, 16 groups side by side, and codes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/cpu_simd.h"

namespace quintet {

inline constexpr size_t kGroupLanes = 16;
inline constexpr size_t kMostGroupValues = 32;

/// 16 groups of `count` values, one a lane: value i of group g lies at [i][g].
struct GroupBatch {
  size_t count = 0;
  alignas(64) float x[kMostGroupValues][kGroupLanes];
  alignas(64) float weight[kMostGroupValues][kGroupLanes];  ///< how much an error counts, 0 and more
};

/// Groups of `count` values one after the other, to be rounded to (x - minimum) * inverse.
struct GroupCodes {
  const float* x = nullptr;        ///< [groups * count]
  size_t groups = 0, count = 0;    ///< count: 16 or 32
  const float* inverse = nullptr;  ///< [groups] of the scale; 0 where that is 0
  const float* minimum = nullptr;  ///< [groups]; null: 0
  int low = 0, high = 0;           ///< range of the codes, which are written from 0 on
  uint8_t* codes = nullptr;        ///< [groups * count]
};

/// What the 16 groups' codes stand for: scale * code, scale * code + minimum, scale * level of IQ4.
enum class Grid : uint8_t { symmetric, line, levels };

/// The groups' scales (and minima, of which the value is taken off) as whole numbers.
struct WholeScales {
  alignas(64) std::array<float, kGroupLanes> scale{}, minimum{};
};

/// How those become scales, and what they may be.
struct SettleRequest {
  Grid grid = Grid::symmetric;
  int low = 0, high = 0;                                   ///< range of the codes
  int size_low = 0, size_high = 0;                         ///< range of the whole scales and minima
  alignas(64) std::array<float, kGroupLanes> d{}, dmin{};  ///< of each group's block
};

/// Sums of weight times these, group by group; q: what codes stand for under a scale of 1.
struct CodeSums {
  alignas(64) std::array<float, kGroupLanes> one{}, x{}, q{}, xq{}, qq{};
};

/// No sum is fused and none crosses lanes: all targets give the same bits.
struct GroupKernels {
  /// The scale s with the least error of s * q, q in [low, high]. It may be negative: the largest value gets
  /// a code near low, the end where there may be one more.
  void (*fit_symmetric)(const GroupBatch& batch, int low, int high, float* scales);
  /// The line s * q + m with the least error, q in [0, high]; m at most 0 where `negative_minimum` says so.
  void (*fit_line)(const GroupBatch& batch, int high, bool negative_minimum, float* scales, float* minima);
  /// As fit_symmetric, with the 16 levels of IQ4.
  void (*fit_levels)(const GroupBatch& batch, float* scales);
  /// Of the whole scales and minima beside `wholes`, the ones whose error is least once codes are rounded to
  /// them; leaves them in place and gives the sums that a fit of d and dmin to those codes takes.
  void (*settle)(const GroupBatch& batch, const SettleRequest& request, WholeScales& wholes, CodeSums& sums);
  void (*round)(const GroupCodes& args);
  /// The nearest of the 16 levels of IQ4; `low` and `high` are not read.
  void (*round_levels)(const GroupCodes& args);
};

const GroupKernels& group_kernels(CpuSimd simd);

}  // namespace quintet
