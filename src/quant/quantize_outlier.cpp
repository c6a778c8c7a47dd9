// Which weights are worth keeping in FP16, and rounding of the others.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "base/parallel.h"
#include "quant/quantize_rows.h"
#include "quant/row_kernels.h"
#include "tensor/half.h"

namespace quintet {
namespace {

constexpr int kRounds = 3;
constexpr int64_t kRowsAtOnce = 8;
constexpr size_t kMostGroup = 128;

/// As integers in the order of the magnitudes.
uint32_t magnitude_key(float value) { return std::bit_cast<uint32_t>(value) & 0x7FFFFFFFu; }

/// Counts of keys, by their upper halves first and then by the lower ones of one upper half: a sorted copy would take as much
/// memory again as the keys of a large matrix.
class RankSearch {
 public:
  explicit RankSearch(int64_t rank) : rank_(rank) {}

  using Counts = std::vector<int64_t>;
  static Counts none() { return Counts(size_t{1} << 16); }
  void count(uint32_t key, Counts& counts) const {
    if (!upper_) ++counts[key >> 16];
    else if (key >> 16 == *upper_) ++counts[key & 0xFFFF];
  }
  /// After each of two walks over all keys: `counts` of the walk.
  void descend(const Counts& counts) {
    uint32_t at = (1 << 16) - 1;
    for (; at > 0 && counts[at] < rank_; --at) rank_ -= counts[at];
    key_ = upper_ ? *upper_ << 16 | at : at;
    if (!upper_) upper_ = at;
  }
  /// After both: of that rank, the largest being 1, and how many of its equals are among the first.
  uint32_t key() const { return key_; }
  int64_t equals() const { return rank_; }

 private:
  int64_t rank_;
  std::optional<uint32_t> upper_;
  uint32_t key_ = 0;
};

/// Calls each(row) on all threads for rows [0, n) with the counts of its thread; gives the sum.
RankSearch::Counts count_rows(int64_t n, int threads, const std::function<void(int64_t row, RankSearch::Counts& counts)>& each) {
  const int64_t shares = std::min<int64_t>(thread_count(threads), (n + kRowsAtOnce - 1) / kRowsAtOnce);
  RankSearch::Counts all = RankSearch::none();
  std::mutex mutex;
  parallel_for(shares, threads, [&](int64_t share) {
    RankSearch::Counts counts = RankSearch::none();
    for (int64_t row = share * n / shares; row < (share + 1) * n / shares; ++row) each(row, counts);
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < all.size(); ++i) all[i] += counts[i];
  });
  return all;
}

/// Of `equals` equal ones that are taken the first: how many of each row, made of how many each row has.
void take_first(std::vector<uint32_t>& of_rows, int64_t equals) {
  for (uint32_t& of_row : of_rows) {
    of_row = static_cast<uint32_t>(std::min<int64_t>(of_row, equals));
    equals -= of_row;
  }
}

/// By the inputs' second moments, in rounds.
class OutlierChooser {
 public:
  OutlierChooser(const MatrixToQuantize& matrix, const IntegerFormat& format, double share)
      : matrix_(matrix),
        format_(format),
        group_(static_cast<size_t>(format.group)),
        groups_(static_cast<size_t>(matrix.k) / group_),
        wanted_(std::llround(share * static_cast<double>(matrix.n * matrix.k))) {}

  OutlierChoice run() {
    choice_.ranges.resize(static_cast<size_t>(matrix_.n) * groups_);
    if (wanted_ > 0) {
      choice_.kept.assign(static_cast<size_t>(matrix_.n * matrix_.k), 1);
      scores_.resize(choice_.kept.size());
      for (size_t g = 0; g < groups_; ++g) {
        float sum = 0;
        for (size_t i = 0; i < group_; ++i) sum += matrix_.moments.empty() ? 1.0f : matrix_.moments[g * group_ + i];
        moment_sums_.push_back(sum);
      }
    }
    int64_t taken = 0;
    for (int round = 1; round <= kRounds && wanted_ > 0; ++round) {
      parallel_for(matrix_.n, matrix_.threads, [&](int64_t row) {
        find_ranges(row);
        score(row);
      });
      const int64_t until = wanted_ * round / kRounds;
      take_best(until - taken);
      taken = until;
    }
    parallel_for(matrix_.n, matrix_.threads, [&](int64_t row) { find_ranges(row); });
    return std::move(choice_);
  }

 private:
  size_t at(int64_t row) const { return static_cast<size_t>(row * matrix_.k); }
  const float* moments() const { return matrix_.moments.empty() ? nullptr : matrix_.moments.data(); }
  RowGroups groups_of(int64_t row) const {
    return {.format = format_,
            .groups = groups_,
            .values = matrix_.weights + at(row),
            .kept = choice_.kept_row(row, matrix_.k),
            .weights = moments()};
  }
  IntegerRange* ranges_of(int64_t row) { return choice_.ranges.data() + static_cast<size_t>(row) * groups_; }

  void find_ranges(int64_t row) {
    const RowGroups of = groups_of(row);
    std::vector<Extent> extents(groups_);
    kernels_.extents(of, extents.data());
    kernels_.search(of, extents.data(), ranges_of(row));
  }

  void score(int64_t row) {
    const RowGroups of = groups_of(row);
    const auto k = static_cast<size_t>(matrix_.k);
    std::vector<uint8_t> codes(k);
    std::vector<float> decoded(k);
    std::vector<Extent> extents(groups_);
    kernels_.round(of, ranges_of(row), codes.data());
    kernels_.decode(format_, codes.data(), groups_, ranges_of(row), decoded.data());
    kernels_.extents(of, extents.data());
    float* scores = scores_.data() + at(row);
    for (size_t i = 0; i < k; ++i) {
      const float error = of.values[i] - decoded[i], moment = of.weights ? of.weights[i] : 1.0f;
      scores[i] = of.kept[i] ? moment * error * error : -1.0f;
    }
    for (size_t g = 0; g < groups_; ++g) score_ends(row, g, extents[g]);
  }

  /// The weight whose leaving narrows the range most: the largest, or either end of an asymmetric range.
  void score_ends(int64_t row, size_t group, const Extent& extent) {
    const float* values = matrix_.weights + at(row) + group * group_;
    const uint8_t* kept = choice_.kept.data() + at(row) + group * group_;
    const IntegerRange& range = ranges_of(row)[group];
    const float reach = reach_of(extent);
    if (reach <= 0) return;
    for (size_t i = 0; i < group_; ++i) {
      const bool end = format_.minimum ? values[i] == extent.low || values[i] == extent.high : std::abs(values[i]) == reach;
      if (!end || !kept[i]) continue;
      std::array<uint8_t, kMostGroup> others;
      std::copy_n(kept, group_, others.begin());
      others[i] = 0;
      if (!std::memchr(others.data(), 1, group_)) continue;
      Extent rest;
      kernels_.extents({.format = format_, .groups = 1, .values = values, .kept = others.data()}, &rest);
      const float narrower = range.scale * reach_of(rest) / reach;
      // The group's expected error is step^2 / 12 a weight.
      scores_[at(row) + group * group_ + i] += moment_sums_[group] * (range.scale * range.scale - narrower * narrower) / 12;
    }
  }
  float reach_of(const Extent& extent) const {
    return format_.minimum ? extent.high - extent.low : std::max(-extent.low, extent.high);
  }

  /// Makes the `count` weights with the highest scores outliers; of equal ones the first.
  void take_best(int64_t count) {
    if (count <= 0) return;
    RankSearch search(count);
    const auto scores = [&](int64_t row) { return std::span(scores_).subspan(at(row), static_cast<size_t>(matrix_.k)); };
    for (int walk = 0; walk < 2; ++walk)
      search.descend(count_rows(matrix_.n, matrix_.threads, [&](int64_t row, RankSearch::Counts& counts) {
        for (const float score : scores(row)) search.count(key(score), counts);
      }));
    std::vector<uint32_t> equals(static_cast<size_t>(matrix_.n));
    parallel_for(matrix_.n, matrix_.threads, [&](int64_t row) {
      for (const float score : scores(row)) equals[static_cast<size_t>(row)] += key(score) == search.key();
    });
    take_first(equals, search.equals());
    parallel_for(matrix_.n, matrix_.threads, [&](int64_t row) {
      uint32_t left = equals[static_cast<size_t>(row)];
      const auto of_row = scores(row);
      for (size_t i = 0; i < of_row.size(); ++i) {
        const uint32_t k = key(of_row[i]);
        if (k > search.key() || (k == search.key() && left > 0 && left-- > 0)) choice_.kept[at(row) + i] = 0;
      }
    });
  }

  /// Orders scores of 0 and more as they are, below them all those of outliers (-1).
  static uint32_t key(float score) { return score >= 0 ? std::bit_cast<uint32_t>(score + 0.0f) + 1 : 0; }

  const MatrixToQuantize& matrix_;
  const IntegerFormat& format_;
  size_t group_, groups_;
  int64_t wanted_;
  const RowKernels& kernels_ = row_kernels();
  std::vector<float> moment_sums_;  ///< [k / group]
  OutlierChoice choice_;
  std::vector<float> scores_;  ///< [n, k]; of outliers: -1
};

/// One row without its outliers: ranges by extent, codes of all weights.
void round_row(const RowGroups& row, RowWriter& writer, int64_t index) {
  const RowKernels& kernels = row_kernels();
  std::vector<Extent> extents(row.groups);
  std::vector<IntegerRange> ranges(row.groups);
  std::vector<uint8_t> codes(row.groups * static_cast<size_t>(row.format.group));
  kernels.extents(row, extents.data());
  for (size_t g = 0; g < row.groups; ++g) ranges[g] = range_of(row.format, extents[g]);
  kernels.round(row, ranges.data(), codes.data());
  writer.write(index, ranges.data(), codes.data());
}

}  // namespace

LargestWeights LargestWeights::find(const RowsToRead& rows, double share, int threads) {
  const int64_t wanted = std::llround(share * static_cast<double>(rows.n * rows.k));
  LargestWeights made;
  if (wanted <= 0) return made;
  const auto k = static_cast<size_t>(rows.k);
  RankSearch search(wanted);
  // Rows are read anew in each walk: made of halves in the processor's caches, they cost less than floats from memory.
  for (int walk = 0; walk < 2; ++walk)
    search.descend(count_rows(rows.n, threads, [&](int64_t row, RankSearch::Counts& counts) {
      const auto values = std::make_unique_for_overwrite<float[]>(k);
      rows.read(row, 1, values.get());
      for (size_t i = 0; i < k; ++i) search.count(magnitude_key(values[i]), counts);
    }));
  made.key_ = search.key();
  made.equals_.resize(static_cast<size_t>(rows.n));
  parallel_for((rows.n + kRowsAtOnce - 1) / kRowsAtOnce, threads, [&](int64_t chunk) {
    const auto values = std::make_unique_for_overwrite<float[]>(k);
    for (int64_t row = chunk * kRowsAtOnce; row < std::min(rows.n, (chunk + 1) * kRowsAtOnce); ++row) {
      rows.read(row, 1, values.get());
      uint32_t equals = 0;
      for (size_t i = 0; i < k; ++i) equals += magnitude_key(values[i]) == made.key_;
      made.equals_[static_cast<size_t>(row)] = equals;
    }
  });
  take_first(made.equals_, search.equals());
  return made;
}

void LargestWeights::mark(int64_t row, std::span<const float> values, uint8_t* kept) const {
  for (size_t i = 0; i < values.size(); ++i) kept[i] = magnitude_key(values[i]) <= key_;
  uint32_t left = equals_[static_cast<size_t>(row)];
  for (size_t i = 0; left > 0 && i < values.size(); ++i)
    if (magnitude_key(values[i]) == key_) kept[i] = 0, --left;
}

QuantizedMatrix quantize_without(const MatrixToQuantize& matrix, const IntegerFormat& format, const LargestWeights& largest) {
  RowWriter writer(matrix, format);
  OutlierChoice choice;
  if (!largest.empty()) choice.kept.resize(static_cast<size_t>(matrix.n * matrix.k));
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    const std::span values(matrix.weights + row * matrix.k, static_cast<size_t>(matrix.k));
    if (!largest.empty()) largest.mark(matrix.first_row + row, values, choice.kept.data() + row * matrix.k);
    round_row({.format = format,
               .groups = values.size() / static_cast<size_t>(format.group),
               .values = values.data(),
               .kept = choice.kept_row(row, matrix.k)},
              writer, row);
  });
  QuantizedMatrix quantized = writer.finish();
  add_outliers(choice, quantized, matrix.weights, matrix.threads);
  return quantized;
}

OutlierChoice choose_outliers(const MatrixToQuantize& matrix, const IntegerFormat& format, double share) {
  return OutlierChooser(matrix, format, share).run();
}

void add_outliers(const OutlierChoice& choice, QuantizedMatrix& quantized, const float* values, int threads) {
  if (choice.kept.empty()) return;
  const HostWeight plain = quantized.view("");
  const auto n = static_cast<size_t>(quantized.n), k = static_cast<size_t>(quantized.k);
  std::vector<std::vector<uint16_t>> columns(n);
  parallel_for(quantized.n, threads, [&](int64_t row) {
    const uint8_t *kept = choice.kept_row(row, quantized.k), *end = kept + k;
    for (const uint8_t* at = kept; (at = static_cast<const uint8_t*>(std::memchr(at, 0, static_cast<size_t>(end - at)))); ++at)
      columns[static_cast<size_t>(row)].push_back(static_cast<uint16_t>(at - kept));
  });
  quantized.outlier_begin.assign(n + 1, 0);
  for (size_t row = 0; row < n; ++row)
    quantized.outlier_begin[row + 1] = quantized.outlier_begin[row] + static_cast<uint32_t>(columns[row].size());
  std::vector<uint16_t> column(quantized.outlier_begin[n]), value(column.size());
  parallel_for(quantized.n, threads, [&](int64_t row) {
    const auto& of_row = columns[static_cast<size_t>(row)];
    if (of_row.empty()) return;
    std::vector<float> decoded(k);
    decode_row(plain, row, decoded.data());
    uint32_t entry = quantized.outlier_begin[static_cast<size_t>(row)];
    for (const uint16_t i : of_row) {
      column[entry] = i;
      value[entry++] = f32_to_f16(values[row * quantized.k + i] - decoded[i]);
    }
  });
  quantized.outlier_column = std::move(column);
  quantized.outlier_value = std::move(value);
}

QuantizedMatrix quantize_outlier(const MatrixToQuantize& matrix, const IntegerFormat& format,
                                 const OutlierOptions& options) {
  if (options.select == OutlierSelect::magnitude) {
    MatrixToQuantize rows = matrix;
    rows.first_row = 0;
    const RowsToRead read{.n = matrix.n, .k = matrix.k, .read = [&](int64_t first, int64_t count, float* out) {
                            std::copy_n(matrix.weights + first * matrix.k, count * matrix.k, out);
                          }};
    return quantize_without(rows, format, LargestWeights::find(read, options.share, matrix.threads));
  }
  const OutlierChoice choice = choose_outliers(matrix, format, options.share);
  RowWriter writer(matrix, format);
  parallel_for(matrix.n, matrix.threads, [&](int64_t row) {
    const IntegerRange* ranges = choice.ranges.data() + row * (matrix.k / format.group);
    std::vector<uint8_t> codes(static_cast<size_t>(matrix.k));
    row_kernels().round({.format = format,
                         .groups = codes.size() / static_cast<size_t>(format.group),
                         .values = matrix.weights + row * matrix.k},
                        ranges, codes.data());
    writer.write(row, ranges, codes.data());
  });
  QuantizedMatrix quantized = writer.finish();
  add_outliers(choice, quantized, matrix.weights, matrix.threads);
  return quantized;
}

}  // namespace quintet
