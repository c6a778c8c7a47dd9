// AWQ's search for the scales of a weight's inputs.
#include <algorithm>
#include <cmath>

#include "base/parallel.h"
#include "quant/quantize_rows.h"
#include "quant/row_kernels.h"

namespace quintet {
namespace {

constexpr int kExponents = 20;
constexpr float kLeastSize = 1e-6f;  // of the mean: inputs that never come

std::vector<float> scales_of(std::span<const float> moments, float exponent) {
  double mean = 0;
  for (const float moment : moments) mean += moment;
  mean /= static_cast<double>(moments.size());
  std::vector<float> scales(moments.size(), 1.0f);
  if (!(mean > 0)) return scales;
  float least = INFINITY, largest = 0;
  for (size_t i = 0; i < scales.size(); ++i) {
    const float size = std::sqrt(std::max(static_cast<float>(moments[i] / mean), kLeastSize));
    scales[i] = std::pow(size, exponent);
    least = std::min(least, scales[i]);
    largest = std::max(largest, scales[i]);
  }
  const float middle = std::sqrt(least * largest);
  for (float& scale : scales) scale /= middle;
  return scales;
}

/// What a row loses when its scaled form is rounded, inputs taken as uncorrelated.
double row_error(const float* row, const MatrixToQuantize& matrix, const IntegerFormat& format,
                 const std::vector<float>& scales) {
  const auto k = static_cast<size_t>(matrix.k), groups = k / static_cast<size_t>(format.group);
  std::vector<float> values(k), weights(k), decoded(k);
  for (size_t i = 0; i < k; ++i) {
    values[i] = row[i] * scales[i];
    weights[i] = matrix.moments[i] / (scales[i] * scales[i]);
  }
  const RowKernels& kernels = row_kernels();
  const RowGroups of{.format = format, .groups = groups, .values = values.data(), .weights = weights.data()};
  std::vector<Extent> extents(groups);
  std::vector<IntegerRange> ranges(groups);
  std::vector<uint8_t> codes(k);
  kernels.extents(of, extents.data());
  kernels.search(of, extents.data(), ranges.data());
  kernels.round(of, ranges.data(), codes.data());
  kernels.decode(format, codes.data(), groups, ranges.data(), decoded.data());
  double sum = 0;
  for (size_t i = 0; i < k; ++i) {
    const float error = values[i] - decoded[i];
    sum += static_cast<double>(weights[i]) * error * error;
  }
  return sum;
}

}  // namespace

std::vector<float> search_input_scales(const MatrixToQuantize& rows, const IntegerFormat& format,
                                       std::span<const float> sizes) {
  std::vector<float> best;
  double least = INFINITY;
  for (int step = 0; step <= kExponents; ++step) {
    std::vector<float> scales = scales_of(sizes, static_cast<float>(step) / kExponents);
    std::vector<double> errors(static_cast<size_t>(rows.n));
    parallel_for(rows.n, rows.threads, [&](int64_t row) {
      errors[static_cast<size_t>(row)] = row_error(rows.weights + row * rows.k, rows, format, scales);
    });
    double error = 0;
    for (const double of_row : errors) error += of_row;
    if (error < least) least = error, best = std::move(scales);
  }
  return best.empty() ? std::vector<float>(static_cast<size_t>(rows.k), 1.0f) : best;
}

}  // namespace quintet
