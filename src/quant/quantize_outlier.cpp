// Which weights are worth keeping in FP16, and rounding of the others.
#include <algorithm>
#include <bit>
#include <cmath>
#include <vector>

#include "base/parallel.h"
#include "quant/quantize_rows.h"
#include "tensor/half.h"

namespace quintet {
namespace {

constexpr int kRounds = 3;

class OutlierChooser {
 public:
  OutlierChooser(const MatrixToQuantize& matrix, const IntegerFormat& format, const OutlierOptions& options)
      : matrix_(matrix),
        format_(format),
        options_(options),
        groups_(matrix.k / format.group),
        wanted_(
            static_cast<int64_t>(std::llround(options.share * static_cast<double>(matrix.n * matrix.k)))) {}

  OutlierChoice run() {
    choice_.ranges.resize(static_cast<size_t>(matrix_.n * groups_));
    if (wanted_ > 0) choice_.kept.assign(static_cast<size_t>(matrix_.n * matrix_.k), 1);
    if (options_.select == OutlierSelect::magnitude) {
      if (wanted_ > 0) {
        scores_.resize(choice_.kept.size());
        for (size_t i = 0; i < scores_.size(); ++i) scores_[i] = std::abs(matrix_.weights[i]);
        take_best(wanted_);
      }
      find_ranges();
      return std::move(choice_);
    }
    int64_t taken = 0;
    for (int round = 1; round <= kRounds && wanted_ > 0; ++round) {
      find_ranges();
      score();
      const int64_t until = wanted_ * round / kRounds;
      take_best(until - taken);
      taken = until;
    }
    find_ranges();
    return std::move(choice_);
  }

 private:
  std::span<const float> group_values(int64_t row, int64_t group) const {
    return {matrix_.weights + row * matrix_.k + group * format_.group, static_cast<size_t>(format_.group)};
  }
  const float* group_moments(int64_t group) const {
    return matrix_.moments.empty() ? nullptr : matrix_.moments.data() + group * format_.group;
  }
  const uint8_t* group_kept(int64_t row, int64_t group) const {
    return choice_.kept.empty() ? nullptr : choice_.kept.data() + row * matrix_.k + group * format_.group;
  }

  void find_ranges() {
    parallel_for(matrix_.n, matrix_.threads, [&](int64_t row) {
      for (int64_t g = 0; g < groups_; ++g) {
        const auto values = group_values(row, g);
        choice_.ranges[static_cast<size_t>(row * groups_ + g)] =
            options_.select == OutlierSelect::magnitude
                ? range_of(format_, extent_of(values, group_kept(row, g)))
                : search_range(format_, values, group_moments(g), group_kept(row, g));
      }
    });
  }

  void score() {
    scores_.assign(choice_.kept.size(), -1.0f);
    parallel_for(matrix_.n, matrix_.threads, [&](int64_t row) {
      for (int64_t g = 0; g < groups_; ++g) score_group(row, g);
    });
  }

  void score_group(int64_t row, int64_t group) {
    const auto values = group_values(row, group);
    const float* moments = group_moments(group);
    const uint8_t* kept = group_kept(row, group);
    const IntegerRange& range = choice_.ranges[static_cast<size_t>(row * groups_ + group)];
    float* scores = scores_.data() + row * matrix_.k + group * format_.group;
    float moment_sum = 0;
    for (size_t i = 0; i < values.size(); ++i) {
      const float moment = moments ? moments[i] : 1.0f;
      moment_sum += moment;
      if (!kept[i]) continue;
      const float error = values[i] - value_of(format_, range, nearest_code(format_, range, values[i]));
      scores[i] = moment * error * error;
    }
    // The weight whose leaving narrows the range most: the largest, or either end of an asymmetric range.
    const Extent extent = extent_of(values, kept);
    const float reach = format_.minimum ? extent.high - extent.low : std::max(-extent.low, extent.high);
    if (reach <= 0) return;
    for (size_t i = 0; i < values.size(); ++i) {
      const bool end = format_.minimum ? values[i] == extent.low || values[i] == extent.high
                                       : std::abs(values[i]) == reach;
      if (!kept[i] || !end) continue;
      Extent rest{INFINITY, -INFINITY};
      for (size_t j = 0; j < values.size(); ++j)
        if (kept[j] && j != i) rest.add(values[j]);
      if (rest.low > rest.high) continue;
      const float left = format_.minimum ? rest.high - rest.low : std::max(-rest.low, rest.high);
      const float narrower = range.scale * left / reach;
      // The group's expected error is step^2 / 12 a weight.
      scores[i] += moment_sum * (range.scale * range.scale - narrower * narrower) / 12;
    }
  }

  /// Makes the `count` weights with the highest scores outliers; of equal ones the first.
  void take_best(int64_t count) {
    if (count <= 0) return;
    const uint32_t threshold = key_of_rank(count);
    int64_t left = count;
    for (const float score : scores_) left -= key(score) > threshold;
    for (size_t i = 0; i < scores_.size(); ++i)
      if (key(scores_[i]) > threshold || (key(scores_[i]) == threshold && left-- > 0)) choice_.kept[i] = 0;
  }

  /// Orders scores of 0 and more as they are, below them all those of outliers (-1).
  static uint32_t key(float score) { return score >= 0 ? std::bit_cast<uint32_t>(score + 0.0f) + 1 : 0; }

  /// Of the count-th largest score: by counting upper halves of the keys, then lower ones, since a sorted copy would take
  /// as much memory again as the scores of a large matrix.
  uint32_t key_of_rank(int64_t count) const {
    std::vector<int64_t> counts(1 << 16);
    const auto descend = [&](int64_t& rank) {
      uint32_t at = (1 << 16) - 1;
      for (; at > 0 && counts[at] < rank; --at) rank -= counts[at];
      return at;
    };
    for (const float score : scores_) ++counts[key(score) >> 16];
    const uint32_t upper = descend(count);
    std::fill(counts.begin(), counts.end(), 0);
    for (const float score : scores_)
      if (const uint32_t k = key(score); k >> 16 == upper) ++counts[k & 0xFFFF];
    return upper << 16 | descend(count);
  }

  const MatrixToQuantize& matrix_;
  const IntegerFormat& format_;
  const OutlierOptions& options_;
  int64_t groups_, wanted_;
  OutlierChoice choice_;
  std::vector<float> scores_;  ///< [n, k]; of outliers: -1
};

}  // namespace

OutlierChoice choose_outliers(const MatrixToQuantize& matrix, const IntegerFormat& format,
                              const OutlierOptions& options) {
  return OutlierChooser(matrix, format, options).run();
}

void add_outliers(const OutlierChoice& choice, QuantizedMatrix& quantized, const float* values) {
  if (choice.kept.empty()) return;
  const HostWeight plain = quantized.view("");
  std::vector<float> decoded(static_cast<size_t>(quantized.k));
  quantized.outlier_begin.push_back(0);
  for (int64_t row = 0; row < quantized.n; ++row) {
    const uint8_t* kept = choice.kept_row(row, quantized.k);
    decode_row(plain, row, decoded.data());
    for (int64_t i = 0; i < quantized.k; ++i) {
      if (kept[i]) continue;
      quantized.outlier_column.push_back(static_cast<uint16_t>(i));
      quantized.outlier_value.push_back(
          f32_to_f16(values[row * quantized.k + i] - decoded[static_cast<size_t>(i)]));
    }
    quantized.outlier_begin.push_back(static_cast<uint32_t>(quantized.outlier_column.size()));
  }
}

QuantizedMatrix quantize_outlier(const MatrixToQuantize& matrix, const IntegerFormat& format,
                                 const OutlierOptions& options) {
  const OutlierChoice choice = choose_outliers(matrix, format, options);
  RowWriter writer(matrix, format);
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    const IntegerRange* ranges = choice.ranges.data() + row * (matrix.k / format.group);
    std::vector<uint8_t> codes(static_cast<size_t>(matrix.k));
    for (int64_t i = 0; i < matrix.k; ++i)
      codes[static_cast<size_t>(i)] = static_cast<uint8_t>(
          nearest_code(format, ranges[i / format.group], matrix.weights[row * matrix.k + i]));
    writer.write(row, ranges, codes.data());
  });
  QuantizedMatrix quantized = writer.finish();
  add_outliers(choice, quantized, matrix.weights);
  return quantized;
}

}  // namespace quintet
