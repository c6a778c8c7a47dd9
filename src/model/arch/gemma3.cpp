// Gemma 3 (text): five sliding layers to one that sees everything, each kind with a rope of its own, norms on
// both sides of attention and MLP, and an embedding multiplied by sqrt(hidden).
#include "model/arch/architecture.h"

namespace quintet {
namespace {

constexpr int32_t kPattern = 6;  // "Gemma 3 Technical Report", 2025, section 2

void make_gemma3_layers(const ConfigDraft& draft, ModelConfig& config) {
  // The stretching applies to the global rope only: local layers never look further than their window.
  config.ropes = {make_rope(draft.rope_style, draft.rope_dims, draft.rope_base, draft.rope_scaling),
                  make_rope(draft.rope_style, draft.rope_dims, draft.rope_local_base, {})};
  const int32_t pattern = draft.window_pattern > 0 ? draft.window_pattern : kPattern;
  for (int32_t i = 0; i < config.layers; ++i) {
    const bool slides =
        draft.layer_slides.empty() ? (i + 1) % pattern != 0 : draft.layer_slides[static_cast<size_t>(i)];
    config.layer.push_back({.sliding_window = slides ? draft.sliding_window : 0, .rope = slides ? 1 : 0});
  }
}

}  // namespace

const Architecture kGemma3{.name = "gemma3",
                           .gguf = "gemma3",
                           .model_type = "gemma3_text",
                           .class_name = "Gemma3ForCausalLM",
                           .activation = Activation::gelu_tanh,
                           .tied_embeddings = true,
                           .head_dim = 256,
                           .sliding_window = 4096,
                           .rope_base = 1e6,
                           .qk_norm = true,
                           .post_norms = true,
                           .norm_plus_one = true,
                           .scaled_embedding = true,
                           .make_layers = make_gemma3_layers};

}  // namespace quintet
