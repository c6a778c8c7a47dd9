// Passes everything on, and shows inputs of products on the way.
#include "compress/observing_backend.h"

#include <utility>
#include <vector>

#include "base/check.h"
#include "tensor/half.h"

namespace quintet {
namespace {

class ObservingOps : public Ops {
 public:
  ObservingOps(Backend& inner, ObservingOptions options)
      : backend_(inner), inner_(inner.ops()), options_(std::move(options)) {}

  /// Room for inputs behind a norm.
  Status reserve(const StepLimits& limits) {
    const DType type = backend_.info().activation;
    TRY_ASSIGN(scratch_, backend_.allocate(static_cast<size_t>(limits.rows) *
                                               static_cast<size_t>(limits.max_k) * dtype_bytes(type),
                                           BufferUse::workspace));
    return {};
  }
  const Status& status() const { return status_; }

  void linear(const LinearArgs& args) override {
    if (before_ && args.w == options_.first) {
      before_ = false;
      if (options_.resume && status_)
        status_ = backend_.write({options_.resume(args.x.rows), dense_bytes(args.x)}, const_cast<void*>(args.x.data));
    }
    if (rests()) return;
    if (status_ && args.w == options_.kept) status_ = backend_.read(args.x.data, {options_.keep(args.x.rows), dense_bytes(args.x)});
    if (status_ && args.w == options_.leave_before) status_ = leave();
    if (status_ && options_.wants(*args.w)) status_ = show(args);
    past_ = options_.last == args.w;
    if (!past_) inner_.linear(args);
  }

  void embed(const StepView& step, const EmbedArgs& args) override {
    past_ = false;
    before_ = options_.first != nullptr;
    residual_ = args.out;
    if (!options_.enter) return inner_.embed(step, args);
    const float* rows = options_.enter(args.out.rows);
    if (status_) status_ = backend_.write({reinterpret_cast<const uint8_t*>(rows), bytes_of(args.out)}, args.out.data);
  }
  void rms_norm(ConstMatrixView x, const NormArgs& norm, MatrixView out) override {
    if (!rests()) inner_.rms_norm(x, norm, out);
  }
  void rope_store(const StepView& step, const RopeStoreArgs& args) override {
    if (!rests()) inner_.rope_store(step, args);
  }
  void attend(const StepView& step, const AttendArgs& args) override {
    if (!rests()) inner_.attend(step, args);
  }
  void gate(const GateArgs& args) override {
    if (!rests()) inner_.gate(args);
  }
  void add(ConstMatrixView x, MatrixView out) override {
    if (!rests()) inner_.add(x, out);
  }
  void gather(const StepView& step, ConstMatrixView x, MatrixView out) override {
    inner_.gather(step, x, out);
  }
  void sample(const StepView& step, const SampleArgs& args) override { inner_.sample(step, args); }
  // rope_store_attend() stays the base class's, too: that of a backend that fuses takes what its own attn_in() has left in
  // private buffers, not these arguments.
  void begin_layer(int layer) override { inner_.begin_layer(layer); }
  void end_layer(int layer) override {
    inner_.end_layer(layer);
    if (!past_ && options_.leave && !options_.leave_before && status_) status_ = leave();
  }

 private:
  bool rests() const { return past_ || before_; }

  Status leave() {
    return backend_.read(residual_.data, {reinterpret_cast<uint8_t*>(options_.leave(residual_.rows)), bytes_of(residual_)});
  }

  /// Bytes of rows that lie one behind the other, as a product's inputs do.
  static size_t dense_bytes(const ConstMatrixView& rows) {
    QUINTET_CHECK(rows.stride == rows.cols, "inputs {} apart, not {}", rows.stride, rows.cols);
    return static_cast<size_t>(rows.rows * rows.cols) * dtype_bytes(rows.type);
  }

  static size_t bytes_of(const MatrixView& rows) { return static_cast<size_t>(rows.rows * rows.cols) * sizeof(float); }

  Status show(const LinearArgs& args) {
    ConstMatrixView x = args.x;
    if (args.norm.weight) {
      const MatrixView normed{scratch_.data(), backend_.info().activation, x.rows, x.cols, x.cols};
      QUINTET_CHECK(static_cast<size_t>(x.rows * x.cols) * dtype_bytes(normed.type) <= scratch_.bytes(),
                    "inputs of {} x {}", x.rows, x.cols);
      inner_.rms_norm(x, args.norm, normed);
      x = normed;
    }
    if (options_.device_sink) return options_.device_sink(*args.w, x);
    const size_t bytes = dtype_bytes(x.type), row_bytes = static_cast<size_t>(x.cols) * bytes;
    raw_.resize(static_cast<size_t>(x.rows) * row_bytes);
    for (int64_t row = 0; row < x.rows; ++row)
      TRY(backend_.read(static_cast<const uint8_t*>(x.data) + static_cast<size_t>(row * x.stride) * bytes,
                        {raw_.data() + static_cast<size_t>(row) * row_bytes, row_bytes}));
    values_.resize(static_cast<size_t>(x.rows * x.cols));
    const WeightFormat format = x.type == DType::f16    ? WeightFormat::f16
                                : x.type == DType::bf16 ? WeightFormat::bf16
                                                        : WeightFormat::f32;
    format_info(format).decode(raw_.data(), values_.size(), values_.data());
    options_.sink(*args.w, values_.data(), x.rows, x.cols);
    return {};
  }

  Backend& backend_;
  Ops& inner_;
  ObservingOptions options_;
  MatrixView residual_{};
  bool past_ = false;    ///< the last weight of interest lies behind
  bool before_ = false;  ///< the first one is still to come
  Buffer scratch_;
  std::vector<uint8_t> raw_;
  std::vector<float> values_;
  Status status_;
};

class ObservingBackend : public Backend {
 public:
  ObservingBackend(Backend& inner, ObservingOptions options) : inner_(inner), ops_(inner, std::move(options)) {}

  BackendInfo info() const override { return inner_.info(); }
  Numerics numerics() const override { return inner_.numerics(); }
  Ops& ops() override { return ops_; }
  Result<Buffer> allocate(size_t bytes, BufferUse use) override { return inner_.allocate(bytes, use); }
  Result<uint64_t> packed_bytes(WeightRole role, std::span<const HostWeight> parts) const override {
    return inner_.packed_bytes(role, parts);
  }
  Result<uint64_t> scratch_bytes(const StepLimits& limits) const override { return inner_.scratch_bytes(limits); }
  Result<Weight> prepare(WeightRole role, std::span<const HostWeight> parts) override {
    return inner_.prepare(role, parts);
  }
  Status unpack(const Weight& weight, int64_t first, int64_t count, float* out) override {
    return inner_.unpack(weight, first, count, out);
  }
  PageClass page_class(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t tokens) const override {
    return inner_.page_class(layers, kv_heads, head_dim, tokens);
  }
  Status reserve(const StepLimits& limits) override {
    TRY(ops_.reserve(limits));
    return inner_.reserve(limits);
  }
  Result<StepView> stage(const StepInputs& inputs) override { return inner_.stage(inputs); }
  Status finish(const Sampled* sampled, std::span<Sampled> out) override {
    TRY(inner_.finish(sampled, out));
    return ops_.status();
  }
  Status read(const void* device, std::span<uint8_t> out) override { return inner_.read(device, out); }
  Status write(std::span<const uint8_t> bytes, void* device) override { return inner_.write(bytes, device); }

 private:
  Backend& inner_;
  ObservingOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_observing_backend(Backend& inner, ObservingOptions options) {
  return std::make_unique<ObservingBackend>(inner, std::move(options));
}

}  // namespace quintet
