// Methods that compress a weight matrix into the project's integer formats, with or without outliers kept
// apart.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/host_weight.h"
#include "quant/integer_format.h"

namespace quintet {

/// A matrix [n, k] to compress, and what is known of its inputs.
struct MatrixToQuantize {
  std::string_view name;
  int64_t n = 0, k = 0;
  const float* weights = nullptr;  ///< [n, k], finite
  std::span<const float> moments;  ///< [k] mean of x_j^2 over calibration inputs; empty: unknown
  int threads = 0;                 ///< 0: one a core
  int64_t first_row = 0;           ///< of these rows in the whole matrix, for errors
};

/// The compressed form; owns its bytes.
struct QuantizedMatrix {
  WeightFormat format = WeightFormat::int4_g128;
  int64_t n = 0, k = 0;
  std::vector<uint8_t> blocks;           ///< [n][k / group] blocks
  std::vector<uint32_t> outlier_begin;   ///< [n + 1]; empty: no outliers
  std::vector<uint16_t> outlier_column;  ///< [outliers]
  std::vector<uint16_t> outlier_value;   ///< [outliers] f16 bits
  std::vector<float> row_scales;         ///< [n] of formats that have them
  std::vector<int32_t> in_perm;          ///< [k] as in HostWeight; empty: none
  std::string note;  ///< what the method had to do differently (damping raised, ...); usually empty

  HostWeight view(std::string_view name) const;
};

enum class Granularity : uint8_t { tensor, channel, group };

/// Plain rounding to nearest. Under one scale: the matrix, a row, or a group (the scale is written with each
/// group in any case, so the bytes are those of the group's format).
QuantizedMatrix quantize_rtn(const MatrixToQuantize& matrix, const IntegerFormat& format,
                             Granularity granularity);

/// Rounding to nearest into a format without groups of integers: nf4 and nf4_dq (Dettmers et al., "QLoRA", 2023: blocks
/// of 64 under their absolute maximum, whose double quantization here is 8 bits under one scale a row), fp8 (E4M3) and
/// int8, both under one scale a row that its largest weight fills.
QuantizedMatrix quantize_direct(const MatrixToQuantize& matrix, WeightFormat format);
/// Whether quantize_direct() makes it.
bool is_direct_format(WeightFormat format);

enum class OutlierSelect : uint8_t {
  magnitude,   ///< the largest weights; ranges cover the rest
  activation,  ///< by weighted rounding error and by what their group's range gains; ranges searched
};

struct OutlierOptions {
  double share = 0.001;  ///< of the matrix's weights that are kept in FP16
  OutlierSelect select = OutlierSelect::activation;
};

/// Rounding to nearest with the weights that are worth most kept apart in FP16 and left out of their groups'
/// ranges. magnitude: no calibration. activation: three rounds; each searches every group's range for the
/// least error weighted by the inputs' second moments, then adds the next third of the outliers: those with
/// the largest moment * error^2, to which the largest weight of a group adds g * mean moment * (s1^2 - s2^2)
/// / 12, the drop of the group's expected rounding error when its step falls from s1 to s2 without it.
/// Without moments they count as 1. share 0 leaves the search alone.
QuantizedMatrix quantize_outlier(const MatrixToQuantize& matrix, const IntegerFormat& format,
                                 const OutlierOptions& options);

/// Rows of a matrix [n, k] that are made when they are needed.
struct RowsToRead {
  int64_t n = 0, k = 0;
  /// Rows [first, first + count) into out [count, k]; called from several threads at once.
  std::function<void(int64_t first, int64_t count, float* out)> read;
};

/// The share of a matrix's weights that is largest, of equal ones the first; found without a copy of the matrix.
class LargestWeights {
 public:
  static LargestWeights find(const RowsToRead& rows, double share, int threads);
  bool empty() const { return equals_.empty(); }
  /// kept [k]: 0 for those of a row.
  void mark(int64_t row, std::span<const float> values, uint8_t* kept) const;

 private:
  uint32_t key_ = 0;              ///< of the least of them
  std::vector<uint32_t> equals_;  ///< how many with this key each row gives
};

/// As quantize_outlier(magnitude), some rows at a time: `largest` are those of the whole matrix, in which these rows begin with
/// first_row.
QuantizedMatrix quantize_without(const MatrixToQuantize& matrix, const IntegerFormat& format, const LargestWeights& largest);

/// AWQ's scales s [k] for the inputs of weights (quant/quantize_awq.cpp): s_j = (sizes_j / mean)^(a / 2) about 1, a the
/// twentieth of 1 for which rounding s_j w_j in searched ranges loses least of the output, by the rows' moments. `sizes` [k]
/// are second moments, too: those of the rows, or what several inputs have in common.
std::vector<float> search_input_scales(const MatrixToQuantize& rows, const IntegerFormat& format,
                                       std::span<const float> sizes);

struct GptqOptions {
  double damping =
      0.01;  ///< added to the Hessian's diagonal, of its mean; raised tenfold while it is singular
  bool act_order = true;  ///< columns with the largest second moments first; groups stay where they are
};

/// In which order columns are rounded, and what damping is a share of.
struct InputOrder {
  std::vector<int64_t> order;  ///< [k] columns, the first to be rounded first
  double mean = 0;             ///< of the moments; 1 where all are 0
};
/// `moments` [k]: the Hessian's diagonal. internal, by the name of a weight, where they are no numbers.
Result<InputOrder> order_inputs(std::string_view name, std::span<const float> moments, bool act_order);

/// Calls `factors(damping)` with `least`, then with ten times more and more, until it says true: that the Hessian with this
/// share of its mean on the diagonal was positive definite. The note of what was raised, or nothing; internal where the Hessian
/// stays singular.
Result<std::string> damp_until_regular(std::string_view name, double least, const std::function<Result<bool>(double)>& factors);

/// What GPTQ knows of inputs, made once for all weights that share them.
struct GptqInputs {
  int64_t k = 0;
  std::vector<float> moments;  ///< [k] the Hessian's diagonal
  std::vector<int64_t> order;  ///< [k] in which columns are rounded
  /// [k, k], upper half: u with h^-1 = u^T u, rows and columns in that order. Row i says how the error of column i is
  /// made up for. The lower half holds nothing of use.
  std::vector<float> factor;
  std::string note;  ///< that damping was raised; usually empty
};

/// Takes the Hessian [k, k], the mean of x_i x_j, and factors it where it lies: nothing else of its size is needed.
/// `name` is that of a weight, for errors: internal where the Hessian stays singular.
Result<GptqInputs> prepare_gptq(std::string_view name, int64_t k, std::vector<float> hessian, const GptqOptions& options,
                                int threads);

/// Frantar et al., "GPTQ" (2022): columns one after the other, the error of each made up for by those behind
/// it. Ranges are fixed beforehand, searched with the Hessian's diagonal as weights, so act-order needs no
/// permutation of the inputs. `outlier_share` of the weights is kept apart as by quantize_outlier(activation).
QuantizedMatrix quantize_gptq(const MatrixToQuantize& matrix, const IntegerFormat& format, const GptqInputs& inputs,
                              double outlier_share);

/// Sum over rows of e H e^T with e the difference of both forms, H the damped Hessian that `inputs` has the factor of: what a
/// matrix's output loses on the calibration inputs.
double hessian_loss(const MatrixToQuantize& matrix, const QuantizedMatrix& quantized, const GptqInputs& inputs);

/// bad_input, named by tensor and row, where a value is NaN, infinite or too large for a scale in FP16.
Status check_weights(const MatrixToQuantize& matrix);

/// Sums over rows of e H e^T and w H w^T with e the difference of both forms, H the moments' diagonal (1 where unknown):
/// what a matrix's output loses, as far as its inputs are uncorrelated, and what it has.
struct OutputError {
  double lost = 0, had = 0;
  double relative() const { return had > 0 ? lost / had : 0; }
};
OutputError output_error(const MatrixToQuantize& matrix, const QuantizedMatrix& quantized);
/// The same of each row.
void errors_of_rows(const MatrixToQuantize& matrix, const QuantizedMatrix& quantized, std::span<OutputError> rows);

/// Puts the rows of another matrix of the same format and width below those of `to`; an empty `to` becomes them.
void append_rows(QuantizedMatrix& to, QuantizedMatrix&& rows);
/// The same of all but the blocks and the number of rows, which are there already.
void append_side_data(QuantizedMatrix& to, const QuantizedMatrix& rows);

}  // namespace quintet
