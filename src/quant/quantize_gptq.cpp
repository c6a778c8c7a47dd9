// GPTQ: rounding column by column, errors made up for by the columns behind.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "quant/products.h"
#include "quant/quantize_rows.h"

namespace quintet {
namespace {

constexpr int64_t kBlockColumns = 128;  // errors are carried to the columns behind a block at its end
constexpr int64_t kRowsAtOnce = 48;
constexpr double kMostDamping = 10;

/// Of the upper half.
bool is_finite(const FloatMatrix& m) {
  for (int64_t i = 0; i < m.rows; ++i)
    for (int64_t j = i; j < m.cols; ++j)
      if (!std::isfinite(m.row(i)[j])) return false;
  return true;
}

/// A few rows of weights on their way through the columns.
class RowBlock {
 public:
  RowBlock(const MatrixToQuantize& matrix, const IntegerFormat& format, const GptqInputs& inputs,
           const OutlierChoice& choice, int64_t first, int64_t rows)
      : format_(format),
        inputs_(inputs),
        choice_(choice),
        first_(first),
        rows_(rows),
        k_(matrix.k),
        weights_(static_cast<size_t>(rows * matrix.k)),
        codes_(weights_.size()),
        errors_(static_cast<size_t>(kBlockColumns * rows)) {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t i = 0; i < k_; ++i)
        weights_[static_cast<size_t>(r * k_ + i)] =
            matrix.weights[(first + r) * k_ + inputs.order[static_cast<size_t>(i)]];
  }

  void run() {
    for (int64_t begin = 0; begin < k_; begin += kBlockColumns) {
      const int64_t count = std::min(kBlockColumns, k_ - begin), end = begin + count;
      std::fill(errors_.begin(), errors_.end(), 0.0f);
      for (int64_t i = begin; i < end; ++i)
        for (int64_t r = 0; r < rows_; ++r) round_one(r, i, begin, end);
      if (end == k_) break;
      float* u = const_cast<float*>(inputs_.factor.data());  // read alone
      add_product({errors_.data(), count, rows_, rows_}, {u + begin * k_ + end, count, k_ - end, k_}, -1,
                  false, 1, {weights_.data() + end, rows_, k_ - end, k_});
    }
  }

  const uint8_t* codes(int64_t r) const { return codes_.data() + r * k_; }
  /// The weight as the columns before it have changed it, when its turn came.
  float weight(int64_t r, int64_t i) const { return weights_[static_cast<size_t>(r * k_ + i)]; }

 private:
  void round_one(int64_t r, int64_t i, int64_t begin, int64_t end) {
    const int64_t column = inputs_.order[static_cast<size_t>(i)];
    const IntegerRange& range =
        choice_.ranges[static_cast<size_t>((first_ + r) * (k_ / format_.group) + column / format_.group)];
    float* w = weights_.data() + r * k_;
    const int code = nearest_code(format_, range, w[i]);
    codes_[static_cast<size_t>(r * k_ + column)] = static_cast<uint8_t>(code);
    const uint8_t* kept = choice_.kept_row(first_ + r, k_);
    if (kept && !kept[column]) return;  // kept in FP16: no error worth carrying
    const float* u = inputs_.factor.data() + i * k_;
    const float error = (w[i] - value_of(format_, range, code)) / u[i];
    errors_[static_cast<size_t>((i - begin) * rows_ + r)] = error;
    for (int64_t j = i + 1; j < end; ++j) w[j] -= error * u[j];
  }

  const IntegerFormat& format_;
  const GptqInputs& inputs_;
  const OutlierChoice& choice_;
  int64_t first_, rows_, k_;
  std::vector<float> weights_;  ///< [rows, k] in order
  std::vector<uint8_t> codes_;  ///< [rows, k] in the matrix's own order
  std::vector<float> errors_;   ///< [columns of a block, rows]
};

}  // namespace

Result<InputOrder> order_inputs(std::string_view name, std::span<const float> moments, bool act_order) {
  InputOrder made{.order = std::vector<int64_t>(moments.size())};
  for (const float moment : moments) made.mean += static_cast<double>(moment) / static_cast<double>(moments.size());
  if (!(made.mean >= 0) || !std::isfinite(made.mean))
    return internal_error(fmt::format("tensor {}: its calibration inputs are not finite", name));
  if (made.mean == 0) made.mean = 1;  // no input ever came: every direction counts alike
  std::iota(made.order.begin(), made.order.end(), int64_t{0});
  if (act_order)
    std::stable_sort(made.order.begin(), made.order.end(), [&](int64_t a, int64_t b) {
      return moments[static_cast<size_t>(a)] > moments[static_cast<size_t>(b)];
    });
  return made;
}

Result<std::string> damp_until_regular(std::string_view name, double least, const std::function<Result<bool>(double)>& factors) {
  double damping = least;
  for (;; damping = std::max(damping * 10, 1e-4)) {
    if (damping > kMostDamping) return internal_error(fmt::format("tensor {}: the Hessian of its inputs stays singular", name));
    TRY_ASSIGN(const bool regular, factors(damping));
    if (regular) break;
  }
  if (damping == least) return std::string();
  return fmt::format("damping raised from {:g} to {:g}: the Hessian was singular", least, damping);
}

Result<GptqInputs> prepare_gptq(std::string_view name, int64_t k, std::vector<float> hessian, const GptqOptions& options,
                                int threads) {
  QUINTET_CHECK(static_cast<int64_t>(hessian.size()) == k * k, "tensor {}: a Hessian of {} entries", name,
                hessian.size());
  GptqInputs made{.k = k, .moments = std::vector<float>(static_cast<size_t>(k))};
  const FloatMatrix h{hessian.data(), k, k, k};
  for (int64_t i = 0; i < k; ++i) made.moments[static_cast<size_t>(i)] = h.row(i)[i];
  TRY_ASSIGN(InputOrder inputs, order_inputs(name, made.moments, options.act_order));
  made.order = std::move(inputs.order);

  // In reversed order, so that the inverse of its factor, turned about, is u itself: h = r^T r of the reversed matrix
  // gives h^-1 = (J r^-1 J)(J r^-T J), and J r^-T J is upper triangular. The lower half keeps the matrix for another try.
  const std::vector<int64_t> reversed(made.order.rbegin(), made.order.rend());
  permute_both(h, reversed, threads);
  TRY_ASSIGN(made.note, damp_until_regular(name, options.damping, [&](double damping) -> Result<bool> {
    mirror(h, false, threads);
    for (int64_t i = 0; i < k; ++i)
      h.row(i)[i] =
          made.moments[static_cast<size_t>(reversed[static_cast<size_t>(i)])] + static_cast<float>(damping * inputs.mean);
    if (!cholesky(h, threads)) return false;
    invert_upper(h, threads);
    return is_finite(h);
  }));
  // J y^T J: the upper half turned about its other diagonal.
  for (int64_t i = 0; i < k; ++i)
    for (int64_t j = i; i + j < k - 1; ++j) std::swap(h.row(i)[j], h.row(k - 1 - j)[k - 1 - i]);
  made.factor = std::move(hessian);
  return made;
}

QuantizedMatrix quantize_gptq(const MatrixToQuantize& matrix, const IntegerFormat& format, const GptqInputs& inputs,
                              double outlier_share) {
  const int64_t k = matrix.k;
  QUINTET_CHECK(inputs.k == k, "tensor {}: {} inputs, and a Hessian of {}", matrix.name, k, inputs.k);
  MatrixToQuantize weighted = matrix;
  weighted.moments = inputs.moments;
  const OutlierChoice choice = choose_outliers(weighted, format, outlier_share);

  RowWriter writer(matrix, format);
  std::vector<float> changed(choice.kept.empty() ? 0 : static_cast<size_t>(matrix.n * k));
  parallel_for((matrix.n + kRowsAtOnce - 1) / kRowsAtOnce, matrix.threads, [&](int64_t index) {
    const int64_t first = index * kRowsAtOnce, rows = std::min(kRowsAtOnce, matrix.n - first);
    RowBlock block(matrix, format, inputs, choice, first, rows);
    block.run();
    for (int64_t r = 0; r < rows; ++r) {
      writer.write(first + r, choice.ranges.data() + (first + r) * (k / format.group), block.codes(r));
      if (changed.empty()) continue;
      for (int64_t i = 0; i < k; ++i)
        changed[static_cast<size_t>((first + r) * k + inputs.order[static_cast<size_t>(i)])] = block.weight(r, i);
    }
  });
  QuantizedMatrix quantized = writer.finish();
  add_outliers(choice, quantized, changed.data(), matrix.threads);
  quantized.note = inputs.note;
  return quantized;
}

}  // namespace quintet
