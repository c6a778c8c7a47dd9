// Tensor names of GGUF and Hugging Face, shapes from the configuration, and what is left over.
#include "model/weight_map.h"

#include <fmt/format.h>

#include <array>
#include <unordered_set>

namespace quintet {
namespace {

/// What a tensor is in the network; each world has a name for it.
enum class TensorRole : uint8_t {
  embedding,
  output_norm,
  head,
  attn_norm,
  q,
  k,
  v,
  fused_qkv,
  q_norm,
  k_norm,
  attn_out,
  post_attn_norm,
  mlp_norm,
  gate,
  up,
  fused_gate_up,
  mlp_out,
  post_mlp_norm,
};

struct TensorName {
  TensorRole role;
  std::string_view gguf;         ///< without ".weight" or ".bias"; layers' names follow "blk.N."
  std::string_view huggingface;  ///< layers' names follow "model.layers.N."
};

// Where norms stand on both sides (Gemma 3), Hugging Face's post_attention_layernorm is the one behind
// attention; in all others it is the one before the MLP. post_norms rows come last and win there.
constexpr std::array kNames = {
    TensorName{TensorRole::embedding, "token_embd", "model.embed_tokens"},
    TensorName{TensorRole::output_norm, "output_norm", "model.norm"},
    TensorName{TensorRole::head, "output", "lm_head"},
    TensorName{TensorRole::attn_norm, "attn_norm", "input_layernorm"},
    TensorName{TensorRole::q, "attn_q", "self_attn.q_proj"},
    TensorName{TensorRole::k, "attn_k", "self_attn.k_proj"},
    TensorName{TensorRole::v, "attn_v", "self_attn.v_proj"},
    TensorName{TensorRole::fused_qkv, "attn_qkv", "self_attn.qkv_proj"},
    TensorName{TensorRole::q_norm, "attn_q_norm", "self_attn.q_norm"},
    TensorName{TensorRole::k_norm, "attn_k_norm", "self_attn.k_norm"},
    TensorName{TensorRole::attn_out, "attn_output", "self_attn.o_proj"},
    TensorName{TensorRole::mlp_norm, "ffn_norm", "post_attention_layernorm"},
    TensorName{TensorRole::gate, "ffn_gate", "mlp.gate_proj"},
    TensorName{TensorRole::up, "ffn_up", "mlp.up_proj"},
    TensorName{TensorRole::fused_gate_up, "ffn_up", "mlp.gate_up_proj"},
    TensorName{TensorRole::mlp_out, "ffn_down", "mlp.down_proj"},
};
constexpr std::array kPostNormNames = {
    TensorName{TensorRole::post_attn_norm, "post_attention_norm", "post_attention_layernorm"},
    TensorName{TensorRole::mlp_norm, "ffn_norm", "pre_feedforward_layernorm"},
    TensorName{TensorRole::post_mlp_norm, "post_ffw_norm", "post_feedforward_layernorm"},
};

class Planner {
 public:
  Planner(const ModelFiles& files, const Architecture& architecture, const ModelConfig& config,
          ModelWeights& weights)
      : files_(files), architecture_(architecture), config_(config), weights_(weights) {}

  Result<std::vector<PlannedWeight>> run() {
    weights_.layer.clear();
    weights_.layer.resize(static_cast<size_t>(config_.layers));
    TRY(matrix(TensorRole::embedding, config_.vocabulary, config_.hidden,
               config_.tied_embeddings ? WeightRole::embedding_and_head : WeightRole::embedding,
               weights_.embedding));
    for (layer_ = 0; layer_ < config_.layers; ++layer_)
      TRY(plan_layer(weights_.layer[static_cast<size_t>(layer_)]));
    layer_ = -1;
    TRY(norm(TensorRole::output_norm, config_.hidden, weights_.output_norm));
    if (config_.tied_embeddings) {
      used_.insert(name_of(TensorRole::head) + ".weight");  // some folders store the tied head a second time
    } else {
      TRY(matrix(TensorRole::head, config_.vocabulary, config_.hidden, WeightRole::head, weights_.head));
    }
    TRY(refuse_unused());
    return std::move(plan_);
  }

 private:
  Status plan_layer(LayerWeights& layer) {
    const int64_t q_rows = int64_t{config_.heads} * config_.head_dim,
                  kv_rows = int64_t{config_.kv_heads} * config_.head_dim;
    TRY(norm(TensorRole::attn_norm, config_.hidden, layer.attn_norm));
    const Split qkv{.fused = TensorRole::fused_qkv,
                    .roles = {TensorRole::q, TensorRole::k, TensorRole::v},
                    .rows = {q_rows, kv_rows, kv_rows}};
    TRY(split_matrix(qkv, WeightRole::qkv, layer.qkv));
    if (config_.qkv_bias) TRY(split_bias(qkv, layer.qkv_bias));
    if (config_.qk_norm) {
      TRY(norm(TensorRole::q_norm, config_.head_dim, layer.q_norm));
      TRY(norm(TensorRole::k_norm, config_.head_dim, layer.k_norm));
    }
    TRY(matrix(TensorRole::attn_out, config_.hidden, q_rows, WeightRole::linear, layer.attn_out));
    if (files_.find(name_of(TensorRole::attn_out) + ".bias")) {
      PlannedWeight bias{.target = &layer.attn_out_bias, .role = WeightRole::vector};
      TRY(add_part(name_of(TensorRole::attn_out) + ".bias", 1, config_.hidden, bias));
      plan_.push_back(std::move(bias));
    }
    if (config_.post_norms) TRY(norm(TensorRole::post_attn_norm, config_.hidden, layer.post_attn_norm));

    TRY(norm(TensorRole::mlp_norm, config_.hidden, layer.mlp_norm));
    const Split gate_up{.fused = TensorRole::fused_gate_up,
                        .roles = {TensorRole::gate, TensorRole::up},
                        .rows = {config_.ffn, config_.ffn}};
    TRY(split_matrix(gate_up, WeightRole::gate_up, layer.gate_up));
    TRY(matrix(TensorRole::mlp_out, config_.hidden, config_.ffn, WeightRole::linear, layer.mlp_out));
    if (config_.post_norms) TRY(norm(TensorRole::post_mlp_norm, config_.hidden, layer.post_mlp_norm));
    return {};
  }

  /// Several matrices side by side: tensors of their own, or rows of one fused tensor.
  struct Split {
    TensorRole fused;
    std::vector<TensorRole> roles;
    std::vector<int64_t> rows;

    int64_t all_rows() const {
      int64_t sum = 0;
      for (int64_t count : rows) sum += count;
      return sum;
    }
  };

  Status split_matrix(const Split& split, WeightRole role, Weight& target) {
    PlannedWeight planned{.target = &target, .role = role};
    if (architecture_.fused) {
      TRY(add_part(name_of(split.fused) + ".weight", split.all_rows(), config_.hidden, planned));
      const HostWeight whole = planned.parts[0];
      planned.parts.clear();
      int64_t first = 0;
      for (int64_t rows : split.rows) {
        planned.parts.push_back(whole.slice_rows(first, rows));
        first += rows;
      }
    } else {
      for (size_t i = 0; i < split.roles.size(); ++i)
        TRY(add_part(name_of(split.roles[i]) + ".weight", split.rows[i], config_.hidden, planned));
    }
    plan_.push_back(std::move(planned));
    return {};
  }

  Status split_bias(const Split& split, Weight& target) {
    PlannedWeight planned{.target = &target, .role = WeightRole::vector};
    if (architecture_.fused) {
      TRY(add_part(name_of(split.fused) + ".bias", 1, split.all_rows(), planned));
    } else {
      for (size_t i = 0; i < split.roles.size(); ++i)
        TRY(add_part(name_of(split.roles[i]) + ".bias", 1, split.rows[i], planned));
    }
    plan_.push_back(std::move(planned));
    return {};
  }

  Status matrix(TensorRole role, int64_t n, int64_t k, WeightRole weight_role, Weight& target) {
    PlannedWeight planned{.target = &target, .role = weight_role};
    TRY(add_part(name_of(role) + ".weight", n, k, planned));
    plan_.push_back(std::move(planned));
    return {};
  }

  Status norm(TensorRole role, int64_t k, Weight& target) {
    PlannedWeight planned{.target = &target, .role = WeightRole::vector, .plus_one = config_.norm_plus_one};
    TRY(add_part(name_of(role) + ".weight", 1, k, planned));
    plan_.push_back(std::move(planned));
    return {};
  }

  Status add_part(const std::string& name, int64_t n, int64_t k, PlannedWeight& planned) {
    TRY_ASSIGN(const ModelTensor* const tensor, files_.require(name));
    const HostWeight& weight = tensor->weight;
    if (weight.n != n || weight.k != k) {
      return bad_input(fmt::format("{}: tensor '{}' is {} x {}; the configuration allows {} x {}",
                                   file_of(*tensor), name, weight.n, weight.k, n, k));
    }
    if (!used_.insert(name).second)
      return bad_input(fmt::format("{}: tensor '{}' is used twice", file_of(*tensor), name));
    planned.parts.push_back(weight);
    return {};
  }

  std::string name_of(TensorRole role) const {
    std::string_view gguf, huggingface;
    const auto look_up = [&](const auto& names) {
      for (const TensorName& name : names)
        if (name.role == role) gguf = name.gguf, huggingface = name.huggingface;
    };
    look_up(kNames);
    if (config_.post_norms) look_up(kPostNormNames);
    const bool is_gguf = files_.kind() == ModelFiles::Kind::gguf;
    if (layer_ < 0) return std::string(is_gguf ? gguf : huggingface);
    return is_gguf ? fmt::format("blk.{}.{}", layer_, gguf)
                   : fmt::format("model.layers.{}.{}", layer_, huggingface);
  }

  const std::string& file_of(const ModelTensor& tensor) const {
    return files_.weight_paths()[static_cast<size_t>(tensor.file)];
  }

  /// A tensor that nothing uses means that the network is another one than its configuration says.
  Status refuse_unused() const {
    const ModelTensor* first = nullptr;
    int64_t count = 0;
    for (const ModelTensor& tensor : files_.tensors()) {
      const std::string name(tensor.weight.name);
      // Frequencies are computed, or were read with the configuration.
      if (used_.contains(name) || name.ends_with(".rotary_emb.inv_freq") || name.starts_with("rope_f"))
        continue;
      if (!first) first = &tensor;
      ++count;
    }
    if (!first) return {};
    return bad_input(fmt::format(
        "{}: tensor '{}'{} has no place in a {} model of {} layers", file_of(*first), first->weight.name,
        count > 1 ? fmt::format(" (and {} more)", count - 1) : "", architecture_.name, config_.layers));
  }

  const ModelFiles& files_;
  const Architecture& architecture_;
  const ModelConfig& config_;
  ModelWeights& weights_;
  int32_t layer_ = -1;  // -1: outside the layers
  std::vector<PlannedWeight> plan_;
  std::unordered_set<std::string> used_;
};

}  // namespace

std::string gguf_name_of(std::string_view huggingface, bool post_norms) {
  constexpr std::string_view kLayers = "model.layers.";
  std::string layer, ending(huggingface.substr(std::min(huggingface.rfind('.'), huggingface.size())));
  std::string_view stem = huggingface.substr(0, huggingface.size() - ending.size());
  if (stem.starts_with(kLayers)) {
    const size_t dot = std::min(stem.find('.', kLayers.size()), stem.size());
    layer = stem.substr(kLayers.size(), dot - kLayers.size());
    stem.remove_prefix(std::min(dot + 1, stem.size()));
  }
  std::string_view name;
  for (const TensorName& known : kNames)
    if (known.huggingface == stem) name = known.gguf;
  if (post_norms)
    for (const TensorName& known : kPostNormNames)
      if (known.huggingface == stem) name = known.gguf;
  if (name.empty()) return {};
  return layer.empty() ? fmt::format("{}{}", name, ending) : fmt::format("blk.{}.{}{}", layer, name, ending);
}

Result<std::vector<PlannedWeight>> plan_weights(const ModelFiles& files, const Architecture& architecture,
                                                const ModelConfig& config, ModelWeights& weights) {
  return Planner(files, architecture, config, weights).run();
}

}  // namespace quintet
