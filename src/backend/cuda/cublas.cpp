// The few functions of cuBLAS that are needed, with the values of its enums (cublas_api.h, library_types.h).
#include "backend/cuda/cublas.h"

#include <dlfcn.h>

namespace quintet::cuda {
namespace {

constexpr int kSuccess = 0;

int library_type(DType type) {
  constexpr int kFloat = 0, kHalf = 2;  // CUDA_R_32F, CUDA_R_16F
  return type == DType::f16 ? kHalf : kFloat;
}

}  // namespace

void LibraryDeleter::operator()(void* library) const { dlclose(library); }

template <class Function>
bool Cublas::look_up(Function*& function, const char* name) const {
  function = reinterpret_cast<Function*>(dlsym(library_.get(), name));
  return function != nullptr;
}

std::optional<Cublas> Cublas::open(cudaStream_t stream) {
  Cublas out;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL)) {
      out.library_.reset(library);
      break;
    }
  if (!out.library_) return std::nullopt;
  int (*create)(void**) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*set_stream)(void*, cudaStream_t) = nullptr;
  void* handle = nullptr;
  if (!out.look_up(create, "cublasCreate_v2") || !out.look_up(destroy, "cublasDestroy_v2") ||
      !out.look_up(set_stream, "cublasSetStream_v2") || !out.look_up(out.gemm_, "cublasGemmEx") || create(&handle) != kSuccess)
    return std::nullopt;
  out.handle_ = {handle, LibraryHandleDeleter{destroy}};
  if (set_stream(handle, stream) != kSuccess) return std::nullopt;
  return out;
}

Status Cublas::multiply(const LibraryProduct& p) const {
  // Row-major c = a b is column-major c^T = b^T a^T, and a row-major matrix is its transpose in columns.
  constexpr int kTransposed = 1, kAsItIs = 0, kComputeF32 = 68 /* CUBLAS_COMPUTE_32F */, kDefaultAlgorithm = -1;
  const int operands = library_type(p.operands);
  const int code = gemm_(handle_.get(), p.b_transposed ? kTransposed : kAsItIs, p.a_transposed ? kTransposed : kAsItIs,
                         static_cast<int>(p.n), static_cast<int>(p.m), static_cast<int>(p.k), &p.alpha, p.b, operands,
                         static_cast<int>(p.b_stride), p.a, operands, static_cast<int>(p.a_stride), &p.beta, p.c, library_type(p.result),
                         static_cast<int>(p.c_stride), kComputeF32, kDefaultAlgorithm);
  if (code == kSuccess) return {};
  return internal_error(fmt::format("cuBLAS: a product of {} x {} x {}: status {}", p.m, p.n, p.k, code));
}

}  // namespace quintet::cuda
