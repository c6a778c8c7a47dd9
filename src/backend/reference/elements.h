// Reads and writes single elements of a matrix of any activation type.
#pragma once

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/view.h"

namespace quintet::reference {

inline float load(const ConstMatrixView& view, int64_t row, int64_t col) {
  switch (view.type) {
    case DType::f32: return view.row<float>(row)[col];
    case DType::f16: return f16_to_f32(view.row<uint16_t>(row)[col]);
    case DType::bf16: return bf16_to_f32(view.row<uint16_t>(row)[col]);
    default: QUINTET_CHECK(false, "activations of type {}", dtype_name(view.type));
  }
}

inline void store(const MatrixView& view, int64_t row, int64_t col, double value) {
  switch (view.type) {
    case DType::f32: view.row<float>(row)[col] = static_cast<float>(value); return;
    case DType::f16: view.row<uint16_t>(row)[col] = f32_to_f16(static_cast<float>(value)); return;
    case DType::bf16: view.row<uint16_t>(row)[col] = f32_to_bf16(static_cast<float>(value)); return;
    default: QUINTET_CHECK(false, "activations of type {}", dtype_name(view.type));
  }
}

}  // namespace quintet::reference
