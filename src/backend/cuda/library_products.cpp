// Times cuBLAS.
#include "backend/cuda/library_products.h"

#include <algorithm>
#include <array>
#include <vector>

#include "backend/cuda/cublas.h"
#include "backend/cuda/rt/status.h"

namespace quintet {
namespace {

using cuda::Cublas;
using cuda::Event;
using cuda::Handle;

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
  const std::optional<Cublas> library = Cublas::open(nullptr);
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
      const Status done = library->multiply({.m = rows, .n = shape.n, .k = shape.k, .a = x.get(), .a_stride = shape.k, .b = at, .b_stride = shape.k,
                                             .b_transposed = true, .c = out.get(), .c_stride = shape.n, .operands = DType::f16, .result = DType::f16});
      if (!done) return std::optional<double>();
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
