// The table of mixes. Which tensors of which layers are kept wider is told from the files that other engines make.
#include "compress/gguf_mix.h"

#include <fmt/format.h>

#include <array>

namespace quintet {
namespace {

using enum WeightFormat;
using enum GgufMix::Layers;

constexpr std::array kMixes = {
    //       name     type  base  attn_v  ffn_down  attn_output  head
    GgufMix{"q2_k", 10, q2_k, {q3_k, q3_k, none}, {q3_k, q3_k, none}, q3_k, q6_k},
    GgufMix{"q3_k_s", 11, q3_k, {q3_k, q3_k, none}, {q3_k, q3_k, none}, q3_k, q6_k},
    GgufMix{"q3_k_m", 12, q3_k, {q5_k, q4_k, first_two}, {q5_k, q4_k, first_sixteenth}, q4_k, q6_k},
    GgufMix{"q4_k_s", 14, q4_k, {q5_k, q4_k, first_four}, {q5_k, q4_k, first_eighth}, q4_k, q6_k},
    GgufMix{"q4_k_m", 15, q4_k, {q6_k, q4_k, ends_and_thirds}, {q6_k, q4_k, ends_and_thirds}, q4_k, q6_k},
    GgufMix{"q5_k_s", 16, q5_k, {q5_k, q5_k, none}, {q5_k, q5_k, none}, q5_k, q6_k},
    GgufMix{"q5_k_m", 17, q5_k, {q6_k, q5_k, ends_and_thirds}, {q6_k, q5_k, ends_and_thirds}, q5_k, q6_k},
    GgufMix{"q6_k", 18, q6_k, {q6_k, q6_k, none}, {q6_k, q6_k, none}, q6_k, q6_k},
    GgufMix{"q8_0", 7, q8_0, {q8_0, q8_0, none}, {q8_0, q8_0, none}, q8_0, q8_0},
    GgufMix{"iq4_nl", 25, iq4_nl, {iq4_nl, iq4_nl, none}, {iq4_nl, iq4_nl, none}, iq4_nl, q6_k},
    GgufMix{"iq4_xs", 30, iq4_xs, {iq4_xs, iq4_xs, none}, {q5_k, iq4_xs, first_eighth}, iq4_xs, q6_k},
};

bool is_among(GgufMix::Layers which, int32_t layer, int32_t layers) {
  const int32_t eighth = layers / 8;
  switch (which) {
    case none: return false;
    case first_two: return layer < 2;
    case first_four: return layer < 4;
    case first_sixteenth: return layer < layers / 16;
    case first_eighth: return layer < eighth;
    case ends_and_thirds: return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
  }
  return false;
}

}  // namespace

const GgufMix* find_gguf_mix(std::string_view name) {
  for (const GgufMix& mix : kMixes)
    if (mix.name == name) return &mix;
  return nullptr;
}

std::string gguf_mix_names() {
  std::string names;
  for (const GgufMix& mix : kMixes) names += fmt::format("{}{}", names.empty() ? "" : ", ", mix.name);
  return names;
}

WeightFormat format_in_mix(const GgufMix& mix, std::string_view name, int32_t layer, int32_t layers, bool tied_embeddings) {
  const auto choose = [&](const GgufMix::Choice& choice) {
    return is_among(choice.layers, layer, layers) ? choice.wide : choice.others;
  };
  WeightFormat format = mix.base;
  if (name == "output.weight" || (name == "token_embd.weight" && tied_embeddings)) format = mix.head;
  if (name.ends_with("attn_v.weight")) format = choose(mix.values);
  if (name.ends_with("ffn_down.weight")) format = choose(mix.down);
  if (name.ends_with("attn_output.weight")) format = mix.attn_output;
  return format;
}

std::optional<WeightFormat> format_of_blocks(WeightFormat format, int64_t k) {
  if (k % format_info(format).block_weights == 0) return format;
  if (k % 32 != 0) return std::nullopt;
  switch (format) {
    case q4_k: return q5_0;
    case q5_k: return q5_1;
    case q6_k: return q8_0;
    default: return iq4_nl;
  }
}

}  // namespace quintet
