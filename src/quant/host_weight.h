// A weight tensor as it lies in a mapped model file: borrowed bytes and what they mean.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "quant/format.h"

namespace quintet {

/// A matrix [n, k] (n outputs, k inputs), row after row, each row a whole number of blocks. A vector is [1, k].
/// The bytes belong to the mapped file and stay valid while it is open. They may start at any address: a safetensors file
/// aligns nothing, so elements are read with memcpy, never through a cast pointer.
struct HostWeight {
  std::string_view name;
  WeightFormat format = WeightFormat::f32;
  int64_t n = 0;
  int64_t k = 0;
  std::span<const uint8_t> bytes;

  int64_t row_bytes() const { return static_cast<int64_t>(format_bytes_of(format, static_cast<uint64_t>(k))); }

  /// Rows [first, first + count) of this matrix, sharing its bytes.
  HostWeight slice_rows(int64_t first, int64_t count) const {
    HostWeight part = *this;
    part.n = count;
    part.bytes = bytes.subspan(static_cast<size_t>(first * row_bytes()), static_cast<size_t>(count * row_bytes()));
    return part;
  }
};

}  // namespace quintet
