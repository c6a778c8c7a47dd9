// CUDA's return codes as Status, and the runtime's handles as owners.
#pragma once

#include <cuda_runtime_api.h>

#include <utility>

#include "base/result.h"

namespace quintet::cuda {

/// An error of the device as ours: out of memory is no_room, the rest internal.
inline Status device_status(cudaError_t code, const char* what) {
  if (code == cudaSuccess) return {};
  std::string message = fmt::format("CUDA: {}: {} ({})", what, cudaGetErrorString(code), cudaGetErrorName(code));
  if (code == cudaErrorMemoryAllocation) return no_room(std::move(message));
  return internal_error(std::move(message));
}

/// Owns a stream, event, graph or pointer; `kDestroy` frees it. Move-only.
template <class T, auto kDestroy>
class Handle {
 public:
  Handle() = default;
  explicit Handle(T value) : value_(value) {}
  Handle(Handle&& other) noexcept : value_(std::exchange(other.value_, T{})) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      value_ = std::exchange(other.value_, T{});
    }
    return *this;
  }
  ~Handle() { reset(); }
  T get() const { return value_; }
  T* out() { return &value_; }
  void reset() {
    // A failing destructor has nobody to tell; a latched error shows at the next finish().
    if (value_) (void)kDestroy(value_);
    value_ = T{};
  }

 private:
  T value_{};
};

using Stream = Handle<cudaStream_t, cudaStreamDestroy>;
using Event = Handle<cudaEvent_t, cudaEventDestroy>;
using Graph = Handle<cudaGraph_t, cudaGraphDestroy>;
using GraphExec = Handle<cudaGraphExec_t, cudaGraphExecDestroy>;

}  // namespace quintet::cuda

/// TRY for a CUDA call: QUINTET_CUDA(cudaMalloc(&p, n)) returns its Status on failure.
#define QUINTET_CUDA(call) TRY(::quintet::cuda::device_status((call), #call))
