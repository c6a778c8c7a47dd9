// What the methods share, and plain rounding.
#include "quant/quantize.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

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
  for (int64_t row = 0; row < matrix.n; ++row)
    for (int64_t i = 0; i < matrix.k; ++i)
      if (const float value = matrix.weights[row * matrix.k + i]; !(std::abs(value) <= kLargestWeight))
        return bad_input(fmt::format("tensor {}: row {}, column {}: found {}, allowed are numbers up to {}",
                                     matrix.name, matrix.first_row + row, i, value, kLargestWeight));
  return {};
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

OutputError output_error(const MatrixToQuantize& matrix, const QuantizedMatrix& quantized) {
  const HostWeight view = quantized.view(matrix.name);
  std::vector<double> lost(static_cast<size_t>(matrix.n)), had(static_cast<size_t>(matrix.n));
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    std::vector<float> decoded(static_cast<size_t>(matrix.k));
    decode_row(view, row, decoded.data());
    const float* w = matrix.weights + row * matrix.k;
    for (size_t i = 0; i < decoded.size(); ++i) {
      const double moment = matrix.moments.empty() ? 1 : matrix.moments[i];
      const double error = static_cast<double>(w[i]) - decoded[i];
      lost[static_cast<size_t>(row)] += moment * error * error;
      had[static_cast<size_t>(row)] += moment * w[i] * w[i];
    }
  });
  OutputError all;
  for (size_t i = 0; i < lost.size(); ++i) all.lost += lost[i], all.had += had[i];
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
