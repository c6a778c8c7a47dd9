// Outliers of a matrix: checked, and added to its rows.
#include "quant/host_weight.h"

#include <fmt/format.h>

#include <cmath>

namespace quintet {

Status check_outliers(const HostWeight& weight) {
  const Outliers& outliers = weight.outliers;
  if (outliers.empty()) return {};
  const auto fault = [&](std::string_view what, std::string_view found, std::string_view allowed) {
    return bad_input(
        fmt::format("tensor {}: outliers: {}: found {}, allowed are {}", weight.name, what, found, allowed));
  };
  const uint64_t entries = outliers.columns.size() / 2;
  if (outliers.row_begin.size() != 4 * static_cast<uint64_t>(weight.n + 1))
    return fault("rows", fmt::format("{} bytes", outliers.row_begin.size()),
                 fmt::format("{} for {} rows", 4 * (weight.n + 1), weight.n));
  if (outliers.values.size() != outliers.columns.size())
    return fault("values", fmt::format("{} bytes", outliers.values.size()),
                 fmt::format("{}", outliers.columns.size()));
  for (int64_t row = 0; row < weight.n; ++row) {
    const uint32_t begin = outliers.first_of(row), end = outliers.first_of(row + 1);
    if (begin > end || end > entries)
      return fault(fmt::format("row {}", row), fmt::format("entries {} to {}", begin, end),
                   fmt::format("ascending ones up to {}", entries));
    for (uint32_t i = begin; i < end; ++i) {
      if (outliers.column(i) >= weight.k || (i > begin && outliers.column(i) <= outliers.column(i - 1)))
        return fault(fmt::format("row {}", row), fmt::format("column {}", outliers.column(i)),
                     fmt::format("ascending ones below {}", weight.k));
      if (!std::isfinite(outliers.value(i)))
        return fault(fmt::format("row {}", row), "NaN or infinity", "finite values");
    }
  }
  return {};
}

void decode_row(const HostWeight& weight, int64_t row, float* out) {
  const FormatInfo& format = format_info(weight.format);
  format.decode(weight.bytes.data() + static_cast<size_t>(row * weight.row_bytes()),
                static_cast<size_t>(weight.k / format.block_weights), out);
  if (weight.outliers.empty()) return;
  for (uint32_t i = weight.outliers.first_of(row); i < weight.outliers.first_of(row + 1); ++i)
    out[weight.outliers.column(i)] += weight.outliers.value(i);
}

}  // namespace quintet
