// INT4 in groups of 128 (or the largest that fits), or a format with scales of rows.
#include "model/on_load.h"

#include <array>
#include <utility>
#include <vector>

#include "base/parallel.h"

namespace quintet {
namespace {

constexpr double kOutlierShare = 0.001;

constexpr std::array<std::pair<std::string_view, OnLoad>, 6> kNames = {{{"none", OnLoad::none},
                                                                        {"rtn", OnLoad::rtn},
                                                                        {"outlier", OnLoad::outlier},
                                                                        {"nf4", OnLoad::nf4},
                                                                        {"fp8", OnLoad::fp8},
                                                                        {"int8", OnLoad::int8}}};

}  // namespace

std::optional<OnLoad> on_load_from_name(std::string_view name) {
  for (const auto& [known, method] : kNames)
    if (known == name) return method;
  return std::nullopt;
}

std::optional<WeightFormat> format_on_load(OnLoad method, WeightRole role, const HostWeight& weight) {
  const bool linear = role == WeightRole::linear || role == WeightRole::qkv || role == WeightRole::gate_up;
  if (method == OnLoad::none || !linear || weight.format > WeightFormat::bf16) return std::nullopt;
  if (method == OnLoad::rtn || method == OnLoad::outlier) {
    if (method == OnLoad::outlier && weight.k > 65536) return std::nullopt;
    for (const int group : {128, 64, 32})
      if (weight.k % group == 0) return weight_format_of({.bits = 4, .group = group});
    return std::nullopt;
  }
  const WeightFormat format = method == OnLoad::nf4   ? WeightFormat::nf4_dq
                              : method == OnLoad::fp8 ? WeightFormat::fp8
                                                      : WeightFormat::int8;
  if (weight.k % format_info(format).block_weights != 0) return std::nullopt;
  return format;
}

Result<QuantizedMatrix> compress_on_load(OnLoad method, WeightFormat format, const HostWeight& weight) {
  std::vector<float> values(static_cast<size_t>(weight.n * weight.k));
  parallel_for(weight.n, 0, [&](int64_t row) { decode_row(weight, row, values.data() + row * weight.k); });
  const MatrixToQuantize matrix{.name = weight.name, .n = weight.n, .k = weight.k, .weights = values.data()};
  TRY(check_weights(matrix));
  if (method == OnLoad::rtn) return quantize_rtn(matrix, *integer_format(format), Granularity::group);
  if (method == OnLoad::outlier)
    return quantize_outlier(matrix, *integer_format(format), {.share = kOutlierShare, .select = OutlierSelect::magnitude});
  return quantize_direct(matrix, format);
}

}  // namespace quintet
