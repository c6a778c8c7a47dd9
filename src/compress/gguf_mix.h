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
  /// Layers that keep a tensor wider.
  enum class Layers : uint8_t { none, first_two, first_four, first_sixteenth, first_eighth, ends_and_thirds };
  /// Of a tensor that some layers keep wider than others.
  struct Choice {
    WeightFormat wide, others;
    Layers layers;
  };

  std::string_view name;
  uint32_t file_type;  ///< general.file_type
  WeightFormat base;   ///< most linear layers
  Choice values;       ///< attn_v
  Choice down;         ///< ffn_down
  WeightFormat attn_output;
  WeightFormat head;  ///< output, and an embedding that is the head too
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
