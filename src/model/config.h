// A model's architecture as the decoder needs it, read from GGUF metadata or a config.json.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/ops.h"

namespace quintet {

/// One rotary embedding of a model; layers refer to it by index.
struct RopeConfig {
  RopeStyle style = RopeStyle::halves;
  int32_t dims = 0;
  std::vector<float> inv_freq;  ///< [dims / 2], all scaling (linear, llama3, yarn) applied
  float scale = 1;              ///< yarn's attention factor
};

struct LayerConfig {
  int32_t sliding_window = 0;
  int32_t rope = 0;  ///< index into ModelConfig::ropes
};

/// Checked: every count is positive and bounded, heads divide, and so on. See model/config.cpp.
struct ModelConfig {
  std::string architecture;  ///< "llama", "qwen2", "qwen3", "mistral", "phi3", "gemma3"
  std::string name;
  int32_t layers = 0;
  int32_t hidden = 0;
  int32_t ffn = 0;
  int32_t heads = 0;
  int32_t kv_heads = 0;
  int32_t head_dim = 0;
  int32_t vocabulary = 0;
  int32_t context = 0;         ///< longest sequence that the model was made for, scaling included
  float norm_eps = 1e-5f;
  bool norm_plus_one = false;  ///< Hugging Face Gemma: weight is 1 + w (GGUF has it added already)
  float embedding_scale = 1;
  float attention_scale = 0;   ///< of q . k; 0: 1 / sqrt(head_dim)
  Activation activation = Activation::silu;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool qk_norm = false;
  bool post_norms = false;     ///< Gemma: norms after attention and MLP too
  std::vector<RopeConfig> ropes;
  std::vector<LayerConfig> layer;
};

}  // namespace quintet
