// Looks cuBLAS up at run time (it is never linked: half a gigabyte that serving does not need) and times it.
#include "backend/cuda/library_products.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "backend/cuda/rt/status.h"

namespace quintet {
namespace {

using cuda::Event;
using cuda::Handle;

struct LibraryDeleter {
  void operator()(void* library) const { dlclose(library); }
};
struct HandleDeleter {
  int (*destroy)(void*) = nullptr;
  void operator()(void* handle) const { destroy(handle); }
};

/// The few functions of cuBLAS that are needed, with the values of its enums (cublas_api.h, library_types.h).
class Cublas {
 public:
  static std::optional<Cublas> open() {
    Cublas out;
    for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
      if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
        out.library_.reset(library);
        break;
      }
    if (!out.library_) return std::nullopt;
    int (*create)(void**) = nullptr;
    void* handle = nullptr;
    if (!out.look_up(create, "cublasCreate_v2") || !out.look_up(out.destroy_, "cublasDestroy_v2") ||
        !out.look_up(out.gemm_, "cublasGemmEx") || create(&handle) != kSuccess)
      return std::nullopt;
    out.handle_ = {handle, HandleDeleter{out.destroy_}};
    return out;
  }

  /// Row-major out = x w^T is column-major out^T = w x^T, with w transposed.
  bool product(const ProductShape& shape, int64_t rows, const void* w, const void* x, void* out) const {
    constexpr int kTransposed = 1, kAsItIs = 0, kHalf = 2 /* CUDA_R_16F */, kComputeF32 = 68, kDefaultAlgorithm = -1;
    const float one = 1, zero = 0;
    const auto n = static_cast<int>(shape.n), k = static_cast<int>(shape.k), m = static_cast<int>(rows);
    return gemm_(handle_.get(), kTransposed, kAsItIs, n, m, k, &one, w, kHalf, k, x, kHalf, k, &zero, out, kHalf, n, kComputeF32,
                 kDefaultAlgorithm) == kSuccess;
  }

 private:
  static constexpr int kSuccess = 0;

  template <class Function>
  bool look_up(Function*& function, const char* name) const {
    function = reinterpret_cast<Function*>(dlsym(library_.get(), name));
    return function != nullptr;
  }

  std::unique_ptr<void, LibraryDeleter> library_;
  int (*destroy_)(void*) = nullptr;
  int (*gemm_)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int,
               int) = nullptr;
  std::unique_ptr<void, HandleDeleter> handle_;
};

/// Random halves between -1 and 1: zeros would let the chip clock higher than it does at work.
Status fill(uint16_t* device, size_t count) {
  std::vector<uint16_t> some(std::min<size_t>(count, size_t{1} << 20));
  uint64_t state = 0x9E3779B97F4A7C15u;
  for (uint16_t& value : some) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;  // xorshift64 (Marsaglia 2003)
    value = static_cast<uint16_t>((state & 0x83FF) | 0x3000 | (state >> 8 & 0x0800));
  }
  for (size_t at = 0; at < count; at += some.size())
    QUINTET_CUDA(cudaMemcpy(device + at, some.data(), std::min(some.size(), count - at) * sizeof(uint16_t), cudaMemcpyHostToDevice));
  return {};
}

}  // namespace

Result<std::optional<double>> measure_library_products(std::span<const ProductShape> products, int64_t rows) {
  const std::optional<Cublas> library = Cublas::open();
  if (!library) return std::optional<double>();
  size_t weights = 0, longest = 0;
  for (const ProductShape& shape : products) {
    weights += static_cast<size_t>(shape.n * shape.k);
    longest = std::max(longest, static_cast<size_t>(std::max(shape.n, shape.k) * rows));
  }
  Handle<void*, cudaFree> w, x, out;
  for (const auto& [handle, count] : {std::pair{&w, weights}, std::pair{&x, longest}, std::pair{&out, longest}})
    if (cudaMalloc(handle->out(), count * sizeof(uint16_t)) != cudaSuccess) {
      (void)cudaGetLastError();
      return std::optional<double>();
    }
  TRY(fill(static_cast<uint16_t*>(w.get()), weights));
  TRY(fill(static_cast<uint16_t*>(x.get()), longest));
  Event begin, end;
  QUINTET_CUDA(cudaEventCreate(begin.out()));
  QUINTET_CUDA(cudaEventCreate(end.out()));
  constexpr int kWarmups = 2;
  std::array<float, 7 + kWarmups> ms{};
  for (float& round : ms) {
    QUINTET_CUDA(cudaEventRecord(begin.get()));
    const auto* at = static_cast<const uint16_t*>(w.get());
    for (const ProductShape& shape : products) {
      if (!library->product(shape, rows, at, x.get(), out.get())) return std::optional<double>();
      at += shape.n * shape.k;
    }
    QUINTET_CUDA(cudaEventRecord(end.get()));
    QUINTET_CUDA(cudaEventSynchronize(end.get()));
    QUINTET_CUDA(cudaEventElapsedTime(&round, begin.get(), end.get()));
  }
  std::sort(ms.begin() + kWarmups, ms.end());
  return std::optional<double>(ms[kWarmups + (ms.size() - kWarmups) / 2]);
}

}  // namespace quintet
