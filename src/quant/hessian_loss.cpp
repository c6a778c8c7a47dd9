// What an output loses by the whole Hessian of its inputs.
#include <algorithm>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "quant/quantize.h"

namespace quintet {

double hessian_loss(const MatrixToQuantize& matrix, const QuantizedMatrix& quantized, const GptqInputs& inputs) {
  constexpr int64_t kRowsAtOnce = 16;  // read the factor once
  const int64_t k = matrix.k;
  QUINTET_CHECK(inputs.k == k, "tensor {}: {} inputs, and a Hessian of {}", matrix.name, k, inputs.k);
  const HostWeight made = quantized.view(matrix.name);
  std::vector<double> losses(static_cast<size_t>(matrix.n));  // added in order: the sum depends on no thread
  parallel_for((matrix.n + kRowsAtOnce - 1) / kRowsAtOnce, matrix.threads, [&](int64_t chunk) {
    const int64_t first = chunk * kRowsAtOnce, rows = std::min(kRowsAtOnce, matrix.n - first);
    std::vector<float> decoded(static_cast<size_t>(k)), errors(static_cast<size_t>(rows * k));
    for (int64_t r = 0; r < rows; ++r) {
      decode_row(made, first + r, decoded.data());
      for (int64_t i = 0; i < k; ++i) {
        const auto column = static_cast<size_t>(inputs.order[static_cast<size_t>(i)]);
        errors[static_cast<size_t>(r * k + i)] = matrix.weights[(first + r) * k + static_cast<int64_t>(column)] - decoded[column];
      }
    }
    // h = u^-1 u^-T, so e h e^T is the square of x with x u = e.
    for (int64_t i = 0; i < k; ++i) {
      const float* u = inputs.factor.data() + i * k;
      for (int64_t r = 0; r < rows; ++r) {
        float* e = errors.data() + r * k;
        const float x = e[i] / u[i];
        losses[static_cast<size_t>(first + r)] += static_cast<double>(x) * x;
        for (int64_t j = i + 1; j < k; ++j) e[j] -= x * u[j];
      }
    }
  });
  double sum = 0;
  for (const double loss : losses) sum += loss;
  return sum;
}

}  // namespace quintet
