// Between host memory and GPTQ on the device: weights up, codes and ranges down, blocks packed by the CPU.
#include "backend/cuda/weight_solver.h"

#include <cmath>

#include "backend/cuda/gptq.h"
#include "backend/cuda/upload.h"
#include "base/parallel.h"
#include "quant/quantize_rows.h"

namespace quintet::cuda {
namespace {

static_assert(sizeof(IntegerRange) == sizeof(float2), "ranges are copied as they are");

class CudaWeightSolver : public WeightSolver {
 public:
  CudaWeightSolver(const GptqKernels& kernels, const LaunchSite& site, int ordinal, IssuePending issue_pending, Cublas library)
      : stream_(site.stream), ordinal_(ordinal), issue_pending_(std::move(issue_pending)), gptq_(kernels, site, std::move(library)) {}
  ~CudaWeightSolver() override {
    // Nothing may read what is freed now.
    use_device();
    (void)cudaStreamSynchronize(stream_);
  }

  Status begin(int64_t k) override {
    use_device();
    note_.clear();
    return gptq_.begin(k);
  }
  Status add(ConstMatrixView x) override {
    use_device();
    QUINTET_CHECK(x.type == DType::f16 && x.cols == gptq_.k(), "GPTQ's inputs of {} columns, {}", x.cols, dtype_name(x.type));
    TRY(issue_pending_());
    return gptq_.add(x.data, x.rows, x.stride);
  }
  Result<std::vector<float>> moments() override {
    use_device();
    return gptq_.moments();
  }
  Result<std::string> factor(std::string_view name, const GptqOptions& options) override {
    use_device();
    TRY_ASSIGN(note_, gptq_.factor(name, options));
    return note_;
  }

  Result<QuantizedMatrix> quantize(const MatrixToQuantize& matrix, const IntegerFormat& format, double outlier_share) override {
    use_device();
    const int64_t n = matrix.n, k = matrix.k, groups = k / format.group;
    QUINTET_CHECK(k == gptq_.k(), "tensor {}: {} inputs, and a Hessian of {}", matrix.name, k, gptq_.k());
    const auto weights = static_cast<size_t>(n * k);
    TRY(weights_.reserve(weights * sizeof(float)));
    TRY(codes_.reserve(weights));
    TRY(ranges_.reserve(static_cast<size_t>(n * groups) * sizeof(float2)));
    const bool outliers = std::llround(outlier_share * static_cast<double>(weights)) > 0;
    if (outliers) TRY(kept_.reserve(weights));
    TRY(upload(std::span(matrix.weights, weights), weights_));
    const Gptq::Matrix on_device{.weights = weights_.as<float>(),
                                 .n = n,
                                 .rules = rules_of(format),
                                 .kept = outliers ? kept_.as<uint8_t>() : nullptr,
                                 .ranges = ranges_.as<float2>(),
                                 .codes = codes_.as<uint8_t>()};
    TRY(outliers ? gptq_.choose_outliers(on_device, outlier_share) : gptq_.find_ranges(on_device));
    TRY(gptq_.round(on_device));

    if (codes_read_.size() < weights) codes_read_ = std::vector<uint8_t>(weights);
    std::vector<float> changed(outliers ? weights : 0);
    OutlierChoice choice{.kept = std::vector<uint8_t>(outliers ? weights : 0),
                         .ranges = std::vector<IntegerRange>(static_cast<size_t>(n * groups))};
    TRY(download(codes_, codes_read_.data(), weights));
    TRY(download(ranges_, choice.ranges.data(), choice.ranges.size() * sizeof(IntegerRange)));
    if (outliers) {
      TRY(download(kept_, choice.kept.data(), weights));
      TRY(download(weights_, changed.data(), changed.size() * sizeof(float)));
    }
    QUINTET_CUDA(cudaStreamSynchronize(stream_));
    RowWriter writer(matrix, format);
    parallel_for(n, matrix.threads, [&](int64_t row) { writer.write(row, choice.ranges.data() + row * groups, codes_read_.data() + row * k); });
    QuantizedMatrix quantized = writer.finish();
    add_outliers(choice, quantized, changed.data(), matrix.threads);
    quantized.note = note_;
    return quantized;
  }

 private:
  void use_device() const { (void)cudaSetDevice(ordinal_); }

  template <class Values>
  Status upload(const Values& values, const GrowingBuffer& to) {
    const std::span<const uint8_t> bytes(reinterpret_cast<const uint8_t*>(values.data()), values.size() * sizeof(values[0]));
    const auto consume = [&](size_t offset, std::span<const uint8_t> device, cudaStream_t stream) {
      return cudaMemcpyAsync(to.as<uint8_t>() + offset, device.data(), device.size(), cudaMemcpyDeviceToDevice, stream);
    };
    const Uploader::Source source = {.bytes = bytes, .consume = consume};
    return uploader_.send({&source, 1}, stream_);
  }
  Status download(const GrowingBuffer& from, void* to, size_t bytes) const {
    QUINTET_CUDA(cudaMemcpyAsync(to, from.as<void>(), bytes, cudaMemcpyDeviceToHost, stream_));
    return {};
  }

  cudaStream_t stream_;
  int ordinal_;
  IssuePending issue_pending_;
  Gptq gptq_;
  Uploader uploader_;
  GrowingBuffer weights_, codes_, ranges_, kept_;
  std::vector<uint8_t> codes_read_;  ///< memory that is there already
  std::string note_;
};

}  // namespace

Result<std::unique_ptr<WeightSolver>> make_weight_solver(const GptqKernels& kernels, const LaunchSite& site, int ordinal,
                                                         IssuePending issue_pending) {
  std::optional<Cublas> library = Cublas::open(site.stream);
  if (!library)
    return not_found(
        "found no cuBLAS that starts (libcublas.so.13 or .12 on the library path): GPTQ's Hessians, factors and rounding are left to the "
        "CPU");
  return std::unique_ptr<WeightSolver>(
      std::make_unique<CudaWeightSolver>(kernels, site, ordinal, std::move(issue_pending), std::move(*library)));
}

}  // namespace quintet::cuda
