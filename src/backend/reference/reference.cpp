// The reference backend: host memory, no packing, operations that run where they are called.
#include "backend/reference/reference.h"

#include <unistd.h>

#include <cstring>
#include <new>

#include "backend/reference/reference_ops.h"
#include "backend/reference/reference_weight.h"
#include "base/units.h"

namespace quintet {
namespace {

constexpr std::align_val_t kAlignment{256};

uint64_t physical_bytes(int name) {
  const long pages = sysconf(name), page = sysconf(_SC_PAGESIZE);
  return pages > 0 && page > 0 ? static_cast<uint64_t>(pages) * static_cast<uint64_t>(page) : 0;
}

class ReferenceBackend final : public Backend {
 public:
  BackendInfo info() const override {
    return {.name = "reference",
            .description = "scalar reference, sums in double",
            .activation = DType::f32,
            .kv = DType::f32,
            .total_bytes = physical_bytes(_SC_PHYS_PAGES),
            .free_bytes = physical_bytes(_SC_AVPHYS_PAGES)};
  }

  Numerics numerics() const override {
    return {.path = "reference",
            .k_slices = 1,
            .kv_split = 0,
            .norm_tree = "ascending double",
            .kv_rule = "f32",
            .build = __VERSION__};
  }

  Ops& ops() override { return ops_; }

  Result<Buffer> allocate(size_t bytes, BufferUse) override {
    void* data = ::operator new(bytes, kAlignment, std::nothrow);
    if (!data) {
      return no_room(fmt::format("no room for {} of host memory; {} are free", format_bytes(bytes),
                                 format_bytes(physical_bytes(_SC_AVPHYS_PAGES))));
    }
    std::memset(data, 0, bytes);
    return Buffer(data, bytes, [](void* p) { ::operator delete(p, kAlignment); });
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
    const int64_t bytes = int64_t{2} * layers * kv_heads * head_dim * tokens * static_cast<int64_t>(sizeof(float));
    return {.format = 0, .tokens = tokens, .bytes = (bytes + 255) / 256 * 256, .scale_offset = 0};
  }

  Status reserve(const StepLimits&) override { return {}; }  // operations take their scratch where they need it

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
  reference::ReferenceOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_reference_backend() { return std::make_unique<ReferenceBackend>(); }

}  // namespace quintet
