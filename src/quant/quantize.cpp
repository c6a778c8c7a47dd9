// What the methods share, and plain rounding.
#include "quant/quantize.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/parallel.h"
#include "quant/quantize_rows.h"
#include "quant/row_kernels.h"
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
  const RowKernels& kernels = row_kernels();
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    bad[static_cast<size_t>(row)] = !kernels.all_within(matrix.weights + row * matrix.k, static_cast<size_t>(matrix.k), kLargestWeight);
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
  const RowKernels& kernels = row_kernels();
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    const auto values = all.subspan(static_cast<size_t>(row) * k, k);
    const RowGroups of{.format = format, .groups = groups, .values = values.data()};
    std::vector<IntegerRange> ranges(groups, whole);
    if (granularity == Granularity::channel)
      ranges.assign(groups, range_of(format, extent_of(values, nullptr)));
    if (granularity == Granularity::group) {
      std::vector<Extent> extents(groups);
      kernels.extents(of, extents.data());
      for (size_t g = 0; g < groups; ++g) ranges[g] = range_of(format, extents[g]);
    }
    std::vector<uint8_t> codes(k);
    kernels.round(of, ranges.data(), codes.data());
    writer.write(row, ranges.data(), codes.data());
  });
  return writer.finish();
}

void errors_of_rows(const MatrixToQuantize& matrix, const QuantizedMatrix& quantized, std::span<OutputError> rows) {
  const HostWeight view = quantized.view(matrix.name);
  const auto k = static_cast<size_t>(matrix.k);
  const float* moments = matrix.moments.empty() ? nullptr : matrix.moments.data();
  const RowKernels& kernels = row_kernels();
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    std::vector<float> decoded(k);
    decode_row(view, row, decoded.data());
    OutputError& of = rows[static_cast<size_t>(row)];
    kernels.errors(matrix.weights + row * matrix.k, decoded.data(), moments, k, &of.lost, &of.had);
  });
}

OutputError output_error(const MatrixToQuantize& matrix, const QuantizedMatrix& quantized) {
  std::vector<OutputError> rows(static_cast<size_t>(matrix.n));
  errors_of_rows(matrix, quantized, rows);
  OutputError all;
  for (const OutputError& row : rows) all.lost += row.lost, all.had += row.had;
  return all;
}

void append_rows(QuantizedMatrix& to, QuantizedMatrix&& rows) {
  if (to.n == 0) {
    to = std::move(rows);
    return;
  }
  QUINTET_CHECK(to.format == rows.format && to.k == rows.k && to.in_perm == rows.in_perm, "rows of {} x {} below {} x {}", rows.n,
                rows.k, to.n, to.k);
  if (to.outlier_begin.empty() != rows.outlier_begin.empty()) {  // the share of a few rows may be less than one weight
    QuantizedMatrix& without = to.outlier_begin.empty() ? to : rows;
    without.outlier_begin.assign(static_cast<size_t>(without.n) + 1, 0);
  }
  to.blocks.insert(to.blocks.end(), rows.blocks.begin(), rows.blocks.end());
  to.n += rows.n;
  append_side_data(to, rows);
}

void append_side_data(QuantizedMatrix& to, const QuantizedMatrix& rows) {
  const auto append = [](auto& all, const auto& more) { all.insert(all.end(), more.begin(), more.end()); };
  const auto entries = static_cast<uint32_t>(to.outlier_column.size());
  if (to.outlier_begin.empty() && !rows.outlier_begin.empty()) to.outlier_begin.push_back(0);
  for (size_t i = 1; i < rows.outlier_begin.size(); ++i) to.outlier_begin.push_back(entries + rows.outlier_begin[i]);
  append(to.outlier_column, rows.outlier_column);
  append(to.outlier_value, rows.outlier_value);
  append(to.row_scales, rows.row_scales);
  if (to.note.empty()) to.note = rows.note;
}

}  // namespace quintet
