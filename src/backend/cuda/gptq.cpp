// Blocks, and the products between them.
#include "backend/cuda/gptq.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/units.h"

namespace quintet::cuda {
namespace {

constexpr int64_t kMostInputs = 65535;   // rows of a grid
constexpr int64_t kStagedRows = 4096;    // a product of fewer rows is bound by reading and writing the Hessian
constexpr int64_t kStrip = 2048;         // columns of one product, of an upper half
constexpr int64_t kPanelRows = 512;      // of the factor, whose trailing products they make deep enough
constexpr int64_t kOuterColumns = 1024;  // that are rounded before the columns before them hear of it

const float* at(const GrowingBuffer& matrix, int64_t k, int64_t row, int64_t column) { return matrix.as<float>() + row * k + column; }

}  // namespace

Status GrowingBuffer::reserve(size_t bytes) {
  if (bytes <= bytes_) return {};
  memory_.reset();
  bytes_ = 0;
  if (const cudaError_t code = cudaMalloc(memory_.out(), bytes); code != cudaSuccess) {
    (void)cudaGetLastError();
    *memory_.out() = nullptr;
    if (code == cudaErrorMemoryAllocation) return no_room(fmt::format("GPU memory: asked for {} for GPTQ", format_bytes(bytes)));
    return device_status(code, "cudaMalloc");
  }
  bytes_ = bytes;
  return {};
}

IntegerRules rules_of(const IntegerFormat& format) {
  return {.group = format.group,
          .offset = format.code_offset(),
          .most = format.max_code(),
          .minimum = format.minimum,
          .whole_zero = format.whole_zero};
}

Gptq::Gptq(const GptqKernels& kernels, const LaunchSite& site, Cublas library)
    : kernels_(kernels), site_(site), library_(std::move(library)) {}

size_t Gptq::bytes() const {
  return hessian_.bytes() + staged_.bytes() + factor_.bytes() + vectors_.bytes() + sums_.bytes() + lost_.bytes() + counts_.bytes();
}

Status Gptq::begin(int64_t k) {
  QUINTET_CHECK(k > 0, "GPTQ of {} inputs", k);
  if (k > kMostInputs) return bad_input(fmt::format("GPTQ on a GPU: found a weight of {} inputs, allowed are {}", k, kMostInputs));
  const size_t bytes = static_cast<size_t>(k * k) * sizeof(float);
  TRY(hessian_.reserve(bytes));
  TRY(vectors_.reserve(static_cast<size_t>(2 * k + 1) * sizeof(float)));
  QUINTET_CUDA(cudaMemsetAsync(hessian_.as<void>(), 0, bytes, site_.stream));
  k_ = k;
  rows_ = staged_rows_ = 0;
  moments_.clear();
  return {};
}

Status Gptq::add(const void* x, int64_t rows, int64_t stride) {
  rows_ += rows;
  if (rows >= kStagedRows) return add_products(x, rows, stride);
  TRY(staged_.reserve(static_cast<size_t>(kStagedRows * k_) * sizeof(uint16_t)));
  if (staged_rows_ + rows > kStagedRows) TRY(flush());
  const size_t row_bytes = static_cast<size_t>(k_) * sizeof(uint16_t);
  QUINTET_CUDA(cudaMemcpy2DAsync(staged_.as<uint16_t>() + staged_rows_ * k_, row_bytes, x, static_cast<size_t>(stride) * sizeof(uint16_t),
                                 row_bytes, static_cast<size_t>(rows), cudaMemcpyDeviceToDevice, site_.stream));
  staged_rows_ += rows;
  return {};
}

Status Gptq::flush() {
  if (const int64_t rows = std::exchange(staged_rows_, 0); rows > 0) return add_products(staged_.as<void>(), rows, k_);
  return {};
}

Status Gptq::add_products(const void* x, int64_t rows, int64_t stride) {
  for (int64_t begin = 0; begin < k_; begin += kStrip) {
    const int64_t end = std::min(k_, begin + kStrip);
    TRY(library_.multiply({.m = end,
                           .n = end - begin,
                           .k = rows,
                           .a = x,
                           .a_stride = stride,
                           .a_transposed = true,
                           .b = static_cast<const uint16_t*>(x) + begin,
                           .b_stride = stride,
                           .c = hessian_.as<float>() + begin,
                           .c_stride = k_,
                           .operands = DType::f16,
                           .beta = 1}));
  }
  return {};
}

Result<std::vector<float>> Gptq::moments() {
  TRY(flush());
  auto* out = vectors_.as<float>();
  QUINTET_CUDA(kernels_.diagonal(
      {.matrix = hessian_.as<float>(), .k = static_cast<int>(k_), .scale = 1 / static_cast<float>(std::max<int64_t>(rows_, 1)), .out = out},
      site_));
  moments_.resize(static_cast<size_t>(k_));
  QUINTET_CUDA(cudaMemcpyAsync(moments_.data(), out, moments_.size() * sizeof(float), cudaMemcpyDeviceToHost, site_.stream));
  QUINTET_CUDA(cudaStreamSynchronize(site_.stream));
  return moments_;
}

Result<std::string> Gptq::factor(std::string_view name, const GptqOptions& options) {
  QUINTET_CHECK(!moments_.empty(), "tensor {}: a factor before moments", name);
  TRY_ASSIGN(const InputOrder inputs, order_inputs(name, moments_, options.act_order));
  TRY(factor_.reserve(static_cast<size_t>(k_ * k_) * sizeof(float)));
  const std::vector<int32_t> reversed(inputs.order.rbegin(), inputs.order.rend());
  QUINTET_CUDA(cudaMemcpyAsync(vectors_.as<int32_t>() + k_, reversed.data(), reversed.size() * sizeof(int32_t), cudaMemcpyHostToDevice,
                               site_.stream));
  TRY_ASSIGN(std::string note, damp_until_regular(name, options.damping, [&](double damping) { return factors(damping, inputs.mean); }));
  QUINTET_CUDA(kernels_.unit_rows(factor_.as<float>(), static_cast<int>(k_), site_));
  return note;
}

Result<bool> Gptq::factors(double damping, double mean) {
  const auto k = static_cast<int>(k_);
  const auto* order = vectors_.as<int32_t>() + k_;
  auto* failed = vectors_.as<int>() + 2 * k_;
  QUINTET_CUDA(kernels_.arrange({.hessian = hessian_.as<float>(),
                                 .order = order,
                                 .k = k,
                                 .scale = 1 / static_cast<float>(std::max<int64_t>(rows_, 1)),
                                 .out = factor_.as<float>()},
                                site_));
  QUINTET_CUDA(kernels_.diagonal(
      {.matrix = factor_.as<float>(), .k = k, .from = vectors_.as<float>(), .order = order, .add = static_cast<float>(damping * mean)},
      site_));
  QUINTET_CUDA(cudaMemsetAsync(failed, 0, sizeof(int), site_.stream));
  for (int64_t begin = 0; begin < k_; begin += kPanelRows) {
    const int64_t end = std::min(k_, begin + kPanelRows);
    TRY(factor_panel(begin, end));
    // What the panel takes from the columns behind it: the upper half by strips.
    for (int64_t first = end; first < k_; first += kStrip) {
      const int64_t last = std::min(k_, first + kStrip);
      TRY(library_.multiply({.m = last - end,
                             .n = last - first,
                             .k = end - begin,
                             .a = at(factor_, k_, begin, end),
                             .a_stride = k_,
                             .a_transposed = true,
                             .b = at(factor_, k_, begin, first),
                             .b_stride = k_,
                             .c = factor_.as<float>() + end * k_ + first,
                             .c_stride = k_,
                             .alpha = -1,
                             .beta = 1}));
    }
  }
  int host_failed = 0;
  QUINTET_CUDA(cudaMemcpyAsync(&host_failed, failed, sizeof(int), cudaMemcpyDeviceToHost, site_.stream));
  QUINTET_CUDA(cudaStreamSynchronize(site_.stream));
  return host_failed == 0;
}

/// Rows [begin, end) of the factor over all columns.
Status Gptq::factor_panel(int64_t begin, int64_t end) {
  auto* matrix = factor_.as<float>();
  for (int64_t first = begin; first < end; first += kFactorBlock) {
    const int64_t rows = std::min<int64_t>(kFactorBlock, end - first), behind = first + rows;
    const FactorParams block{.matrix = matrix,
                             .k = static_cast<int>(k_),
                             .at = static_cast<int>(first),
                             .rows = static_cast<int>(rows),
                             .failed = vectors_.as<int>() + 2 * k_};
    QUINTET_CUDA(kernels_.factor_block(block, site_));
    if (behind == k_) break;
    QUINTET_CUDA(kernels_.solve_block(block, site_));
    if (behind == end) break;
    TRY(library_.multiply({.m = end - behind,
                           .n = k_ - behind,
                           .k = rows,
                           .a = at(factor_, k_, first, behind),
                           .a_stride = k_,
                           .a_transposed = true,
                           .b = at(factor_, k_, first, behind),
                           .b_stride = k_,
                           .c = matrix + behind * k_ + behind,
                           .c_stride = k_,
                           .alpha = -1,
                           .beta = 1}));
  }
  return {};
}

RangesParams Gptq::ranges_of(const Matrix& matrix) const {
  return {.weights = matrix.weights,
          .moments = vectors_.as<float>(),
          .kept = matrix.kept,
          .n = static_cast<int>(matrix.n),
          .k = static_cast<int>(k_),
          .rules = matrix.rules,
          .ranges = matrix.ranges,
          .scores = sums_.as<float>()};
}

Status Gptq::find_ranges(const Matrix& matrix) { return device_status(kernels_.ranges(ranges_of(matrix), site_), "ranges"); }

Status Gptq::choose_outliers(const Matrix& matrix, double share) {
  constexpr int kRounds = 3;  // as OutlierChooser
  const int64_t weights = matrix.n * k_, wanted = std::llround(share * static_cast<double>(weights));
  TRY(sums_.reserve(static_cast<size_t>(weights) * sizeof(float)));
  TRY(counts_.reserve(static_cast<size_t>(std::max<int64_t>(kScoreCounts, matrix.n)) * sizeof(uint32_t)));
  QUINTET_CUDA(cudaMemsetAsync(matrix.kept, 1, static_cast<size_t>(weights), site_.stream));
  int64_t taken = 0;
  for (int round = 1; round <= kRounds; ++round) {
    TRY(find_ranges(matrix));
    QUINTET_CUDA(kernels_.scores(ranges_of(matrix), site_));
    const int64_t until = wanted * round / kRounds;
    TRY(take_best(matrix, until - taken));
    taken = until;
  }
  return find_ranges(matrix);
}

/// Makes the `count` weights with the highest scores outliers; of equal ones the first.
Status Gptq::take_best(const Matrix& matrix, int64_t count) {
  if (count <= 0) return {};
  std::vector<uint32_t> counts(static_cast<size_t>(std::max<int64_t>(kScoreCounts, matrix.n)));
  auto* on_device = counts_.as<uint32_t>();
  ScoresParams p{.scores = sums_.as<float>(), .n = static_cast<int>(matrix.n), .k = static_cast<int>(k_), .counts = on_device};
  const auto fetch = [&](size_t entries) -> Status {
    QUINTET_CUDA(cudaMemcpyAsync(counts.data(), on_device, entries * sizeof(uint32_t), cudaMemcpyDeviceToHost, site_.stream));
    QUINTET_CUDA(cudaStreamSynchronize(site_.stream));
    return {};
  };
  int64_t rank = count;  // of the threshold, among those that are not yet known to lie above it
  for (const int half : {0, 1}) {
    p.upper = half == 0 ? -1 : static_cast<int>(p.threshold);
    QUINTET_CUDA(cudaMemsetAsync(on_device, 0, kScoreCounts * sizeof(uint32_t), site_.stream));
    QUINTET_CUDA(kernels_.count_scores(p, site_));
    TRY(fetch(kScoreCounts));
    uint32_t at = kScoreCounts - 1;
    for (; at > 0 && counts[at] < rank; --at) rank -= counts[at];
    p.threshold = half == 0 ? at : p.threshold << 16 | at;
  }
  QUINTET_CUDA(kernels_.take_scores(p, site_));
  const auto rows = static_cast<size_t>(matrix.n);
  TRY(fetch(rows));
  for (size_t row = 0; row < rows; ++row) {
    counts[row] = static_cast<uint32_t>(std::min<int64_t>(counts[row], rank));
    rank -= counts[row];
  }
  QUINTET_CUDA(cudaMemcpyAsync(on_device, counts.data(), rows * sizeof(uint32_t), cudaMemcpyHostToDevice, site_.stream));
  p.kept = matrix.kept;
  QUINTET_CUDA(kernels_.take_scores(p, site_));
  QUINTET_CUDA(cudaStreamSynchronize(site_.stream));  // `counts` goes
  return {};
}

Status Gptq::round(const Matrix& matrix) {
  const int64_t n = matrix.n;
  TRY(sums_.reserve(static_cast<size_t>(n * k_) * sizeof(float)));
  TRY(lost_.reserve(static_cast<size_t>(n * kOuterColumns) * sizeof(float)));
  QUINTET_CUDA(cudaMemsetAsync(sums_.as<void>(), 0, static_cast<size_t>(n * k_) * sizeof(float), site_.stream));
  auto* sums = sums_.as<float>();
  const auto* lost = lost_.as<float>();
  RoundParams p{.weights = matrix.weights,
                .kept = matrix.kept,
                .ranges = matrix.ranges,
                .order = vectors_.as<int32_t>() + k_,
                .factor = factor_.as<float>(),
                .sums = sums,
                .lost = lost_.as<float>(),
                .codes = matrix.codes,
                .n = static_cast<int>(n),
                .k = static_cast<int>(k_),
                .lost_stride = static_cast<int>(kOuterColumns),
                .rules = matrix.rules};
  for (int64_t outer = (k_ - 1) / kOuterColumns * kOuterColumns; outer >= 0; outer -= kOuterColumns) {
    const int64_t end = std::min(k_, outer + kOuterColumns);
    for (int64_t begin = outer + (end - outer - 1) / kRoundColumns * kRoundColumns; begin >= outer; begin -= kRoundColumns) {
      p.begin = static_cast<int>(begin);
      p.columns = static_cast<int>(std::min<int64_t>(kRoundColumns, end - begin));
      p.lost_begin = static_cast<int>(begin - outer);
      QUINTET_CUDA(kernels_.round(p, site_));
      if (begin == outer) break;
      TRY(library_.multiply({.m = n,
                             .n = begin - outer,
                             .k = p.columns,
                             .a = lost + p.lost_begin,
                             .a_stride = kOuterColumns,
                             .b = at(factor_, k_, outer, begin),
                             .b_stride = k_,
                             .b_transposed = true,
                             .c = sums + outer,
                             .c_stride = k_,
                             .beta = 1}));
    }
    if (outer == 0) break;
    TRY(library_.multiply({.m = n,
                           .n = outer,
                           .k = end - outer,
                           .a = lost,
                           .a_stride = kOuterColumns,
                           .b = at(factor_, k_, 0, outer),
                           .b_stride = k_,
                           .b_transposed = true,
                           .c = sums,
                           .c_stride = k_,
                           .beta = 1}));
  }
  return {};
}

}  // namespace quintet::cuda
