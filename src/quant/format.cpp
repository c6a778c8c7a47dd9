// The one table of weight formats.
#include "quant/format.h"

#include <array>

#include "base/check.h"
#include "quant/blocks.h"
#include "quant/codecs.h"
#include "quant/integer_format.h"

namespace quintet {

namespace {

template <class Block>
constexpr FormatInfo compressed(WeightFormat format, std::string_view name, int block_weights, int ggml_type,
                                DecodeBlocks decode) {
  return {
      format,    name,  block_weights, static_cast<int>(sizeof(Block)), sizeof(Block) * 8.0 / block_weights,
      ggml_type, decode};
}

/// A member of the project's family; its codec is the family's.
template <WeightFormat kFormat>
constexpr FormatInfo integers(std::string_view name, IntegerFormat shape) {
  const int bytes = shape.block_bytes();
  return {kFormat, name, shape.group, bytes, bytes * 8.0 / shape.group, -1, decode_integers<kFormat>};
}

/// A format whose rows have a scale each.
template <class Block, DecodeScaledBlocks kDecode>
constexpr FormatInfo scaled_rows(WeightFormat format, std::string_view name, int block_weights) {
  FormatInfo info = compressed<Block>(format, name, block_weights, -1, decode_unscaled<kDecode>);
  info.decode_scaled = kDecode;
  return info;
}

using enum WeightFormat;

// The type numbers are those of the GGUF specification.
constexpr std::array<FormatInfo, kWeightFormats> kTable = {{
    {f32, "f32", 1, 4, 32, 0, decode_f32},
    {f16, "f16", 1, 2, 16, 1, decode_f16},
    {bf16, "bf16", 1, 2, 16, 30, decode_bf16},
    compressed<BlockQ4_0>(q4_0, "q4_0", kSmallBlockWeights, 2, decode_q4_0),
    compressed<BlockQ4_1>(q4_1, "q4_1", kSmallBlockWeights, 3, decode_q4_1),
    compressed<BlockQ5_0>(q5_0, "q5_0", kSmallBlockWeights, 6, decode_q5_0),
    compressed<BlockQ5_1>(q5_1, "q5_1", kSmallBlockWeights, 7, decode_q5_1),
    compressed<BlockQ8_0>(q8_0, "q8_0", kSmallBlockWeights, 8, decode_q8_0),
    compressed<BlockQ2K>(q2_k, "q2_k", kSuperBlockWeights, 10, decode_q2_k),
    compressed<BlockQ3K>(q3_k, "q3_k", kSuperBlockWeights, 11, decode_q3_k),
    compressed<BlockQ4K>(q4_k, "q4_k", kSuperBlockWeights, 12, decode_q4_k),
    compressed<BlockQ5K>(q5_k, "q5_k", kSuperBlockWeights, 13, decode_q5_k),
    compressed<BlockQ6K>(q6_k, "q6_k", kSuperBlockWeights, 14, decode_q6_k),
    compressed<BlockIq4Nl>(iq4_nl, "iq4_nl", kSmallBlockWeights, 20, decode_iq4_nl),
    compressed<BlockIq4Xs>(iq4_xs, "iq4_xs", kSuperBlockWeights, 23, decode_iq4_xs),
    compressed<BlockIq2Xxs>(iq2_xxs, "iq2_xxs", kSuperBlockWeights, 16, decode_iq2_xxs),
    compressed<BlockIq2Xs>(iq2_xs, "iq2_xs", kSuperBlockWeights, 17, decode_iq2_xs),
    compressed<BlockIq2S>(iq2_s, "iq2_s", kSuperBlockWeights, 22, decode_iq2_s),
    compressed<BlockIq3Xxs>(iq3_xxs, "iq3_xxs", kSuperBlockWeights, 18, decode_iq3_xxs),
    compressed<BlockIq3S>(iq3_s, "iq3_s", kSuperBlockWeights, 21, decode_iq3_s),
    integers<int3_g32>("int3_g32", {3, 32, false}),
    integers<int3_g64>("int3_g64", {3, 64, false}),
    integers<int3_g128>("int3_g128", {3, 128, false}),
    integers<int3_g32_asym>("int3_g32_asym", {3, 32, true}),
    integers<int3_g64_asym>("int3_g64_asym", {3, 64, true}),
    integers<int3_g128_asym>("int3_g128_asym", {3, 128, true}),
    integers<int4_g64>("int4_g64", {4, 64, false}),
    integers<int4_g128>("int4_g128", {4, 128, false}),
    integers<int4_g64_asym>("int4_g64_asym", {4, 64, true}),
    integers<int4_g128_asym>("int4_g128_asym", {4, 128, true}),
    integers<int8_g64>("int8_g64", {8, 64, false}),
    integers<int8_g128>("int8_g128", {8, 128, false}),
    integers<int8_g32_asym>("int8_g32_asym", {8, 32, true}),
    integers<int8_g64_asym>("int8_g64_asym", {8, 64, true}),
    integers<int8_g128_asym>("int8_g128_asym", {8, 128, true}),
    compressed<BlockNf4>(nf4, "nf4", kNf4BlockWeights, -1, decode_nf4),
    scaled_rows<BlockNf4Dq, decode_nf4_dq>(nf4_dq, "nf4_dq", kNf4BlockWeights),
    scaled_rows<BlockFp8, decode_fp8>(fp8, "fp8", kSmallBlockWeights),
    scaled_rows<BlockInt8, decode_int8>(int8, "int8", kSmallBlockWeights),
}};

constexpr bool table_is_in_enum_order() {
  for (int i = 0; i < kWeightFormats; ++i)
    if (static_cast<int>(kTable[i].format) != i) return false;
  return true;
}
static_assert(table_is_in_enum_order());

}  // namespace

const FormatInfo& format_info(WeightFormat format) {
  const auto index = static_cast<size_t>(format);
  QUINTET_CHECK(index < kTable.size(), "weight format {}", index);
  return kTable[index];
}

std::span<const FormatInfo> format_table() { return kTable; }

std::optional<WeightFormat> format_from_ggml_type(uint32_t ggml_type) {
  for (const auto& row : kTable)
    if (row.ggml_type >= 0 && static_cast<uint32_t>(row.ggml_type) == ggml_type) return row.format;
  return std::nullopt;
}

std::optional<WeightFormat> format_from_name(std::string_view name) {
  for (const auto& row : kTable)
    if (row.name == name) return row.format;
  return std::nullopt;
}

}  // namespace quintet
