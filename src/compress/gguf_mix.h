// The mixes of formats that GGUF files come in: which tensor gets which format.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "quant/format.h"

namespace quintet {

/// "q4_k_m", "q6_k", ...: as users and files name them.
struct GgufMix {
  std::string_view name;
  uint32_t file_type;          ///< general.file_type
  WeightFormat base;           ///< most linear layers
  WeightFormat values;         ///< attn_v, in the layers that `wider` names
  WeightFormat down;           ///< ffn_down, in the layers that `wider` names
  WeightFormat values_others;  ///< attn_v elsewhere
  WeightFormat down_others;    ///< ffn_down elsewhere
  WeightFormat attn_output;
  WeightFormat head;  ///< output, and an embedding that is the head too
  enum class Wider : uint8_t { none, first_eighth, ends_and_thirds } wider;
};

/// Nothing where there is none of the name.
const GgufMix* find_gguf_mix(std::string_view name);
/// "q2_k, q3_k_s, ...".
std::string gguf_mix_names();

/// The format that the mix has for a matrix `name` (as GGUF names it), whatever its rows.
WeightFormat format_in_mix(const GgufMix& mix, std::string_view name, int32_t layer, int32_t layers, bool tied_embeddings);

/// What rows of k weights take instead: `format` where they are whole blocks, an older format of about the same size where
/// they are no multiple of 256, and none where they are no multiple of 32: the tensor stays as it is.
std::optional<WeightFormat> format_of_blocks(WeightFormat format, int64_t k);

}  // namespace quintet
