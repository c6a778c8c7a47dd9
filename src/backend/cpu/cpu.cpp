// The CPU backend: memory of the host, packed weights, and what it says about itself.
#include "backend/cpu/cpu.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>

#include "backend/cpu/cpu_ops.h"
#include "base/check.h"
#include "base/host_memory.h"
#include "base/units.h"

namespace quintet {
namespace {

using namespace cpu;

class CpuBackend final : public Backend {
 public:
  explicit CpuBackend(const CpuOptions& options)
      : kernels_(kernels_of(options.simd)), pool_(options.threads), ops_(pool_, kernels_) {}

  BackendInfo info() const override {
    const HostMemory memory = host_memory();
    return {.name = "cpu",
            .description = fmt::format("{}, {} thread{}", kernels_.name, pool_.threads(),
                                       pool_.threads() == 1 ? "" : "s"),
            .activation = DType::f32,
            .kv = DType::f16,
            .total_bytes = memory.total_bytes,
            .free_bytes = memory.available_bytes};
  }

  Numerics numerics() const override {
    return {.path = kernels_.fused_multiply_add ? "cpu-i16-fma" : "cpu-i16-mul-add",
            .k_slices = 1,
            .kv_split = kAttendSplit,
            .norm_tree = "64 partial sums, vectors in pairs, lanes 8 4 2 1",
            .kv_rule = "f16 always",
            .build = "gcc " __VERSION__};
  }

  Ops& ops() override { return ops_; }
  Result<uint64_t> scratch_bytes(const StepLimits& limits) const override { return CpuOps::unfused_bytes(limits); }

  Result<Buffer> allocate(size_t bytes, BufferUse use) override {
    constexpr size_t kAlignment = 256, kHugePage = size_t{2} << 20;
    const size_t rounded = (std::max<size_t>(bytes, 1) + kAlignment - 1) / kAlignment * kAlignment;
    if (rounded < bytes) return too_much(bytes);
    if (rounded >= kHugePage) {  // untouched pages of a mapping cost nothing
      void* data =
          mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (data == MAP_FAILED) return too_much(bytes);
      // A page holds every layer's keys and values: with small pages each step would miss the TLB for each.
      if (use == BufferUse::kv) madvise(data, rounded, MADV_HUGEPAGE);
      return Buffer(data, bytes, [rounded](void* p) { munmap(p, rounded); });
    }
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (!data) return too_much(bytes);
    return Buffer(data, bytes, [](void* p) { std::free(p); });
  }

  Result<Weight> prepare(WeightRole role, std::span<const HostWeight> parts) override {
    TRY_ASSIGN(auto packed, pack_weight(role, parts, arena_, pool_));
    Weight weight;
    weight.role = role;
    weight.k = packed->k;
    for (const HostWeight& part : parts) {
      weight.part_rows.push_back(part.n);
      weight.n += part.n;
    }
    weight.bytes = packed->vector.size() * sizeof(float) + packed->memory_bytes + packed->outlier_bytes;
    weight.packed = std::move(packed);
    return weight;
  }

  Status unpack(const Weight& weight, int64_t first, int64_t count, float* out) override {
    QUINTET_CHECK(first >= 0 && count >= 0 && first + count <= weight.n, "rows {} to {} of {}", first,
                  first + count, weight.n);
    for (int64_t row = 0; row < count; ++row) unpack_row(unwrap(weight), first + row, out + row * weight.k);
    return {};
  }

  PageClass page_class(int32_t layers, int32_t kv_heads, int32_t head_dim, int32_t tokens) const override {
    QUINTET_CHECK(tokens > 0 && tokens % 16 == 0, "pages of {} tokens; the cpu backend takes multiples of 16",
                  tokens);
    PageClass page{.format = 0, .tokens = tokens};
    const int64_t bytes = int64_t{layers} * 2 * kv_heads * head_bytes(page, head_dim);
    page.bytes = (bytes + 255) / 256 * 256;
    page.scale_offset = page.bytes;
    return page;
  }

  Status reserve(const StepLimits& limits) override {
    ops_.reserve(limits);
    return {};
  }

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
  Error too_much(size_t bytes) const {
    return no_room(
        fmt::format("no memory for {}; {} are free", format_bytes(bytes), format_bytes(info().free_bytes)));
  }

  const Kernels& kernels_;
  Pool pool_;
  Arena arena_;
  CpuOps ops_;
};

}  // namespace

std::unique_ptr<Backend> make_cpu_backend(const CpuOptions& options) {
  return std::make_unique<CpuBackend>(options);
}

}  // namespace quintet
