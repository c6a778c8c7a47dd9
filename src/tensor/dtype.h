// Element types of dense tensors. Compressed weights are described by quant/format.h instead.
#pragma once

#include <cstddef>
#include <cstdint>

namespace quintet {

enum class DType : uint8_t { f32, f16, bf16, i32, u8 };

constexpr size_t dtype_bytes(DType type) {
  switch (type) {
    case DType::f32: case DType::i32: return 4;
    case DType::f16: case DType::bf16: return 2;
    case DType::u8: return 1;
  }
  return 0;
}

constexpr const char* dtype_name(DType type) {
  switch (type) {
    case DType::f32: return "f32";
    case DType::f16: return "f16";
    case DType::bf16: return "bf16";
    case DType::i32: return "i32";
    case DType::u8: return "u8";
  }
  return "?";
}

}  // namespace quintet
