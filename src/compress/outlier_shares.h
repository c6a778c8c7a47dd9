// How many outliers each tensor keeps, so that so many bytes of them save most of the outputs' error.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "quant/quantize.h"

namespace quintet {

/// By name: the share of a tensor's weights.
using TensorShares = std::map<std::string, double, std::less<>>;

/// Measures tensors one by one, then shares out the bytes. Errors of tensors are compared as shares of what
/// their outputs are (OutputError::relative), each tensor as good as another.
class ShareChooser {
 public:
  static constexpr double kMostShare = 0.01;  ///< of a tensor's weights that is tried

  explicit ShareChooser(OutlierSelect select) : select_(select) {}

  /// Tries shares from 0 to 1 % on `rows`, rows spread over the tensor of `all_rows`.
  void measure(const MatrixToQuantize& rows, int64_t all_rows, const IntegerFormat& format);
  /// Of all that were measured, together at most `bytes` of outliers.
  TensorShares choose(uint64_t bytes) const;

 private:
  struct Step {
    double share = 0, error = 0;
    uint64_t bytes = 0;
  };
  struct Tensor {
    std::string name;
    std::vector<Step> steps;  ///< each costs more and loses less than the one before, for less gain a byte
  };

  OutlierSelect select_;
  std::vector<Tensor> tensors_;
};

}  // namespace quintet
