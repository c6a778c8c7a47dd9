// A few rows in every format.
#include "compress/format_errors.h"

#include <algorithm>
#include <array>

#include "compress/encode_matrix.h"
#include "compress/sample_rows.h"
#include "compress/tensor_plan.h"

namespace quintet {
namespace {

using enum WeightFormat;

/// By bits. Of 8 bits two are enough: they lose some 300 times less than 4.
constexpr std::array kCandidates = {int3_g128, int3_g128_asym, int3_g64, int3_g64_asym, int3_g32, int3_g32_asym, int4_g128,
                                    int4_g128_asym, iq4_xs, int4_g64, int4_g64_asym, q4_0, iq4_nl, q4_k, q4_1, q5_0, q5_k, q5_1,
                                    q6_k, int8_g128, q8_0};

/// Rows of a tensor behave alike: 256 give errors to a few hundredths, and what is compared is the same rows in two formats.
constexpr int64_t kRows = 256;

}  // namespace

std::vector<WeightFormat> candidate_formats(int64_t k) {
  std::vector<WeightFormat> formats;
  for (WeightFormat format : kCandidates) {
    if (const auto integers = integer_format(format)) {
      const auto fitted = fit_group(*integers, k);
      if (!fitted) continue;
      format = *weight_format_of(*fitted);
    }
    if (k % format_info(format).block_weights == 0 && std::ranges::find(formats, format) == formats.end())
      formats.push_back(format);
  }
  return formats;
}

Result<std::vector<double>> format_errors(const HostWeight& weight, std::span<const WeightFormat> formats,
                                          const IntegerFormat& probe, const KnownInputs& inputs, int threads) {
  const int64_t rows = std::min(weight.n, kRows);
  TRY_ASSIGN(const std::vector<float> values, sample_rows(weight, rows));
  const MatrixToQuantize matrix{.name = weight.name,
                                .n = rows,
                                .k = weight.k,
                                .weights = values.data(),
                                .moments = inputs.moments,
                                .threads = threads};
  double gptq_saves = 1;  // to nearest over GPTQ
  if (inputs.gptq) {
    const double gptq = hessian_loss(matrix, quantize_gptq(matrix, probe, *inputs.gptq, 0), *inputs.gptq);
    const double nearest = hessian_loss(matrix, quantize_outlier(matrix, probe, {.share = 0}), *inputs.gptq);
    if (gptq > 0) gptq_saves = std::max(1.0, nearest / gptq);
  }
  std::vector<double> errors;
  for (const WeightFormat format : formats) {
    const auto integers = integer_format(format);
    const QuantizedMatrix made = integers ? quantize_outlier(matrix, *integers, {.share = 0}) : encode_matrix(matrix, format);
    errors.push_back(output_error(matrix, made).lost * static_cast<double>(weight.n) / static_cast<double>(rows) *
                     (integers ? 1 : gptq_saves));
  }
  return errors;
}

}  // namespace quintet
