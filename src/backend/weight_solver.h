// GPTQ where the activations are: an optional part of a backend, so that the inputs of a layer, which are tens of gigabytes,
// never leave its device.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "quant/quantize.h"
#include "tensor/view.h"

namespace quintet {

/// What prepare_gptq() and quantize_gptq() do, for one set of inputs at a time: begin, add ..., moments, factor, quantize ....
/// The same formulas; sums are added in another order than the CPU's, so that where two codes are nearly as good the other one
/// may be taken. Belongs to the thread that owns the backend, which must outlive it.
class WeightSolver {
 public:
  virtual ~WeightSolver() = default;

  /// Forgets all inputs; those to come have k columns. no_room where the device has none for their Hessian, bad_input where
  /// they are more than it takes.
  virtual Status begin(int64_t k) = 0;
  /// Adds inputs x [rows, k] of the backend's activation type on its device, ordered behind the work issued so far; x may be
  /// overwritten by work that is issued later.
  virtual Status add(ConstMatrixView x) = 0;
  /// [k] the mean of x_j^2 over the inputs since begin(): not finite where an input was not. Waits.
  virtual Result<std::vector<float>> moments() = 0;
  /// After moments(). Returns the note of what had to be done differently (damping raised), usually empty; internal, by `name`,
  /// that of a weight, where the Hessian stays singular or its inputs are not finite.
  virtual Result<std::string> factor(std::string_view name, const GptqOptions& options) = 0;
  /// After factor(): as quantize_gptq(). The matrix's own moments are not looked at. Waits.
  virtual Result<QuantizedMatrix> quantize(const MatrixToQuantize& matrix, const IntegerFormat& format, double outlier_share) = 0;
};

}  // namespace quintet
