// GPTQ on the device: the Hessian of one set of inputs, its factor, and weights rounded with it. kernels/gptq.h has the
// mathematics; host memory and formats are weight_solver.cpp's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "backend/cuda/cublas.h"
#include "backend/cuda/kernels/gptq.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/cuda/rt/status.h"
#include "quant/quantize.h"

namespace quintet::cuda {

/// Device memory that grows as it is asked to; what it held is lost then.
class GrowingBuffer {
 public:
  /// no_room names the bytes asked for.
  Status reserve(size_t bytes);
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }
  size_t bytes() const { return bytes_; }

 private:
  Handle<void*, cudaFree> memory_;
  size_t bytes_ = 0;
};

/// The rules that kernels take for a format.
IntegerRules rules_of(const IntegerFormat& format);

/// All matrices are the device's and row-major; all work goes to the site's stream, and only what says so waits for it.
class Gptq {
 public:
  /// `library` must have been opened for the site's stream.
  Gptq(const GptqKernels& kernels, const LaunchSite& site, Cublas library);

  /// Forgets all inputs; those to come have k columns: bad_input beyond 65535.
  Status begin(int64_t k);
  /// Adds inputs x [rows, k] f16, `stride` elements apart.
  Status add(const void* x, int64_t rows, int64_t stride);
  /// [k] the mean of x_j^2 over the inputs since begin(). Waits.
  Result<std::vector<float>> moments();
  /// After moments(): factors the Hessian; the note of what was done differently, usually empty. `name` is that of a weight, for
  /// errors. Waits. The inputs' sums stay as they are.
  Result<std::string> factor(std::string_view name, const GptqOptions& options);

  /// Of a matrix whose inputs these are.
  struct Matrix {
    float* weights = nullptr;  ///< [n, k]; outliers are replaced by what stood at their turn
    int64_t n = 0;
    IntegerRules rules;
    uint8_t* kept = nullptr;   ///< [n, k] 0: an outlier; null: none
    float2* ranges = nullptr;  ///< [n, k / group] scale, minimum
    uint8_t* codes = nullptr;  ///< [n, k], written
  };
  /// Fills in the ranges of what is kept.
  Status find_ranges(const Matrix& matrix);
  /// Fills in `kept` and the ranges: `share` of the weights become outliers, those that quantize_outlier() would choose by
  /// activation. Waits.
  Status choose_outliers(const Matrix& matrix, double share);
  /// Fills in the codes, ranges and outliers given.
  Status round(const Matrix& matrix);

  int64_t k() const { return k_; }
  /// [k] of the last moments().
  const std::vector<float>& known_moments() const { return moments_; }
  /// Device memory that is held.
  size_t bytes() const;

 private:
  Status add_products(const void* x, int64_t rows, int64_t stride);
  Status flush();
  RangesParams ranges_of(const Matrix& matrix) const;
  Status take_best(const Matrix& matrix, int64_t count);
  Result<bool> factors(double damping, double mean);
  Status factor_panel(int64_t begin, int64_t end);

  const GptqKernels& kernels_;
  LaunchSite site_;
  Cublas library_;
  int64_t k_ = 0, rows_ = 0, staged_rows_ = 0;
  std::vector<float> moments_;
  GrowingBuffer hessian_;  ///< [k, k] upper half: sums of x_i x_j
  GrowingBuffer staged_;   ///< [kStagedRows, k] inputs that are not in the Hessian yet
  GrowingBuffer factor_;   ///< [k, k] upper half: m of kernels/gptq.h
  GrowingBuffer vectors_;  ///< moments [k], order [k], a flag
  GrowingBuffer sums_;     ///< [n, k] of rounding; before, scores of outliers
  GrowingBuffer counts_;   ///< of scores
  GrowingBuffer lost_;     ///< [n, kOuterColumns]
};

}  // namespace quintet::cuda
