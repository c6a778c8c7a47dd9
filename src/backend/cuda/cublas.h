// cuBLAS, looked up at run time: it is never linked, being half a gigabyte that serving does not need.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.h"
#include "tensor/dtype.h"

namespace quintet::cuda {

/// c [m, n] = alpha * a b + beta * c of row-major matrices on the device, summed up in FP32 (never TF32).
struct LibraryProduct {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;  ///< [m, k], or [k, m] where transposed
  int64_t a_stride = 0;
  bool a_transposed = false;
  const void* b = nullptr;  ///< [k, n], or [n, k] where transposed
  int64_t b_stride = 0;
  bool b_transposed = false;
  void* c = nullptr;
  int64_t c_stride = 0;
  DType operands = DType::f32, result = DType::f32;  ///< f16 or f32
  float alpha = 1, beta = 0;
};

struct LibraryDeleter {
  void operator()(void* library) const;
};
struct LibraryHandleDeleter {
  int (*destroy)(void*) = nullptr;
  void operator()(void* handle) const { destroy(handle); }
};

/// Belongs to the device that was current when it was opened. One thread at a time.
class Cublas {
 public:
  /// Nothing where no library is found, or where it does not start.
  static std::optional<Cublas> open(cudaStream_t stream);
  /// Starts a product on the stream.
  Status multiply(const LibraryProduct& product) const;

 private:
  template <class Function>
  bool look_up(Function*& function, const char* name) const;

  std::unique_ptr<void, LibraryDeleter> library_;
  int (*gemm_)(void*, int, int, int, int, int, const void*, const void*, int, int, const void*, int, int, const void*, void*, int, int, int,
               int) = nullptr;
  std::unique_ptr<void, LibraryHandleDeleter> handle_;
};

}  // namespace quintet::cuda
