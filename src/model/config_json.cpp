// ModelConfig from a Hugging Face config.json, in the spelling of Transformers 4 and of 5.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "model/config_reader.h"
#include "model/json_fields.h"

namespace quintet {
namespace {

Result<const Architecture*> choose_architecture(const JsonFields& fields) {
  TRY_ASSIGN(const std::string type, fields.text_or("model_type", ""));
  const Architecture* chosen = nullptr;
  for (const Architecture* architecture : architectures())
    if (architecture->model_type == type) chosen = architecture;
  if (!chosen) return fields.wrong("model_type", allowed_model_types());
  TRY_ASSIGN(const std::vector<std::string> classes, fields.texts("architectures"));
  if (!classes.empty() && std::find(classes.begin(), classes.end(), chosen->class_name) == classes.end()) {
    return bad_input(fmt::format("{}: architectures names '{}'; supported for model_type '{}' is {}",
                                 fields.origin(), classes[0], type, chosen->class_name));
  }
  return chosen;
}

Status refuse_variants(const JsonFields& fields, const Architecture& architecture) {
  for (std::string_view key : {"attn_logit_softcapping", "final_logit_softcapping"})
    if (fields.has(key)) return fields.wrong(key, "null");
  for (std::string_view key : {"mlp_bias", "use_bidirectional_attention"}) {
    TRY_ASSIGN(const bool is_set, fields.flag_or(key, false));
    if (is_set) return fields.wrong(key, "false");
  }
  const std::string_view wanted = architecture.activation == Activation::silu ? "silu" : "gelu_pytorch_tanh";
  const std::string_view key = fields.has("hidden_activation") || architecture.activation != Activation::silu
                                   ? "hidden_activation"
                                   : "hidden_act";
  TRY_ASSIGN(const std::string activation, fields.text_or(key, wanted));
  if (activation != wanted) return fields.wrong(key, fmt::format("\"{}\"", wanted));
  return {};
}

Status read_windows(const JsonFields& fields, const Architecture& architecture, ConfigDraft& draft) {
  TRY_ASSIGN(const std::vector<std::string> types, fields.texts("layer_types"));
  for (const std::string& type : types) {
    if (type != "sliding_attention" && type != "full_attention")
      return bad_input(
          fmt::format("{}: layer_types holds '{}'; allowed are full_attention, sliding_attention",
                      fields.origin(), type));
    draft.layer_slides.push_back(type == "sliding_attention");
  }
  TRY_ASSIGN(draft.window_pattern, fields.count_or("sliding_window_pattern", 0));
  // A null window means none; only an absent one is the architecture's own.
  TRY_ASSIGN(
      draft.sliding_window,
      fields.count_or("sliding_window", fields.mentions("sliding_window") ? 0 : architecture.sliding_window));
  if (architecture.windows_are_optional) {
    TRY_ASSIGN(const bool is_used, fields.flag_or("use_sliding_window", false));
    if (!is_used) draft.sliding_window = 0;
    TRY_ASSIGN(draft.first_window_layer, fields.count_or("max_window_layers", 0));
  }
  return {};
}

/// YaRN's factor on cosine and sine, in the ways a configuration can state it.
Result<std::optional<double>> yarn_attention(const JsonFields& rope, double factor) {
  TRY_ASSIGN(const std::optional<double> stated, rope.number("attention_factor"));
  if (stated) return stated;
  TRY_ASSIGN(const double mscale, rope.number_or("mscale", 0));
  TRY_ASSIGN(const double mscale_all_dim, rope.number_or("mscale_all_dim", 0));
  if (mscale == 0 || mscale_all_dim == 0 || factor <= 1) return std::optional<double>();
  return std::optional((0.1 * mscale * std::log(factor) + 1) / (0.1 * mscale_all_dim * std::log(factor) + 1));
}

Status read_longrope(const JsonFields& rope, int32_t wanted_context, DraftedConfig& out) {
  RopeScaling& scaling = out.draft.rope_scaling;
  const double original = scaling.original_context;
  const bool is_long = wanted_context > original;
  const std::string_view key = is_long ? "long_factor" : "short_factor";
  TRY_ASSIGN(scaling.divisors, rope.numbers(key));
  if (static_cast<int64_t>(scaling.divisors.size()) != out.draft.rope_dims / 2)
    return rope.wrong(key, fmt::format("a list of {} numbers", out.draft.rope_dims / 2));
  TRY_ASSIGN(const double factor, rope.number_or("factor", out.config.context / original));
  TRY_ASSIGN(const std::optional<double> stated, rope.number("attention_factor"));
  scaling.kind = RopeScaling::Kind::divisors;
  // "LongRoPE" (Ding et al., 2024): sqrt(1 + ln(factor) / ln(original)).
  scaling.attention_factor = stated        ? *stated
                             : factor <= 1 ? 1.0
                                           : std::sqrt(1 + std::log(factor) / std::log(original));
  scaling.factor = 1;
  if (!is_long && original < out.config.context) {
    LOG_DEBUG("{}: LongRoPE's short list is used, for sequences up to {} of {} tokens", rope.origin(),
              original, out.config.context);
    out.config.context = static_cast<int32_t>(original);
  }
  return {};
}

Status read_scaling(const JsonFields& fields, const JsonFields& rope, int32_t wanted_context,
                    DraftedConfig& out) {
  RopeScaling& scaling = out.draft.rope_scaling;
  TRY_ASSIGN(const std::string old_type, rope.text_or("type", "default"));
  TRY_ASSIGN(const std::string type, rope.text_or("rope_type", old_type));
  const std::string_view type_key = rope.has("rope_type") ? "rope_type" : "type";
  if (type == "default") return {};
  if (type == "dynamic") {
    return rope.wrong(type_key,
                      "default, linear, llama3, yarn, longrope (dynamic changes the keys of tokens that are "
                      "already cached)");
  }

  constexpr std::string_view kKnown[] = {"linear", "llama3", "yarn", "longrope", "su"};
  if (std::find(std::begin(kKnown), std::end(kKnown), type) == std::end(kKnown))
    return rope.wrong(type_key, "default, linear, llama3, yarn, longrope");

  TRY_ASSIGN(const double outer_original,
             fields.number_or("original_max_position_embeddings", out.config.context));
  TRY_ASSIGN(scaling.original_context, rope.number_or("original_max_position_embeddings", outer_original));
  if (fields.has("original_max_position_embeddings")) scaling.original_context = outer_original;
  if (!(scaling.original_context >= 2 && scaling.original_context <= kMaxContext))
    return rope.wrong("original_max_position_embeddings", fmt::format("2 to {}", kMaxContext));

  const bool is_longrope = type == "longrope" || type == "su" ||
                           (out.architecture->fused && type == "yarn");  // Phi-3's first names
  if (is_longrope) return read_longrope(rope, wanted_context, out);
  TRY_ASSIGN(const std::optional<double> factor, rope.number("factor"));
  if (!factor) return rope.wrong("factor", "a number");
  scaling.factor = *factor;
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
  } else if (type == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    TRY_ASSIGN(scaling.low_freq_factor, rope.number_or("low_freq_factor", 1));
    TRY_ASSIGN(scaling.high_freq_factor, rope.number_or("high_freq_factor", 4));
  } else {
    scaling.kind = RopeScaling::Kind::yarn;
    TRY_ASSIGN(scaling.beta_fast, rope.number_or("beta_fast", 32));
    TRY_ASSIGN(scaling.beta_slow, rope.number_or("beta_slow", 1));
    TRY_ASSIGN(scaling.truncate, rope.flag_or("truncate", true));
    TRY_ASSIGN(scaling.attention_factor, yarn_attention(rope, scaling.factor));
    // Qwen's files state the length before stretching as max_position_embeddings.
    const double stretched = scaling.original_context * std::max(1.0, scaling.factor);
    if (stretched <= kMaxContext)
      out.config.context = std::max(out.config.context, static_cast<int32_t>(stretched));
  }
  return {};
}

Status read_rope(const JsonFields& fields, int32_t wanted_context, DraftedConfig& out) {
  ConfigDraft& draft = out.draft;
  TRY_ASSIGN(draft.rope_base, fields.number_or("rope_theta", out.architecture->rope_base));
  TRY_ASSIGN(draft.rope_local_base, fields.number_or("rope_local_base_freq", 10000));
  TRY_ASSIGN(double partial, fields.number_or("partial_rotary_factor", 1));

  // Transformers 5 has everything in rope_parameters, by layer type where they differ; 4 has the scaling
  // alone.
  TRY_ASSIGN(const std::optional<JsonFields> rope,
             fields.object(fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling"));
  if (rope) {
    TRY_ASSIGN(const std::optional<JsonFields> local, rope->object("sliding_attention"));
    if (local) {
      TRY_ASSIGN(draft.rope_local_base, local->number_or("rope_theta", draft.rope_local_base));
      TRY_ASSIGN(const std::string type, local->text_or("rope_type", "default"));
      if (type != "default") return local->wrong("rope_type", "default");
    }
    TRY_ASSIGN(const std::optional<JsonFields> global, rope->object("full_attention"));
    const JsonFields& stretched = global ? *global : *rope;
    TRY_ASSIGN(draft.rope_base, stretched.number_or("rope_theta", draft.rope_base));
    TRY_ASSIGN(partial, stretched.number_or("partial_rotary_factor", partial));
    if (!(partial > 0 && partial <= 1)) return stretched.wrong("partial_rotary_factor", "0 (excluded) to 1");
    draft.rope_dims = static_cast<int32_t>(out.config.head_dim * partial);
    return read_scaling(fields, stretched, wanted_context, out);
  }
  if (!(partial > 0 && partial <= 1)) return fields.wrong("partial_rotary_factor", "0 (excluded) to 1");
  draft.rope_dims = static_cast<int32_t>(out.config.head_dim * partial);
  return {};
}

}  // namespace

Result<DraftedConfig> read_json_config(const ModelFiles& files, int32_t context) {
  const std::string origin = files.path() + "/config.json";
  TRY_ASSIGN(const nlohmann::json parsed, parse_json_object(files.texts().config, origin));
  const JsonFields fields(parsed, origin);
  DraftedConfig out;
  TRY_ASSIGN(out.architecture, choose_architecture(fields));
  const Architecture& architecture = *out.architecture;
  TRY(refuse_variants(fields, architecture));

  ModelConfig& config = out.config;
  out.draft.origin = origin;
  TRY_ASSIGN(config.name, fields.text_or("_name_or_path", ""));
  TRY_ASSIGN(config.layers, fields.count("num_hidden_layers"));
  TRY_ASSIGN(config.hidden, fields.count("hidden_size"));
  TRY_ASSIGN(config.ffn, fields.count("intermediate_size"));
  TRY_ASSIGN(config.heads, fields.count("num_attention_heads"));
  TRY_ASSIGN(config.kv_heads, fields.count_or("num_key_value_heads", config.heads));
  TRY_ASSIGN(config.vocabulary, fields.count("vocab_size"));
  TRY_ASSIGN(config.context, fields.count("max_position_embeddings"));
  const int32_t usual_head_dim = architecture.head_dim > 0 ? architecture.head_dim
                                 : config.heads > 0        ? config.hidden / config.heads
                                                           : 0;
  TRY_ASSIGN(config.head_dim, fields.count_or("head_dim", usual_head_dim));
  TRY_ASSIGN(const double norm_eps, fields.number_or("rms_norm_eps", architecture.norm_eps));
  config.norm_eps = static_cast<float>(norm_eps);
  TRY_ASSIGN(config.tied_embeddings, fields.flag_or("tie_word_embeddings", architecture.tied_embeddings));
  TRY_ASSIGN(const bool attention_bias, fields.flag_or("attention_bias", false));
  config.qkv_bias = architecture.qkv_bias || attention_bias;
  TRY_ASSIGN(const std::optional<double> scalar, fields.number("query_pre_attn_scalar"));
  if (scalar) {
    if (!(*scalar > 0)) return fields.wrong("query_pre_attn_scalar", "more than 0");
    config.attention_scale = static_cast<float>(1 / std::sqrt(*scalar));
  }
  TRY(read_windows(fields, architecture, out.draft));
  TRY(read_rope(fields, context, out));
  return out;
}

}  // namespace quintet
