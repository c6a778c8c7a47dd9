// A borrowed dense matrix: rows of equal length with a stride. Never owns its memory.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace quintet {

/// [rows, cols] elements of `type`, rows `stride` elements apart, in memory that a backend can reach.
struct MatrixView {
  void* data = nullptr;
  DType type = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;  ///< elements between the starts of two rows; >= cols

  template <class T>
  T* row(int64_t index) const { return static_cast<T*>(data) + index * stride; }
};

/// The same, for reading only.
struct ConstMatrixView {
  const void* data = nullptr;
  DType type = DType::f32;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  ConstMatrixView() = default;
  ConstMatrixView(const void* data, DType type, int64_t rows, int64_t cols, int64_t stride)
      : data(data), type(type), rows(rows), cols(cols), stride(stride) {}
  ConstMatrixView(const MatrixView& view)  // NOLINT: a mutable view is also a const one
      : data(view.data), type(view.type), rows(view.rows), cols(view.cols), stride(view.stride) {}

  template <class T>
  const T* row(int64_t index) const { return static_cast<const T*>(data) + index * stride; }
};

}  // namespace quintet
