// The kernels of GPTQ and their parameters (the products between them are the vendor library's).
//
// The factor. h is the Hessian with rows and columns in reversed order of rounding, h = r^T r with r upper triangular, and
// m = r with every row divided by its diagonal. Then the output's squared error is the sum over columns a of
// (r[a][a] * (d[a] + sum over b > a of m[a][b] * d[b]))^2 with d = weight - rounded, so going from the last column to the
// first, column a is rounded at weight[a] + sum over b > a of m[a][b] * d[b]. These are the numbers of Frantar et al., "GPTQ"
// (2022), whose u is the inverse of r turned about; nothing is inverted here, which saves half of the factor's work.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace quintet::cuda {

struct LaunchSite;

inline constexpr int kFactorBlock = 64;    ///< rows that one block of threads factors, and that are solved for in registers
inline constexpr int kRoundColumns = 128;  ///< columns that one launch rounds
inline constexpr int kScoreCounts = 1 << 16;

/// What rounding needs of an IntegerFormat.
struct IntegerRules {
  int group = 128;
  int offset = 8;  ///< code of the value 0 where symmetric, else 0
  int most = 15;   ///< largest code
  bool minimum = false, whole_zero = false;
};

/// out [k, k] upper half: scale * hessian[order[a]][order[b]] of an upper half. grid: x = chunks of 256 columns, y = rows.
struct ArrangeParams {
  const float* hessian;
  const int32_t* order;  ///< [k]
  int k;
  float scale;
  float* out;
};

/// out [k]: the diagonal times scale; or the other way round: the diagonal of `matrix` becomes from[order[i]] + add.
struct DiagonalParams {
  float* matrix;  ///< [k, k]
  int k;
  float scale;
  float* out;  ///< [k]; null: set
  const float* from;
  const int32_t* order;
  float add;
};

/// Rows [at, at + rows) of the factor, at most kFactorBlock; `matrix` [k, k] holds what earlier rows have left of it.
struct FactorParams {
  float* matrix;
  int k, at, rows;
  int* failed;  ///< set to 1 where a pivot is not positive and finite
};

/// Range of each group of weights [n, k], searched as quant/integer_range.h does, to the same bits; or what each weight would
/// be worth as an outlier.
struct RangesParams {
  const float* weights;
  const float* moments;  ///< [k]
  const uint8_t* kept;   ///< [n, k] 0: an outlier, left out; null: none
  int n, k;
  IntegerRules rules;
  float2* ranges;  ///< [n, groups] scale, minimum
  float* scores;   ///< [n, k]
};

/// The choice of the largest scores: the threshold is found by counting, upper halves of keys first.
struct ScoresParams {
  const float* scores;  ///< [n, k]
  int n, k;
  int upper;  ///< -1: count upper halves, else lower ones below this upper half
  uint32_t threshold;
  uint32_t* counts;  ///< [65536], or [n] by rows
  uint8_t* kept;     ///< [n, k]; null: count by rows
};

/// Rounds columns [begin, begin + columns) in reversed order of all rows, the last column first.
struct RoundParams {
  float* weights;        ///< [n, k] in the matrix's own order
  const uint8_t* kept;   ///< [n, k] or null; 0: an outlier, whose weight as it stood at its turn replaces it in `weights`
  const float2* ranges;  ///< [n, k / group]
  const int32_t* order;  ///< [k] the matrix's column of each reversed one
  const float* factor;   ///< [k, k] m above
  float* sums;           ///< [n, k] what columns behind have added so far, in reversed order; those of earlier launches
  float* lost;           ///< [n, lost_stride] d of these columns goes to lost[row][lost_begin + i]
  uint8_t* codes;        ///< [n, k] in the matrix's own order
  int n, k, begin, columns;
  int lost_stride, lost_begin;
  IntegerRules rules;
};

struct GptqKernels {
  cudaError_t (*arrange)(const ArrangeParams&, const LaunchSite&);
  cudaError_t (*diagonal)(const DiagonalParams&, const LaunchSite&);
  cudaError_t (*factor_block)(const FactorParams&, const LaunchSite&);
  /// The same rows to the right of the block: r^-T times what they hold.
  cudaError_t (*solve_block)(const FactorParams&, const LaunchSite&);
  /// Divides every row of the upper half by its diagonal, which becomes 1.
  cudaError_t (*unit_rows)(float* matrix, int k, const LaunchSite&);
  cudaError_t (*ranges)(const RangesParams&, const LaunchSite&);
  cudaError_t (*scores)(const RangesParams&, const LaunchSite&);
  cudaError_t (*count_scores)(const ScoresParams&, const LaunchSite&);
  cudaError_t (*take_scores)(const ScoresParams&, const LaunchSite&);
  cudaError_t (*round)(const RoundParams&, const LaunchSite&);
};

namespace hopper {
const GptqKernels& gptq_kernels();
}
namespace sm80 {
const GptqKernels& gptq_kernels();
}

}  // namespace quintet::cuda
