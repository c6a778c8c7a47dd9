// Chooses the reader of a model's configuration, lets the architecture make layers of it, and checks the
// result.
#include "model/config.h"

#include <fmt/format.h>

#include <cmath>

#include "model/config_reader.h"

namespace quintet {
namespace {

Status check_range(const std::string& origin, std::string_view field, int64_t value, int64_t min,
                   int64_t max) {
  if (value >= min && value <= max) return {};
  return bad_input(fmt::format("{}: {} is {}; allowed is {} to {}", origin, field, value, min, max));
}

/// Bounds of everything that is counted, before anything is sized by it.
Status check_sizes(const std::string& origin, const ModelConfig& config) {
  TRY(check_range(origin, "the number of layers", config.layers, 1, kMaxLayers));
  TRY(check_range(origin, "the hidden size", config.hidden, 1, kMaxWidth));
  TRY(check_range(origin, "the feed-forward size", config.ffn, 1, kMaxWidth));
  TRY(check_range(origin, "the number of attention heads", config.heads, 1, kMaxHeads));
  TRY(check_range(origin, "the number of key-value heads", config.kv_heads, 1, config.heads));
  TRY(check_range(origin, "the head size", config.head_dim, 8, kMaxHeadDim));
  TRY(check_range(origin, "the vocabulary size", config.vocabulary, 1, kMaxVocabulary));
  TRY(check_range(origin, "the context length", config.context, 1, kMaxContext));
  if (config.head_dim % 8 != 0)
    return bad_input(
        fmt::format("{}: the head size is {}; a multiple of 8 is allowed", origin, config.head_dim));
  if (config.heads % config.kv_heads != 0) {
    return bad_input(
        fmt::format("{}: {} attention heads over {} key-value heads; the second must divide the first",
                    origin, config.heads, config.kv_heads));
  }
  if (!(config.norm_eps > 0 && config.norm_eps < 1))
    return bad_input(fmt::format("{}: the norm's epsilon is {}; allowed is 0 to 1, both excluded", origin,
                                 config.norm_eps));
  if (!(config.attention_scale > 0 && config.attention_scale <= 1024))
    return bad_input(fmt::format("{}: the attention scale is {}; allowed is 0 (excluded) to 1024", origin,
                                 config.attention_scale));
  return {};
}

Status check_base(const std::string& origin, std::string_view field, double base) {
  if (base > 1 && base <= 1e12) return {};
  return bad_input(fmt::format("{}: {} is {}; allowed is 1 (excluded) to 1e12", origin, field, base));
}

Status check_rope(const ModelConfig& config, const ConfigDraft& draft) {
  const std::string& origin = draft.origin;
  TRY(check_range(origin, "the number of rotated dimensions", draft.rope_dims, 2, config.head_dim));
  if (draft.rope_dims % 2 != 0)
    return bad_input(
        fmt::format("{}: {} rotated dimensions; an even number is allowed", origin, draft.rope_dims));
  TRY(check_base(origin, "the rope base", draft.rope_base));
  TRY(check_base(origin, "the local rope base", draft.rope_local_base));
  TRY(check_range(origin, "the sliding window", draft.sliding_window, 0, kMaxContext));
  TRY(check_range(origin, "the sliding window pattern", draft.window_pattern, 0, kMaxLayers));
  TRY(check_range(origin, "the first sliding layer", draft.first_window_layer, 0, kMaxLayers));
  if (!draft.layer_slides.empty() && static_cast<int64_t>(draft.layer_slides.size()) != config.layers) {
    return bad_input(
        fmt::format("{}: {} layer types for {} layers", origin, draft.layer_slides.size(), config.layers));
  }
  const RopeScaling& scaling = draft.rope_scaling;
  const auto wrong = [&](std::string_view field, double found, std::string_view allowed) {
    return bad_input(
        fmt::format("{}: rope scaling's {} is {}; allowed is {}", origin, field, found, allowed));
  };
  if (!(scaling.factor >= 0.01 && scaling.factor <= 1e6))
    return wrong("factor", scaling.factor, "0.01 to 1e6");
  if (scaling.attention_factor && !(*scaling.attention_factor > 0 && *scaling.attention_factor <= 1e3))
    return wrong("attention factor", *scaling.attention_factor, "0 (excluded) to 1000");
  if (scaling.kind == RopeScaling::Kind::llama3 || scaling.kind == RopeScaling::Kind::yarn) {
    if (!(scaling.original_context >= 1 && scaling.original_context <= kMaxContext))
      return wrong("original context length", scaling.original_context, fmt::format("1 to {}", kMaxContext));
  }
  if (scaling.kind == RopeScaling::Kind::llama3 &&
      !(scaling.low_freq_factor > 0 && scaling.high_freq_factor > scaling.low_freq_factor &&
        scaling.high_freq_factor < 1e6))
    return wrong("high frequency factor", scaling.high_freq_factor,
                 "more than the low one, which is more than 0");
  if (scaling.kind == RopeScaling::Kind::yarn &&
      !(scaling.beta_slow > 0 && scaling.beta_fast > scaling.beta_slow && scaling.beta_fast < 1e6))
    return wrong("beta_fast", scaling.beta_fast, "more than beta_slow, which is more than 0");
  if (scaling.kind == RopeScaling::Kind::divisors) {
    TRY(check_range(origin, "the number of rope divisors", static_cast<int64_t>(scaling.divisors.size()),
                    draft.rope_dims / 2, draft.rope_dims / 2));
    for (float divisor : scaling.divisors)
      if (!(divisor >= 1e-3f && divisor <= 1e6f)) return wrong("divisor", divisor, "0.001 to 1e6");
  }
  return {};
}

}  // namespace

Result<ModelConfig> read_config(const ModelFiles& files, int32_t context) {
  TRY_ASSIGN(DraftedConfig drafted, files.kind() == ModelFiles::Kind::gguf
                                        ? read_gguf_config(files, context)
                                        : read_json_config(files, context));
  const Architecture& architecture = *drafted.architecture;
  ModelConfig& config = drafted.config;
  config.architecture = architecture.name;
  config.activation = architecture.activation;
  config.qk_norm = architecture.qk_norm;
  config.post_norms = architecture.post_norms;
  config.norm_plus_one = architecture.norm_plus_one && files.kind() == ModelFiles::Kind::huggingface;
  if (config.attention_scale == 0 && config.head_dim > 0)
    config.attention_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim)));
  // As a float, which is what Transformers multiplies FP32 activations by; its BF16 models round it to BF16,
  // 0.2 % off.
  if (architecture.scaled_embedding)
    config.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden)));

  TRY(check_sizes(drafted.draft.origin, config));
  TRY(check_rope(config, drafted.draft));
  architecture.make_layers(drafted.draft, config);
  for (const RopeConfig& rope : config.ropes) {
    for (float frequency : rope.inv_freq) {
      if (!std::isfinite(frequency))
        return bad_input(fmt::format("{}: the rope's base and scaling give a frequency of {}",
                                     drafted.draft.origin, frequency));
    }
  }
  return std::move(drafted.config);
}

}  // namespace quintet
