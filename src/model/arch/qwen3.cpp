// Qwen3 (dense): a norm over each head of q and k, no biases.
#include "model/arch/architecture.h"

namespace quintet {

const Architecture kQwen3{.name = "qwen3",
                          .gguf = "qwen3",
                          .model_type = "qwen3",
                          .class_name = "Qwen3ForCausalLM",
                          .head_dim = 128,
                          .windows_are_optional = true,
                          .qk_norm = true,
                          .make_layers = make_uniform_layers};

}  // namespace quintet
