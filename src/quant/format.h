// The table of weight formats: what the bytes of a compressed tensor mean. Everything that must handle each
// format walks this table; adding a format is one row here and one codec (docs/add-a-format.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace quintet {

enum class WeightFormat : uint8_t {
  f32, f16, bf16,
  q4_0, q4_1, q5_0, q5_1, q8_0,
  q2_k, q3_k, q4_k, q5_k, q6_k,
  iq4_nl, iq4_xs, iq2_xxs, iq2_xs, iq2_s, iq3_xxs, iq3_s,
  // The project's own (quant/integer_format.h): bits, weights under one scale, symmetric or not. Q4_0, Q4_1 and Q8_0
  // are the family's 4-bit and 8-bit symmetric members of groups of 32.
  int3_g32, int3_g64, int3_g128, int3_g32_asym, int3_g64_asym, int3_g128_asym,
  int4_g64, int4_g128, int4_g64_asym, int4_g128_asym,
  int8_g64, int8_g128, int8_g32_asym, int8_g64_asym, int8_g128_asym,
  // NF4 (a codebook of 16 for normal weights; quant/blocks.h), its scales in FP16 or in 8 bits under one scale a row;
  // bytes under one scale a row: floats E4M3, integers.
  nf4, nf4_dq, fp8, int8,
  count_,
};

inline constexpr int kWeightFormats = static_cast<int>(WeightFormat::count_);

/// Decodes `blocks` whole blocks of a format into blocks * block_weights floats.
using DecodeBlocks = void (*)(const uint8_t* blocks_bytes, size_t blocks, float* out);

/// The same of a format whose rows have a scale of their own (HostWeight::row_scales).
using DecodeScaledBlocks = void (*)(const uint8_t* blocks_bytes, size_t blocks, float row_scale, float* out);

/// One row of the table. A row of a weight matrix is a whole number of blocks along K.
struct FormatInfo {
  WeightFormat format;
  std::string_view name;     ///< as users write it: "q4_k"
  int block_weights;         ///< weights in a block, along K
  int block_bytes;           ///< bytes of a block as it lies in a model file
  double bits;               ///< bits a weight, scales included
  int ggml_type;             ///< the type number in a GGUF file, -1 where the format has none
  DecodeBlocks decode;       ///< the scalar oracle; of formats with scales of rows: under a scale of 1
  DecodeScaledBlocks decode_scaled = nullptr;  ///< null where the format has no scales of rows
};

/// The table's row of a format.
const FormatInfo& format_info(WeightFormat format);

/// All rows, in the order of the enum.
std::span<const FormatInfo> format_table();

std::optional<WeightFormat> format_from_ggml_type(uint32_t ggml_type);
std::optional<WeightFormat> format_from_name(std::string_view name);

/// Bytes of `weights` weights (a whole number of blocks) as they lie in a file.
inline uint64_t format_bytes_of(WeightFormat format, uint64_t weights) {
  const auto& info = format_info(format);
  return weights / static_cast<uint64_t>(info.block_weights) * static_cast<uint64_t>(info.block_bytes);
}

}  // namespace quintet
