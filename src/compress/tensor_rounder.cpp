// Rows as floats, scales folded in, to codes.
#include "compress/tensor_rounder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/log.h"
#include "base/parallel.h"
#include "base/units.h"
#include "compress/choose_shares.h"
#include "compress/encode_matrix.h"
#include "compress/weight_plot.h"
#include "quant/encode.h"

namespace quintet {

/// Some rows of a tensor, or all.
struct TensorRounder::Stretch {
  const TensorTask& task;
  const HostWeight& rows;
  int64_t first_row;
  std::span<const float> moments;
};

Result<RoundedTensor> TensorRounder::round(const TensorTask& task) {
  const int64_t begin_us = now_us();
  const HostWeight& weight = task.tensor->weight;
  const QuantizeOptions& options = model_.options;
  if (weight.k > 65536 && options.has_outliers())
    return bad_input(
        fmt::format("tensor {}: found {} inputs, allowed with outliers are 65536", weight.name, weight.k));
  TRY_ASSIGN(const std::vector<float> moments, moments_.of(task, layer_));
  if (task.place.input() >= 0) TRY(prepare_for_gptq(task));
  // A scale of the whole tensor needs all of it.
  const bool whole = options.method == QuantizeMethod::rtn && options.granularity == Granularity::tensor;
  const int64_t rows_at_once = whole ? weight.n : std::max<int64_t>(1, options.weights_at_once / weight.k);
  RoundedTensor made;
  OutputError error;
  for (int64_t first = 0; first < weight.n; first += rows_at_once) {
    const int64_t count = std::min(rows_at_once, weight.n - first);
    QuantizedMatrix source;
    TRY_ASSIGN(const HostWeight part,
               made_of(count == weight.n ? weight : weight.slice_rows(first, count), source));
    TRY(check_side_data(part));
    const Stretch of{.task = task, .rows = part, .first_row = first, .moments = moments};
    OutputError of_rows;
    // A plot is of the first rows, as many as there are room for.
    TRY(rows_stand_alone(task) && !options.plots ? round_by_rows(of, made, of_rows) : round_at_once(of, made, of_rows));
    error.lost += of_rows.lost, error.had += of_rows.had;
  }
  made.error = error.relative();
  LOG_DEBUG("{}: rounded in {:.3f} s", weight.name, static_cast<double>(now_us() - begin_us) * 1e-6);
  return made;
}

void TensorRounder::give_back(std::vector<uint8_t> blocks) {
  const std::lock_guard lock(spare_mutex_);
  spare_blocks_ = std::move(blocks);
}

std::vector<uint8_t> TensorRounder::spare_blocks(size_t bytes) {
  std::vector<uint8_t> blocks;
  {
    const std::lock_guard lock(spare_mutex_);
    blocks = std::exchange(spare_blocks_, {});
  }
  if (blocks.capacity() < bytes) blocks = {};  // not copied into what is larger
  blocks.resize(bytes);
  return blocks;
}

/// As floats, as the file has them: what check_weights() is to see.
void TensorRounder::decode_rows(const Stretch& part, int64_t first, int64_t count, float* values) {
  for (int64_t row = 0; row < count; ++row) decode_row(part.rows, first + row, values + row * part.rows.k);
}

void TensorRounder::fold_rows(const Stretch& part, int64_t first, int64_t count, float* values) const {
  TensorPlace place = part.task.place;
  place.first_row += part.first_row + first;
  layer_.fold.apply(place, model_.config, count, part.rows.k, values);
}

MatrixToQuantize TensorRounder::matrix_of(const Stretch& part, int64_t first, int64_t count, const float* values, int threads) {
  return {.name = part.rows.name,
          .n = count,
          .k = part.rows.k,
          .weights = values,
          .moments = part.moments,
          .threads = threads,
          .first_row = part.first_row + first};
}

/// Whether no row's codes depend on other rows, but for which weights are outliers by magnitude.
bool TensorRounder::rows_stand_alone(const TensorTask& task) const {
  if (!task.integers) return true;
  if (model_.options.method == QuantizeMethod::rtn) return model_.options.granularity != Granularity::tensor;
  if (task.place.input() >= 0 && (gptq_ || on_device_ == OnDevice::factor)) return false;
  return model_.options.select == OutlierSelect::magnitude || share_of(model_, task, shares_) == 0;
}

Status TensorRounder::round_at_once(const Stretch& part, RoundedTensor& made, OutputError& error) {
  const int64_t n = part.rows.n, k = part.rows.k;
  const int threads = model_.options.threads;
  if (values_size_ < n * k) {
    values_.reset();
    values_ = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(n * k));
    values_size_ = n * k;
  }
  parallel_for(n, threads, [&](int64_t row) { decode_rows(part, row, 1, values_.get() + row * k); });
  const MatrixToQuantize matrix = matrix_of(part, 0, n, values_.get(), threads);
  TRY(check_weights(matrix));
  fold_rows(part, 0, n, values_.get());
  TRY_ASSIGN(QuantizedMatrix rows, round(matrix, part.task));
  error = output_error(matrix, rows);
  if (model_.options.plots && part.first_row == 0) made.plot = plot_of(matrix, rows, part.task.place.layer);
  append_rows(made.matrix, std::move(rows));
  return {};
}

/// A few rows at a time from the file to their blocks and errors, each time on one thread: what is worked on stays in the
/// processor's caches, and nothing is as large as the tensor but its result.
Status TensorRounder::round_by_rows(const Stretch& part, RoundedTensor& made, OutputError& error) {
  constexpr int64_t kWeightsAtOnce = int64_t{1} << 16, kRowsOfEncoder = 16;  // whole batches of it, whatever rows are long
  const QuantizeOptions& options = model_.options;
  const int64_t n = part.rows.n, k = part.rows.k;
  const bool encoder = options.method == QuantizeMethod::gguf;
  const int64_t rows_at_once = encoder ? kRowsOfEncoder : std::max<int64_t>(1, kWeightsAtOnce / k);
  const int64_t chunks = (n + rows_at_once - 1) / rows_at_once;
  LargestWeights largest;
  if (part.task.integers && options.has_outliers() && options.select == OutlierSelect::magnitude)
    largest = LargestWeights::find({.n = n, .k = k, .read = [&](int64_t first, int64_t count, float* out) {
                                      decode_rows(part, first, count, out);
                                      fold_rows(part, first, count, out);
                                    }},
                                   share_of(model_, part.task, shares_), options.threads);
  const auto row_bytes = static_cast<size_t>(format_bytes_of(part.task.format, static_cast<uint64_t>(k)));
  QuantizedMatrix all{.format = part.task.format, .n = n, .k = k};
  all.blocks = spare_blocks(static_cast<size_t>(n) * row_bytes);
  std::vector<QuantizedMatrix> side(static_cast<size_t>(chunks));  ///< without their blocks
  std::vector<OutputError> errors(static_cast<size_t>(n));
  std::mutex mutex;
  int64_t failed_chunk = chunks;
  Status failed;
  parallel_for(chunks, options.threads, [&](int64_t chunk) {
    const int64_t first = chunk * rows_at_once, count = std::min(rows_at_once, n - first);
    const auto values = std::make_unique_for_overwrite<float[]>(static_cast<size_t>(count * k));
    decode_rows(part, first, count, values.get());
    const MatrixToQuantize matrix = matrix_of(part, first, count, values.get(), 1);
    const auto work = [&]() -> Status {
      TRY(check_weights(matrix));
      fold_rows(part, first, count, values.get());
      // Which rows hold how many of equal largest weights is counted from the part's first one.
      MatrixToQuantize counted = matrix;
      counted.first_row = first;
      auto& rows = side[static_cast<size_t>(chunk)];
      if (largest.empty()) {
        TRY_ASSIGN(rows, round(matrix, part.task));
      } else {
        rows = quantize_without(counted, *part.task.integers, largest);
      }
      errors_of_rows(matrix, rows, {errors.data() + first, static_cast<size_t>(count)});
      std::memcpy(all.blocks.data() + static_cast<size_t>(first) * row_bytes, rows.blocks.data(), rows.blocks.size());
      rows.blocks = {};
      return {};
    };
    const Status status = work();
    if (status) return;
    const std::lock_guard lock(mutex);
    if (chunk < failed_chunk) failed_chunk = chunk, failed = status;
  });
  if (failed_chunk < chunks) return failed;
  for (const OutputError& row : errors) error.lost += row.lost, error.had += row.had;
  for (const QuantizedMatrix& rows : side) append_side_data(all, rows);
  append_rows(made.matrix, std::move(all));
  return {};
}

/// Factors the Hessian of the task's inputs, once for the tensors that share them.
Status TensorRounder::prepare_for_gptq(const TensorTask& task) {
  InputStatistics& of = layer_.statistics[static_cast<size_t>(task.place.input())];
  const GptqOptions options{.damping = model_.options.damping, .act_order = model_.options.act_order};
  if (on_device_ == OnDevice::hessian && task.integers) {
    TRY(solver_->factor(task.tensor->weight.name, options));
    on_device_ = OnDevice::factor;
  }
  if (gptq_ || of.hessian.empty() || !task.integers) return {};
  TRY_ASSIGN(gptq_, prepare_gptq(task.tensor->weight.name, of.k, std::exchange(of.hessian, {}), options, model_.options.threads));
  return {};
}

Result<QuantizedMatrix> TensorRounder::round(const MatrixToQuantize& matrix, const TensorTask& task) const {
  const QuantizeOptions& options = model_.options;
  if (is_direct_format(task.format)) return quantize_direct(matrix, task.format);
  if (!task.integers && !can_encode(task.format))
    return bad_input(fmt::format("tensor {}: found the format {}, into which scales cannot be folded; allowed with awq "
                                 "are dense weights",
                                 matrix.name, format_info(task.format).name));
  if (!task.integers) return encode_matrix(matrix, task.format);
  const IntegerFormat& format = *task.integers;
  if (options.method == QuantizeMethod::rtn) return quantize_rtn(matrix, format, options.granularity);
  const double share = share_of(model_, task, shares_);
  if (on_device_ == OnDevice::factor && task.place.input() >= 0) return solver_->quantize(matrix, format, share);
  if (gptq_ && task.place.input() >= 0) return quantize_gptq(matrix, format, *gptq_, share);
  return quantize_outlier(matrix, format, {.share = share, .select = options.select});
}

}  // namespace quintet
