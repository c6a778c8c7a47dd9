// The reference backend: host memory, no packing, operations that run where they are called.
#include "backend/reference/reference.h"

#include <sys/mman.h>

#include <cstring>

#include "backend/reference/reference_ops.h"
#include "backend/reference/reference_weight.h"
#include "base/host_memory.h"
#include "base/units.h"

namespace quintet {
namespace {

class ReferenceBackend final : public Backend {
 public:
  explicit ReferenceBackend(const ReferenceOptions& options) : kv_(options.kv), ops_(options.kv) {}

  BackendInfo info() const override {
    const HostMemory memory = host_memory();
    return {.name = "reference",
            .description = "scalar reference, sums in double",
            .activation = DType::f32,
            .kv = kv_,
            .total_bytes = memory.total_bytes,
            .free_bytes = memory.available_bytes};
  }

  Numerics numerics() const override {
    return {.path = "reference",
            .k_slices = 1,
            .kv_split = 0,
            .norm_tree = "ascending double",
            .kv_rule = dtype_name(kv_),
            .build = __VERSION__};
  }

  Ops& ops() override { return ops_; }

  Result<Buffer> allocate(size_t bytes, BufferUse) override {
    // A mapping is zero, aligned to a page, and costs nothing where it is not touched.
    const size_t mapped = bytes > 0 ? bytes : 1;
    void* data =
        mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      return no_room(fmt::format("no room for {} of host memory; {} are free", format_bytes(bytes),
                                 format_bytes(host_memory().available_bytes)));
    }
    return Buffer(data, bytes, [mapped](void* p) { munmap(p, mapped); });
  }

  Result<Weight> prepare(WeightRole role, std::span<const HostWeight> parts) override {
    return reference::prepare_weight(role, parts);
  }

  Status unpack(const Weight& weight, int64_t first, int64_t count, float* out) override {
    const auto& packed = reference::unwrap(weight);
    if (first < 0 || count < 0 || first > weight.n || count > weight.n - first)
      return bad_input(fmt::format("rows {} to {} of a weight of {} rows", first, first + count, weight.n));
    for (int64_t row = 0; row < count; ++row) packed.decode_row(first + row, out + row * packed.k);
    return {};
  }

  PageClass page_class(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t tokens) const override {
    const int64_t bytes =
        int64_t{2} * layers * kv_heads * head_dim * tokens * static_cast<int64_t>(sizeof(float));
    return {.format = 0, .tokens = tokens, .bytes = (bytes + 255) / 256 * 256, .scale_offset = 0};
  }

  Status reserve(const StepLimits&) override {
    return {};
  }  // operations take their scratch where they need it

  Result<StepView> stage(const StepInputs& inputs) override { return inputs.view; }

  Status finish(const Sampled* sampled, std::span<Sampled> out) override {
    if (!out.empty()) std::memcpy(out.data(), sampled, out.size_bytes());
    return {};
  }

  Status read(const void* device, std::span<uint8_t> out) override {
    if (!out.empty()) std::memcpy(out.data(), device, out.size());
    return {};
  }

  Status write(std::span<const uint8_t> bytes, void* device) override {
    if (!bytes.empty()) std::memcpy(device, bytes.data(), bytes.size());
    return {};
  }

 private:
  DType kv_;
  reference::ReferenceOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend(const ReferenceOptions& options) {
  return std::make_unique<ReferenceBackend>(options);
}

}  // namespace quintet
