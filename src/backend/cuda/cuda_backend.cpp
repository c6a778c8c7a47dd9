// One GPU as a Backend: memory, weights, inputs of a step, results.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "backend/cuda/cuda.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/path.h"
#include "backend/cuda/rt/arena.h"
#include "backend/cuda/step_graphs.h"
#include "backend/cuda/weight_solver.h"
#include "backend/cuda/weights.h"
#include "base/log.h"
#include "base/printable.h"
#include "base/units.h"

namespace quintet {
namespace cuda {
namespace {

/// Moves a pointer of the host's StepInputs into the device's copy of the same bytes.
template <class T>
void move_pointer(const T*& pointer, const uint8_t* host, size_t bytes, const uint8_t* device) {
  if (!pointer) return;
  const auto offset = static_cast<size_t>(reinterpret_cast<const uint8_t*>(pointer) - host);
  QUINTET_CHECK(offset <= bytes, "a step's input lies outside its staging memory");
  pointer = reinterpret_cast<const T*>(device + offset);
}

class CudaBackend : public Backend {
 public:
  CudaBackend(const CudaOptions& options, const DeviceKernels& kernels, const cudaDeviceProp& properties, Stream stream)
      : options_(options), gptq_kernels_(*kernels.gptq), path_(kernels.path), properties_(properties), stream_(std::move(stream)),
        site_(launch_site(properties, options, stream_.get())), packer_(*kernels.kernels, weights_, site_),
        ops_(*kernels.kernels, site_, options.table.value_or(committed_kernel_table(properties.name))), graphs_(ops_, site_) {}

  ~CudaBackend() override {
    // Buffers and weights are freed after the last kernel that may read them.
    (void)cudaStreamSynchronize(stream_.get());
  }

  BackendInfo info() const override {
    use_device();
    size_t free_bytes = 0, total_bytes = 0;
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    return {.name = fmt::format("cuda:{}", options_.ordinal),
            .description = fmt::format("{}, sm_{}{}, {} multiprocessors, {} kernels", properties_.name, properties_.major, properties_.minor,
                                       properties_.multiProcessorCount, cuda_path_name(path_)),
            .activation = DType::f16, .kv = DType::f16, .asynchronous = true, .total_bytes = total_bytes, .free_bytes = free_bytes};
  }

  Numerics numerics() const override {
    // Both sets of kernels give the same bits on one device; tensor cores of another generation add in another way.
    return {.path = fmt::format("cuda-f16-sm_{}{}", properties_.major, properties_.minor), .k_slices = kSlices, .kv_split = kSplit, .norm_tree = "chunk1024-lane8-xor-warp4", .kv_rule = "f16",
            .build = fmt::format("cuda-{} gcc-{}", CUDART_VERSION, __VERSION__)};
  }

  Ops& ops() override { return ops_; }

  Result<Buffer> allocate(size_t bytes, BufferUse use) override {
    use_device();
    void* memory = nullptr;
    if (use == BufferUse::staging) {
      TRY(reserve_inputs(bytes));
      QUINTET_CUDA(cudaMallocHost(&memory, std::max<size_t>(bytes, 1)));
      return Buffer(memory, bytes, [](void* pointer) { (void)cudaFreeHost(pointer); });
    }
    if (const cudaError_t code = cudaMalloc(&memory, std::max<size_t>(bytes, 1)); code != cudaSuccess) {
      (void)cudaGetLastError();
      return no_room(fmt::format("GPU memory: asked for {}, free are {}", format_bytes(bytes), format_bytes(info().free_bytes)));
    }
    if (use == BufferUse::workspace) QUINTET_CUDA(cudaMemsetAsync(memory, 0, bytes, stream_.get()));
    return Buffer(memory, bytes, [](void* pointer) { (void)cudaFree(pointer); });
  }

  Result<uint64_t> packed_bytes(WeightRole role, std::span<const HostWeight> parts) const override { return packer_.packed_bytes(role, parts); }
  Result<uint64_t> scratch_bytes(const StepLimits& limits) const override { return ops_.scratch_bytes(limits); }

  Result<Weight> prepare(WeightRole role, std::span<const HostWeight> parts) override {
    use_device();
    return packer_.prepare(role, parts);
  }
  Status unpack(const Weight& weight, int64_t first, int64_t count, float* out) override {
    use_device();
    return packer_.unpack(weight, first, count, out);
  }

  PageClass page_class(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t tokens) const override {
    const int64_t bytes = int64_t{layers} * 2 * kv_heads * tokens * head_dim * 2;
    return {.format = 0, .tokens = tokens, .bytes = (bytes + 255) / 256 * 256, .scale_offset = 0};
  }

  Status reserve(const StepLimits& limits) override {
    use_device();
    packer_.release();
    // Calibration asks again for each sequence.
    if (reserved_ && limits == limits_) return {};
    reserved_ = false;
    ops_.forget_scratch();
    scratch_.release_unheld();
    limits_ = limits;
    for (Event& event : posted_)
      if (!event.get()) QUINTET_CUDA(cudaEventCreateWithFlags(event.out(), cudaEventDisableTiming));
    TRY(ops_.reserve(limits, scratch_));
    reserved_ = true;
    return {};
  }

  Status prepare_steps(const IssueStep& issue, int32_t block_tokens) override {
    use_device();
    if (options_.eager) return {};
    return graphs_.prepare(limits_, block_tokens, issue);
  }

  Status run(const StepInputs& inputs, const IssueStep& issue) override {
    use_device();
    TRY_ASSIGN(const bool replayed, graphs_.replay(inputs));
    if (!replayed) TRY(Backend::run(inputs, issue));
    ops_.flush();
    return {};
  }

  Result<StepView> stage(const StepInputs& inputs) override {
    use_device();
    const auto* host = inputs.bytes.data();
    const size_t bytes = inputs.bytes.size();
    QUINTET_CHECK(bytes <= inputs_bytes_, "a step's inputs of {} bytes lie outside staging memory", bytes);
    const auto* device = static_cast<const uint8_t*>(inputs_.get());
    QUINTET_CUDA(cudaMemcpyAsync(inputs_.get(), host, bytes, cudaMemcpyHostToDevice, stream_.get()));
    ops_.begin_step(inputs.view);
    StepView view = inputs.view;
    const auto moved = [&](auto*&... pointers) { (move_pointer(pointers, host, bytes, device), ...); };
    moved(view.token, view.prev, view.pos, view.seq, view.kv_slot, view.row_begin, view.context, view.block_refs, view.logit_row, view.sample,
          view.history, view.bias_token, view.bias_value, view.mask);
    return view;
  }

  Status post(const Sampled* sampled, std::span<Sampled> out, int turn) override {
    use_device();
    TRY(device_status(ops_.take_error(), "launch"));
    if (!out.empty()) QUINTET_CUDA(cudaMemcpyAsync(out.data(), sampled, out.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()));
    QUINTET_CUDA(cudaEventRecord(posted_[static_cast<size_t>(turn)].get(), stream_.get()));
    return {};
  }

  Status await(int turn) override {
    use_device();
    QUINTET_CUDA(cudaEventSynchronize(posted_[static_cast<size_t>(turn)].get()));
    return device_status(cudaGetLastError(), "step");
  }

  Status finish(const Sampled* sampled, std::span<Sampled> out) override {
    use_device();
    TRY(device_status(ops_.take_error(), "launch"));
    if (!out.empty()) QUINTET_CUDA(cudaMemcpyAsync(out.data(), sampled, out.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()));
    QUINTET_CUDA(cudaStreamSynchronize(stream_.get()));
    return device_status(cudaGetLastError(), "step");
  }

  Status read(const void* device, std::span<uint8_t> out) override {
    use_device();
    TRY(device_status(ops_.take_error(), "launch"));
    QUINTET_CUDA(cudaMemcpyAsync(out.data(), device, out.size(), cudaMemcpyDefault, stream_.get()));
    QUINTET_CUDA(cudaStreamSynchronize(stream_.get()));
    return {};
  }

  Status write(std::span<const uint8_t> bytes, void* device) override {
    use_device();
    QUINTET_CUDA(cudaMemcpyAsync(device, bytes.data(), bytes.size(), cudaMemcpyDefault, stream_.get()));
    QUINTET_CUDA(cudaStreamSynchronize(stream_.get()));
    return {};
  }

  Result<std::unique_ptr<WeightSolver>> make_weight_solver() override {
    use_device();
    return cuda::make_weight_solver(gptq_kernels_, site_, options_.ordinal, [this] { return device_status(ops_.take_error(), "launch"); });
  }

 private:
  /// The runtime's current device is a thread's own, and an engine runs on another thread than the one that loads.
  void use_device() const { (void)cudaSetDevice(options_.ordinal); }

  /// Room on the device for what any staging memory may hold, so that no step allocates.
  Status reserve_inputs(size_t bytes) {
    if (bytes <= inputs_bytes_) return {};
    QUINTET_CUDA(cudaStreamSynchronize(stream_.get()));
    inputs_.reset();
    inputs_bytes_ = 0;
    QUINTET_CUDA(cudaMalloc(inputs_.out(), bytes));
    inputs_bytes_ = bytes;
    return {};
  }

  CudaOptions options_;
  const GptqKernels& gptq_kernels_;
  CudaPath path_;
  cudaDeviceProp properties_;
  Stream stream_;
  LaunchSite site_;
  Arena weights_, scratch_;
  WeightPacker packer_;
  CudaOps ops_;
  StepGraphs graphs_;
  StepLimits limits_;
  bool reserved_ = false;  ///< scratch for limits_
  std::array<Event, 2> posted_;
  Handle<void*, cudaFree> inputs_;
  size_t inputs_bytes_ = 0;
};

}  // namespace
}  // namespace cuda

namespace {

Error no_device(cudaError_t code) {
  int driver = 0;
  (void)cudaDriverGetVersion(&driver);
  (void)cudaGetLastError();
  const auto version = [](int number) { return fmt::format("{}.{}", number / 1000, number % 1000 / 10); };
  if (driver == 0) return not_found("--device cuda: this machine has no NVIDIA driver");
  if (driver / 1000 < CUDART_VERSION / 1000)
    return not_found(fmt::format("--device cuda: found a driver for CUDA {}, allowed are {} and newer", version(driver), version(CUDART_VERSION / 1000 * 1000)));
  return not_found(fmt::format("--device cuda: no usable GPU: {}", code == cudaSuccess ? "the driver reports none" : cudaGetErrorString(code)));
}

}  // namespace

std::string cuda_device_name(int ordinal) {
  cudaDeviceProp properties;
  return cudaGetDeviceProperties(&properties, ordinal) == cudaSuccess ? properties.name : "";
}

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options) {
  using namespace cuda;
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess || count == 0) return no_device(code);
  if (options.ordinal < 0 || options.ordinal >= count)
    return not_found(fmt::format("--device cuda:{}: found {} GPU{}, allowed {}", options.ordinal, count, count == 1 ? "" : "s",
                                 count == 1 ? "is cuda:0" : fmt::format("are cuda:0 to cuda:{}", count - 1)));
  cudaDeviceProp properties;
  QUINTET_CUDA(cudaGetDeviceProperties(&properties, options.ordinal));
  if (options.table && !options.table->device.empty() && options.table->device != properties.name)
    return bad_input(fmt::format("--kernel-table: found a table of '{}', allowed with --device cuda:{} is one of '{}'", one_line(options.table->device, 80),
                                 options.ordinal, properties.name));
  const auto kernels = device_kernels(options.path, properties);
  if (!kernels) return bad_input(fmt::format("--device cuda:{}: {}: {}", options.ordinal, properties.name, kernels.error().message));
  QUINTET_CUDA(cudaSetDevice(options.ordinal));
  Stream stream;
  QUINTET_CUDA(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking));
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(options, *kernels, properties, std::move(stream)));
}

}  // namespace quintet
