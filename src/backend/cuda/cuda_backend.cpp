// One GPU as a Backend: memory, weights, inputs of a step, results.
#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstring>

#include "backend/cuda/cuda.h"
#include "backend/cuda/ops.h"
#include "backend/cuda/rt/arena.h"
#include "backend/cuda/weights.h"
#include "base/log.h"
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
  CudaBackend(const CudaOptions& options, const cudaDeviceProp& properties, Stream stream)
      : options_(options), properties_(properties), stream_(std::move(stream)),
        site_{.stream = stream_.get(), .multiprocessors = properties.multiProcessorCount}, packer_(weights_, site_), ops_(site_) {}

  ~CudaBackend() override {
    // Buffers and weights are freed after the last kernel that may read them.
    (void)cudaStreamSynchronize(stream_.get());
  }

  BackendInfo info() const override {
    size_t free_bytes = 0, total_bytes = 0;
    (void)cudaMemGetInfo(&free_bytes, &total_bytes);
    return {.name = fmt::format("cuda:{}", options_.ordinal),
            .description = fmt::format("{}, sm_{}{}, {} multiprocessors", properties_.name, properties_.major, properties_.minor, properties_.multiProcessorCount),
            .activation = DType::f16, .kv = DType::f16, .total_bytes = total_bytes, .free_bytes = free_bytes};
  }

  Numerics numerics() const override {
    return {.path = "cuda-f16", .k_slices = kSlices, .kv_split = kSplit, .norm_tree = "chunk1024-lane8-xor-warp4", .kv_rule = "f16",
            .build = fmt::format("cuda-{} gcc-{}", CUDART_VERSION, __VERSION__)};
  }

  Ops& ops() override { return ops_; }

  Result<Buffer> allocate(size_t bytes, BufferUse use) override {
    void* memory = nullptr;
    if (use == BufferUse::staging) {
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

  Result<Weight> prepare(WeightRole role, std::span<const HostWeight> parts) override { return packer_.prepare(role, parts); }
  Status unpack(const Weight& weight, int64_t first, int64_t count, float* out) override { return packer_.unpack(weight, first, count, out); }

  PageClass page_class(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t tokens) const override {
    const int64_t bytes = int64_t{layers} * 2 * kv_heads * tokens * head_dim * 2;
    return {.format = 0, .tokens = tokens, .bytes = (bytes + 255) / 256 * 256, .scale_offset = 0};
  }

  Status reserve(const StepLimits& limits) override { return ops_.reserve(limits, scratch_); }

  Result<StepView> stage(const StepInputs& inputs) override {
    for (int32_t i = 0; i < inputs.view.logit_rows; ++i) {
      const SampleParams& params = inputs.view.sample[i];
      if (params.temperature > 0 && (params.top_k > 0 || params.top_p < 1 || params.min_p > 0))
        return bad_input("sampling on the GPU: found top-k, top-p or min-p, allowed are temperature, penalties and bias");
    }
    const auto* host = inputs.bytes.data();
    const size_t bytes = inputs.bytes.size();
    if (bytes > inputs_bytes_) {  // grows to the batch builder's buffer once, at its first step
      QUINTET_CUDA(cudaStreamSynchronize(stream_.get()));
      inputs_.reset();
      QUINTET_CUDA(cudaMalloc(inputs_.out(), bytes));
      inputs_bytes_ = bytes;
    }
    const auto* device = static_cast<const uint8_t*>(inputs_.get());
    QUINTET_CUDA(cudaMemcpyAsync(inputs_.get(), host, bytes, cudaMemcpyHostToDevice, stream_.get()));
    ops_.begin_step(inputs.view);
    StepView view = inputs.view;
    const auto moved = [&](auto*&... pointers) { (move_pointer(pointers, host, bytes, device), ...); };
    moved(view.token, view.prev, view.pos, view.seq, view.kv_slot, view.row_begin, view.context, view.block_refs, view.logit_row, view.sample,
          view.history, view.bias_token, view.bias_value, view.mask);
    return view;
  }

  Status finish(const Sampled* sampled, std::span<Sampled> out) override {
    TRY(device_status(ops_.take_error(), "launch"));
    if (!out.empty()) QUINTET_CUDA(cudaMemcpyAsync(out.data(), sampled, out.size_bytes(), cudaMemcpyDeviceToHost, stream_.get()));
    QUINTET_CUDA(cudaStreamSynchronize(stream_.get()));
    return device_status(cudaGetLastError(), "step");
  }

  Status read(const void* device, std::span<uint8_t> out) override {
    TRY(device_status(ops_.take_error(), "launch"));
    QUINTET_CUDA(cudaMemcpyAsync(out.data(), device, out.size(), cudaMemcpyDeviceToHost, stream_.get()));
    QUINTET_CUDA(cudaStreamSynchronize(stream_.get()));
    return {};
  }

  Status write(std::span<const uint8_t> bytes, void* device) override {
    QUINTET_CUDA(cudaMemcpyAsync(device, bytes.data(), bytes.size(), cudaMemcpyHostToDevice, stream_.get()));
    QUINTET_CUDA(cudaStreamSynchronize(stream_.get()));
    return {};
  }

 private:
  CudaOptions options_;
  cudaDeviceProp properties_;
  Stream stream_;
  LaunchSite site_;
  Arena weights_, scratch_;
  WeightPacker packer_;
  CudaOps ops_;
  Handle<void*, cudaFree> inputs_;
  size_t inputs_bytes_ = 0;
};

}  // namespace
}  // namespace cuda

Result<std::unique_ptr<Backend>> make_cuda_backend(const CudaOptions& options) {
  using namespace cuda;
  int count = 0;
  if (const cudaError_t code = cudaGetDeviceCount(&count); code != cudaSuccess || count == 0) {
    (void)cudaGetLastError();
    return not_found(fmt::format("--device cuda: no usable GPU: {}", code == cudaSuccess ? "the driver reports none" : cudaGetErrorString(code)));
  }
  if (options.ordinal < 0 || options.ordinal >= count)
    return not_found(fmt::format("--device cuda:{}: found {} device{}, allowed are cuda:0 to cuda:{}", options.ordinal, count, count == 1 ? "" : "s", count - 1));
  cudaDeviceProp properties;
  QUINTET_CUDA(cudaGetDeviceProperties(&properties, options.ordinal));
  if (properties.major != 9)
    return bad_input(fmt::format("--device cuda:{}: found {} with compute capability {}.{}, this build has kernels for 9.0", options.ordinal,
                                 properties.name, properties.major, properties.minor));
  QUINTET_CUDA(cudaSetDevice(options.ordinal));
  Stream stream;
  QUINTET_CUDA(cudaStreamCreateWithFlags(stream.out(), cudaStreamNonBlocking));
  return std::unique_ptr<Backend>(std::make_unique<CudaBackend>(options, properties, std::move(stream)));
}

}  // namespace quintet
