// ModelConfig from GGUF metadata.
// Specification of the keys: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "model/config_reader.h"
#include "quant/quantize.h"

namespace quintet {
namespace {

constexpr std::string_view kTokenEmbedding = "token_embd.weight";

/// Keys "{architecture}.name" of one file.
class GgufFields {
 public:
  GgufFields(const GgufFile& file, std::string_view prefix) : file_(file), prefix_(prefix) {}

  /// Of the network, for uniform_count_or().
  void set_layers(int32_t layers) { layers_ = layers; }

  std::string key(std::string_view name) const { return fmt::format("{}.{}", prefix_, name); }
  bool has(std::string_view name) const { return file_.has(key(name)); }

  /// A count that fits an int32; what it may be beyond that is read_config's to check.
  Result<int32_t> count(std::string_view name) const {
    TRY_ASSIGN(const uint64_t value, file_.get_u64(key(name)));
    return narrow(name, value);
  }
  Result<int32_t> count_or(std::string_view name, int32_t fallback) const {
    TRY_ASSIGN(const uint64_t value, file_.get_u64_or(key(name), static_cast<uint64_t>(fallback)));
    return narrow(name, value);
  }
  Result<float> number_or(std::string_view name, float fallback) const {
    return file_.get_f32_or(key(name), fallback);
  }
  Result<std::string_view> text_or(std::string_view name, std::string_view fallback) const {
    return file_.get_string_or(key(name), fallback);
  }

  /// A count that some files give once and some once a layer; layers that differ are not supported.
  Result<int32_t> uniform_count_or(std::string_view name, int32_t fallback) const {
    if (!file_.is_array(key(name))) return count_or(name, fallback);
    // Before the values are widened: such an array may be as long as the file.
    if (const uint64_t found = file_.find(key(name))->count;
        found != 1 && found != static_cast<uint64_t>(layers_))
      return bad_input(fmt::format("{}: {} has {} values; allowed is one, or one for each of {} layers",
                                   file_.path(), key(name), found, layers_));
    TRY_ASSIGN(const std::vector<int64_t> values, file_.get_i64s(key(name)));
    if (values.empty() ||
        std::any_of(values.begin(), values.end(), [&](int64_t v) { return v != values[0]; })) {
      return bad_input(fmt::format("{}: {} differs between layers ({} values); one value for all is allowed",
                                   file_.path(), key(name), values.size()));
    }
    return narrow(name, static_cast<uint64_t>(values[0]));
  }

 private:
  Result<int32_t> narrow(std::string_view name, uint64_t value) const {
    if (value <= INT32_MAX) return static_cast<int32_t>(value);
    return bad_input(
        fmt::format("{}: {} is {}; allowed is up to {}", file_.path(), key(name), value, INT32_MAX));
  }

  const GgufFile& file_;
  std::string prefix_;
  int32_t layers_ = 0;
};

/// A one-dimensional tensor of frequencies' divisors, decoded.
Result<std::vector<float>> read_divisors(const ModelFiles& files, std::string_view name, int32_t rope_dims) {
  TRY_ASSIGN(const ModelTensor* const tensor, files.require(name));
  QuantizedMatrix made;
  TRY_ASSIGN(const HostWeight weight, made_of(tensor->weight, made));
  if (weight.n != 1 || weight.k != rope_dims / 2 ||
      weight.k % format_info(weight.format).block_weights != 0) {
    return bad_input(fmt::format("{}: tensor '{}' holds {} x {} values; {} are allowed", files.path(), name,
                                 weight.n, weight.k, rope_dims / 2));
  }
  std::vector<float> values(static_cast<size_t>(weight.k));
  const FormatInfo& format = format_info(weight.format);
  format.decode(weight.bytes.data(), static_cast<size_t>(weight.k / format.block_weights), values.data());
  return values;
}

/// LongRoPE: one of two lists, by the context that is wanted.
Status read_longrope(const ModelFiles& files, const GgufFields& fields, int32_t wanted_context,
                     DraftedConfig& out) {
  RopeScaling& scaling = out.draft.rope_scaling;
  TRY_ASSIGN(const int32_t original,
             fields.count_or("rope.scaling.original_context_length", out.config.context));
  TRY_ASSIGN(const float attention, fields.number_or("rope.scaling.attn_factor", 1));
  const bool is_long = wanted_context > original;
  TRY_ASSIGN(scaling.divisors,
             read_divisors(files, is_long ? "rope_factors_long.weight" : "rope_factors_short.weight",
                           out.draft.rope_dims));
  scaling.kind = RopeScaling::Kind::divisors;
  scaling.attention_factor = attention;
  if (!is_long && original < out.config.context) {
    LOG_DEBUG("{}: LongRoPE's short list is used, for sequences up to {} of {} tokens", files.path(),
              original, out.config.context);
    out.config.context = original;
  }
  return {};
}

Status read_rope(const ModelFiles& files, const GgufFields& fields, int32_t wanted_context,
                 DraftedConfig& out) {
  ConfigDraft& draft = out.draft;
  RopeScaling& scaling = draft.rope_scaling;
  TRY_ASSIGN(draft.rope_dims, fields.count_or("rope.dimension_count", out.config.head_dim));
  TRY_ASSIGN(draft.rope_base,
             fields.number_or("rope.freq_base", static_cast<float>(out.architecture->rope_base)));
  TRY_ASSIGN(draft.rope_local_base, fields.number_or("rope.freq_base_swa", 10000));

  TRY_ASSIGN(const std::string_view type,
             fields.text_or("rope.scaling.type", fields.has("rope.scale_linear") ? "linear" : "none"));
  TRY_ASSIGN(const float old_factor, fields.number_or("rope.scale_linear", 1));
  TRY_ASSIGN(scaling.factor, fields.number_or("rope.scaling.factor", old_factor));
  TRY_ASSIGN(const int32_t original,
             fields.count_or("rope.scaling.original_context_length", out.config.context));
  scaling.original_context = original;

  if (files.find("rope_factors_long.weight") || type == "longrope")
    return read_longrope(files, fields, wanted_context, out);
  if (files.find("rope_freqs.weight")) {  // Llama 3.1: the converter has worked the factors out
    TRY_ASSIGN(scaling.divisors, read_divisors(files, "rope_freqs.weight", draft.rope_dims));
    scaling.kind = RopeScaling::Kind::divisors;
    return {};
  }
  if (type == "none" || type.empty()) {
    scaling.factor = 1;
    return {};
  }
  if (type == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    return {};
  }
  if (type == "yarn") {
    scaling.kind = RopeScaling::Kind::yarn;
    TRY_ASSIGN(scaling.beta_fast, fields.number_or("rope.scaling.yarn_beta_fast", 32));
    TRY_ASSIGN(scaling.beta_slow, fields.number_or("rope.scaling.yarn_beta_slow", 1));
    TRY_ASSIGN(const float attention, fields.number_or("rope.scaling.attn_factor", 1));
    scaling.attention_factor = attention * (scaling.factor <= 1 ? 1.0 : 0.1 * std::log(scaling.factor) + 1.0);
    return {};
  }
  return bad_input(fmt::format("{}: {} is '{}'; allowed are none, linear, yarn, longrope", files.path(),
                               fields.key("rope.scaling.type"), type));
}

/// Keys of networks that share a name with ours but compute something else.
Status refuse_variants(const GgufFile& file, const GgufFields& fields) {
  TRY_ASSIGN(const int32_t experts, fields.count_or("expert_count", 0));
  if (experts > 0)
    return bad_input(fmt::format("{}: {} is {}; mixtures of experts are not supported", file.path(),
                                 fields.key("expert_count"), experts));
  for (std::string_view name :
       {"attn_logit_softcapping", "final_logit_softcapping", "attention.clamp_kqv",
        "attention.max_alibi_bias", "logit_scale", "residual_scale", "embedding_scale"}) {
    TRY_ASSIGN(const float value, fields.number_or(name, 0));
    if (value != 0) {
      return bad_input(fmt::format("{}: {} is {}; the architectures that are supported do without it",
                                   file.path(), fields.key(name), value));
    }
  }
  TRY_ASSIGN(const bool is_causal, file.get_bool_or(fields.key("attention.causal"), true));
  if (!is_causal)
    return bad_input(fmt::format("{}: {} is false; only causal models are supported", file.path(),
                                 fields.key("attention.causal")));
  return {};
}

}  // namespace

Result<DraftedConfig> read_gguf_config(const ModelFiles& files, int32_t context) {
  const GgufFile& file = *files.gguf();
  TRY_ASSIGN(const std::string_view name, file.get_string("general.architecture"));
  DraftedConfig out;
  for (const Architecture* architecture : architectures())
    if (!architecture->gguf.empty() && architecture->gguf == name) out.architecture = architecture;
  if (!out.architecture) {
    return bad_input(fmt::format("{}: general.architecture is '{}'; supported are {}", file.path(), name,
                                 allowed_gguf_architectures()));
  }
  GgufFields fields(file, name);
  ModelConfig& config = out.config;
  ConfigDraft& draft = out.draft;
  draft.origin = file.path();
  draft.rope_style = out.architecture->gguf_rope;
  TRY(refuse_variants(file, fields));

  TRY_ASSIGN(const std::string_view model_name, file.get_string_or("general.name", ""));
  config.name = model_name;
  TRY_ASSIGN(config.layers, fields.count("block_count"));
  fields.set_layers(config.layers);
  TRY_ASSIGN(config.hidden, fields.count("embedding_length"));
  TRY_ASSIGN(config.ffn, fields.uniform_count_or("feed_forward_length", 0));
  TRY_ASSIGN(config.heads, fields.uniform_count_or("attention.head_count", 0));
  TRY_ASSIGN(config.kv_heads, fields.uniform_count_or("attention.head_count_kv", config.heads));
  TRY_ASSIGN(config.context, fields.count("context_length"));
  TRY_ASSIGN(config.norm_eps, fields.number_or("attention.layer_norm_rms_epsilon", 1e-5f));
  TRY_ASSIGN(config.head_dim,
             fields.count_or("attention.key_length", config.heads > 0 ? config.hidden / config.heads : 0));
  TRY_ASSIGN(const int32_t value_dim, fields.count_or("attention.value_length", config.head_dim));
  if (value_dim != config.head_dim) {
    return bad_input(fmt::format("{}: {} is {} and {} is {}; they must be equal", file.path(),
                                 fields.key("attention.key_length"), config.head_dim,
                                 fields.key("attention.value_length"), value_dim));
  }
  TRY_ASSIGN(config.attention_scale, fields.number_or("attention.scale", 0));
  if (out.architecture == &kGemma3 && config.attention_scale == 0 && config.layers == 62 &&
      config.heads > 0) {
    // Gemma 3 27B alone divides by sqrt(hidden / heads), and its files do not say so.
    config.attention_scale =
        static_cast<float>(1 / std::sqrt(static_cast<double>(config.hidden / config.heads)));
  }
  TRY_ASSIGN(draft.sliding_window, fields.count_or("attention.sliding_window", 0));
  if (!file.is_array(fields.key("attention.sliding_window_pattern"))) {
    TRY_ASSIGN(draft.window_pattern, fields.count_or("attention.sliding_window_pattern", 0));
  } else {
    TRY_ASSIGN(draft.layer_slides, file.get_bools(fields.key("attention.sliding_window_pattern")));
  }
  TRY(read_rope(files, fields, context, out));

  TRY_ASSIGN(const ModelTensor* const embedding, files.require(kTokenEmbedding));
  if (embedding->weight.n > INT32_MAX)
    return bad_input(
        fmt::format("{}: tensor '{}' has {} rows", file.path(), kTokenEmbedding, embedding->weight.n));
  config.vocabulary = static_cast<int32_t>(embedding->weight.n);
  TRY_ASSIGN(const int32_t stated, fields.count_or("vocab_size", config.vocabulary));
  if (stated != config.vocabulary) {
    return bad_input(fmt::format("{}: {} is {}, but tensor '{}' has {} rows", file.path(),
                                 fields.key("vocab_size"), stated, kTokenEmbedding, config.vocabulary));
  }
  config.tied_embeddings = files.find("output.weight") == nullptr;
  config.qkv_bias =
      out.architecture->qkv_bias || files.find("blk.0.attn_q.bias") || files.find("blk.0.attn_qkv.bias");
  return out;
}

}  // namespace quintet
