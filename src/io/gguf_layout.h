// Limits and sizes of the GGUF format that its reader and its getters share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "io/gguf.h"

namespace quintet {

/// Bytes of a fixed-size metadata type, 0 for strings and arrays.
size_t gguf_type_bytes(GgufType type);

inline constexpr uint32_t kGgufTypes = 13;
inline constexpr uint64_t kGgufDefaultAlignment = 32;
inline constexpr uint64_t kGgufMaxAlignment = uint64_t{1} << 20;
inline constexpr uint64_t kGgufMaxNameBytes = 65535;  ///< of keys by the specification; of tensor names alike
inline constexpr uint64_t kGgufMaxKeys = 65536;       ///< real files have under a hundred
inline constexpr uint64_t kGgufMaxTensors = uint64_t{1} << 17;  ///< the largest real sets have some 50,000
inline constexpr uint32_t kGgufMaxDimensions = 4;
inline constexpr int kGgufMaxArrayDepth = 4;  ///< arrays of arrays are walked, but no getter reads them

/// The least that an entry takes: key length, one byte of key, type, one byte of value.
inline constexpr uint64_t kGgufMinKeyBytes = 8 + 1 + 4 + 1;
/// Name length, one byte of name, dimension count, one dimension, type, offset.
inline constexpr uint64_t kGgufMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

}  // namespace quintet
