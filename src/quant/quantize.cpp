// What the methods share, and plain rounding.
#include "quant/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "base/parallel.h"
#include "quant/quantize_rows.h"
#include "tensor/half.h"

namespace quintet {
namespace {

constexpr float kLargestWeight = 60000;  // a scale of it fits into FP16 whatever the number of bits

std::span<const uint8_t> bytes_of(const auto& values) {
  return {reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(values[0])};
}

}  // namespace

HostWeight QuantizedMatrix::view(std::string_view name) const {
  HostWeight weight{.name = name, .format = format, .n = n, .k = k, .bytes = blocks};
  if (!outlier_begin.empty())
    weight.outliers = {.row_begin = bytes_of(outlier_begin),
                       .columns = bytes_of(outlier_column),
                       .values = bytes_of(outlier_value)};
  if (!row_scales.empty()) weight.row_scales = bytes_of(row_scales);
  weight.in_perm = in_perm;
  return weight;
}

Status check_weights(const MatrixToQuantize& matrix) {
  std::vector<uint8_t> bad(static_cast<size_t>(matrix.n));
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    const float* values = matrix.weights + row * matrix.k;
    int any = 0;  // no way out of the loop, so that it takes whole vectors
    for (int64_t i = 0; i < matrix.k; ++i) any |= !(std::abs(values[i]) <= kLargestWeight);
    bad[static_cast<size_t>(row)] = any != 0;
  });
  const auto first = std::ranges::find(bad, 1);
  if (first == bad.end()) return {};
  const int64_t row = first - bad.begin();
  const float* values = matrix.weights + row * matrix.k;
  const float* value = std::find_if(values, values + matrix.k, [](float v) { return !(std::abs(v) <= kLargestWeight); });
  return bad_input(fmt::format("tensor {}: row {}, column {}: found {}, allowed are numbers up to {}", matrix.name,
                               matrix.first_row + row, value - values, *value, kLargestWeight));
}

RowWriter::RowWriter(const MatrixToQuantize& matrix, const IntegerFormat& format) : format_(format) {
  const auto weight_format = weight_format_of(format);
  QUINTET_CHECK(weight_format && matrix.k % format.group == 0, "{} inputs in groups of {}, {} bits", matrix.k,
                format.group, format.bits);
  made_.format = *weight_format;
  made_.n = matrix.n;
  made_.k = matrix.k;
  made_.blocks.resize(static_cast<size_t>(matrix.n * matrix.k / format.group * format.block_bytes()));
}

void RowWriter::write(int64_t row, const IntegerRange* ranges, const uint8_t* codes) {
  const int64_t groups = made_.k / format_.group;
  uint8_t* block = made_.blocks.data() + static_cast<size_t>(row * groups * format_.block_bytes());
  for (int64_t g = 0; g < groups; ++g, block += format_.block_bytes()) {
    const uint16_t halves[2] = {f32_to_f16(ranges[g].scale), f32_to_f16(ranges[g].minimum)};
    std::memcpy(block, halves, format_.minimum ? 4 : 2);
    pack_codes(format_, codes + g * format_.group, block);
  }
}

QuantizedMatrix quantize_rtn(const MatrixToQuantize& matrix, const IntegerFormat& format,
                             Granularity granularity) {
  RowWriter writer(matrix, format);
  const auto k = static_cast<size_t>(matrix.k), groups = k / static_cast<size_t>(format.group);
  const std::span all(matrix.weights, static_cast<size_t>(matrix.n) * k);
  const IntegerRange whole =
      granularity == Granularity::tensor ? range_of(format, extent_of(all, nullptr)) : IntegerRange{};
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    const auto values = all.subspan(static_cast<size_t>(row) * k, k);
    std::vector<IntegerRange> ranges(groups, whole);
    if (granularity == Granularity::channel)
      ranges.assign(groups, range_of(format, extent_of(values, nullptr)));
    std::vector<uint8_t> codes(k);
    for (size_t g = 0; g < groups; ++g) {
      const auto group =
          values.subspan(g * static_cast<size_t>(format.group), static_cast<size_t>(format.group));
      if (granularity == Granularity::group) ranges[g] = range_of(format, extent_of(group, nullptr));
      for (size_t i = 0; i < group.size(); ++i)
        codes[g * group.size() + i] = static_cast<uint8_t>(nearest_code(format, ranges[g], group[i]));
    }
    writer.write(row, ranges.data(), codes.data());
  });
  return writer.finish();
}

namespace {

/// Of one row. Eight sums side by side: one alone would wait for each addition.
OutputError error_of_row(const float* weights, const float* decoded, const float* moments, size_t count) {
  constexpr size_t kSums = 8;
  std::array<double, kSums> lost{}, had{};
  const auto add = [&](size_t i, size_t sum) {
    const double moment = moments[i], weight = weights[i], error = weight - decoded[i];
    lost[sum] += moment * error * error;
    had[sum] += moment * weight * weight;
  };
  size_t i = 0;
  for (; i + kSums <= count; i += kSums)
    for (size_t sum = 0; sum < kSums; ++sum) add(i + sum, sum);
  for (; i < count; ++i) add(i, 0);
  return {.lost = std::accumulate(lost.begin(), lost.end(), 0.0), .had = std::accumulate(had.begin(), had.end(), 0.0)};
}

}  // namespace

OutputError output_error(const MatrixToQuantize& matrix, const QuantizedMatrix& quantized) {
  const HostWeight view = quantized.view(matrix.name);
  const auto k = static_cast<size_t>(matrix.k);
  const std::vector<float> ones(matrix.moments.empty() ? k : 0, 1.0f);
  const float* moments = matrix.moments.empty() ? ones.data() : matrix.moments.data();
  std::vector<OutputError> rows(static_cast<size_t>(matrix.n));
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    std::vector<float> decoded(k);
    decode_row(view, row, decoded.data());
    rows[static_cast<size_t>(row)] = error_of_row(matrix.weights + row * matrix.k, decoded.data(), moments, k);
  });
  OutputError all;
  for (const OutputError& row : rows) all.lost += row.lost, all.had += row.had;
  return all;
}

void append_rows(QuantizedMatrix& to, QuantizedMatrix&& rows) {
  if (to.n == 0) {
    to = std::move(rows);
    return;
  }
  QUINTET_CHECK(to.format == rows.format && to.k == rows.k && to.outlier_begin.empty() == rows.outlier_begin.empty() &&
                    to.in_perm == rows.in_perm,
                "rows of {} x {} below {} x {}", rows.n, rows.k, to.n, to.k);
  const auto append = [](auto& all, const auto& more) { all.insert(all.end(), more.begin(), more.end()); };
  const auto entries = static_cast<uint32_t>(to.outlier_column.size());
  for (size_t i = 1; i < rows.outlier_begin.size(); ++i) to.outlier_begin.push_back(entries + rows.outlier_begin[i]);
  append(to.outlier_column, rows.outlier_column);
  append(to.outlier_value, rows.outlier_value);
  append(to.blocks, rows.blocks);
  append(to.row_scales, rows.row_scales);
  if (to.note.empty()) to.note = std::move(rows.note);
  to.n += rows.n;
}

}  // namespace quintet
