// Outliers of a matrix: checked, and added to its rows.
#include "quant/host_weight.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "base/check.h"
#include "quant/quantize.h"

namespace quintet {

uint64_t HostWeight::stored_bytes() const {
  if (maker) return static_cast<uint64_t>(maker->row_bytes() * static_cast<double>(n));
  return bytes.size() + outliers.bytes() + row_scales.size();
}

Result<HostWeight> made_of(const HostWeight& weight, QuantizedMatrix& made) {
  if (!weight.maker) return weight;
  TRY_ASSIGN(made, weight.maker->make(weight.first_row, weight.n));
  QUINTET_CHECK(made.format == weight.format && made.n == weight.n && made.k == weight.k, "tensor {}: made as {} x {} {}",
                weight.name, made.n, made.k, format_info(made.format).name);
  return made.view(weight.name);
}

namespace {

Status check_in_perm(const HostWeight& weight) {
  if (weight.in_perm.empty()) return {};
  const auto fault = [&](std::string_view found) {
    return bad_input(fmt::format("tensor {}: order of its inputs: found {}, allowed is each of {} inputs once", weight.name,
                                 found, weight.k));
  };
  if (static_cast<int64_t>(weight.in_perm.size()) != weight.k)
    return fault(fmt::format("{} entries", weight.in_perm.size()));
  if (!weight.outliers.empty()) return fault("outliers beside it");
  std::vector<bool> seen(weight.in_perm.size());
  for (const int32_t input : weight.in_perm) {
    if (input < 0 || input >= weight.k || seen[static_cast<size_t>(input)]) return fault(fmt::format("input {}", input));
    seen[static_cast<size_t>(input)] = true;
  }
  return {};
}

Status check_row_scales(const HostWeight& weight) {
  const FormatInfo& info = format_info(weight.format);
  const uint64_t wanted = info.decode_scaled ? 4 * static_cast<uint64_t>(weight.n) : 0;
  if (weight.row_scales.size() != wanted)
    return bad_input(fmt::format("tensor {}: scales of rows: found {} bytes, allowed with {} are {}", weight.name,
                                 weight.row_scales.size(), info.name, wanted));
  for (int64_t row = 0; wanted > 0 && row < weight.n; ++row)
    if (!std::isfinite(weight.row_scale(row)))
      return bad_input(fmt::format("tensor {}: row {}: found a scale that is NaN or infinite, allowed are finite ones",
                                   weight.name, row));
  return {};
}

}  // namespace

Status check_side_data(const HostWeight& weight) {
  TRY(check_row_scales(weight));
  TRY(check_in_perm(weight));
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
  const uint8_t* bytes = weight.bytes.data() + static_cast<size_t>(row * weight.row_bytes());
  const auto blocks = static_cast<size_t>(weight.k / format.block_weights);
  if (format.decode_scaled)
    format.decode_scaled(bytes, blocks, weight.row_scale(row), out);
  else
    format.decode(bytes, blocks, out);
  if (!weight.in_perm.empty()) {
    const std::vector<float> stored(out, out + weight.k);
    for (int64_t i = 0; i < weight.k; ++i) out[weight.in_perm[static_cast<size_t>(i)]] = stored[static_cast<size_t>(i)];
  }
  if (weight.outliers.empty()) return;
  for (uint32_t i = weight.outliers.first_of(row); i < weight.outliers.first_of(row + 1); ++i)
    out[weight.outliers.column(i)] += weight.outliers.value(i);
}

}  // namespace quintet
