// Counts weights in bins, and finds how far codes reach.
#include "compress/weight_plot.h"

#include <algorithm>
#include <cmath>

namespace quintet {

WeightPlot plot_of(const MatrixToQuantize& matrix, const QuantizedMatrix& made, int32_t layer) {
  constexpr int kBins = 64, kMostOutliers = 200;
  constexpr int64_t kStretch = 128;
  WeightPlot plot{.layer = layer, .counts = std::vector<int64_t>(kBins)};
  const int64_t all = matrix.n * matrix.k;
  for (int64_t i = 0; i < all; ++i) plot.largest = std::max(plot.largest, std::abs(matrix.weights[i]));
  for (int64_t i = 0; i < all && plot.largest > 0; ++i)
    ++plot.counts[static_cast<size_t>(
        std::min(kBins - 1, static_cast<int>((matrix.weights[i] / plot.largest + 1) / 2 * kBins)))];
  HostWeight plain = made.view(matrix.name);
  plain.outliers = {};
  double reach = 0;
  int64_t stretches = 0;
  std::vector<float> row(static_cast<size_t>(matrix.k));
  for (int64_t r = 0; r < matrix.n; r += std::max<int64_t>(1, matrix.n / 64)) {
    decode_row(plain, r, row.data());
    for (int64_t begin = 0; begin < matrix.k; begin += kStretch, ++stretches) {
      float most = 0;
      for (int64_t i = begin; i < std::min(matrix.k, begin + kStretch); ++i) most = std::max(most, std::abs(row[static_cast<size_t>(i)]));
      reach += most;
    }
  }
  plot.reach = static_cast<float>(reach / static_cast<double>(std::max<int64_t>(1, stretches)));
  const size_t step = std::max<size_t>(1, made.outlier_column.size() / kMostOutliers);
  for (int64_t r = 0; r + 1 < static_cast<int64_t>(made.outlier_begin.size()); ++r)
    for (uint32_t i = made.outlier_begin[static_cast<size_t>(r)]; i < made.outlier_begin[static_cast<size_t>(r) + 1]; ++i)
      if (i % step == 0) plot.outliers.push_back(matrix.weights[r * matrix.k + made.outlier_column[i]]);
  return plot;
}

}  // namespace quintet
