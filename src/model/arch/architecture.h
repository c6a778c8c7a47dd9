// What tells one architecture from another: a small description each, in one visible table (arch/table.cpp).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "model/config.h"
#include "model/rope.h"

namespace quintet {

/// What a model file says beyond ModelConfig, before the architecture makes layers and ropes of it.
struct ConfigDraft {
  std::string origin;  ///< file, for messages
  RopeStyle rope_style = RopeStyle::halves;
  int32_t rope_dims = 0;  ///< dimensions that turn
  double rope_base = 10000;
  double rope_local_base = 10000;  ///< of sliding layers, where they have their own
  RopeScaling rope_scaling;
  int32_t sliding_window = 0;      ///< 0: none
  int32_t window_pattern = 0;      ///< every n-th layer sees everything; 0: the architecture's own
  int32_t first_window_layer = 0;  ///< Qwen2's max_window_layers: earlier layers see everything
  std::vector<bool> layer_slides;  ///< config.json's layer_types; empty: not given
};

struct Architecture {
  std::string_view name;        ///< ours
  std::string_view gguf;        ///< general.architecture; empty: written under another one
  std::string_view model_type;  ///< config.json
  std::string_view class_name;  ///< config.json's "architectures"

  RopeStyle gguf_rope = RopeStyle::halves;  ///< `pairs`: the converter reorders the rows of q and k
  Activation activation = Activation::silu;
  bool tied_embeddings = false;  ///< where config.json does not say; so for the next four
  int32_t head_dim = 0;          ///< 0: hidden / heads
  int32_t sliding_window = 0;    ///< 0: none
  double rope_base = 10000;
  float norm_eps = 1e-6f;
  bool windows_are_optional = false;  ///< config.json: only where use_sliding_window says so
  bool fused = false;                 ///< q, k, v in one tensor, gate and up in another
  bool qkv_bias = false;              ///< always; otherwise where the model has one
  bool qk_norm = false;
  bool post_norms = false;        ///< norms after attention and MLP too
  bool norm_plus_one = false;     ///< config.json models: norms multiply by 1 + w
  bool scaled_embedding = false;  ///< by sqrt(hidden)

  /// Fills config.layer and config.ropes.
  void (*make_layers)(const ConfigDraft& draft, ModelConfig& config) = nullptr;
};

extern const Architecture kLlama, kMistral, kQwen2, kQwen3, kPhi3, kGemma3;

/// All of them.
std::span<const Architecture* const> architectures();

/// null where unknown.
const Architecture* find_architecture(std::string_view name);

/// "llama, mistral, ...": for messages, by the names of GGUF files or of config.json.
std::string allowed_gguf_architectures();
std::string allowed_model_types();

/// One rope for all layers; a sliding window, where there is one, on those that layer_slides or the rest of
/// the draft names.
void make_uniform_layers(const ConfigDraft& draft, ModelConfig& config);

}  // namespace quintet
