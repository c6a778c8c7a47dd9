// Qwen2 and Qwen2.5: biases on q, k and v; a sliding window on the later layers, where it is switched on at
// all.
#include "model/arch/architecture.h"

namespace quintet {

const Architecture kQwen2{.name = "qwen2",
                          .gguf = "qwen2",
                          .model_type = "qwen2",
                          .class_name = "Qwen2ForCausalLM",
                          .windows_are_optional = true,
                          .qkv_bias = true,
                          .make_layers = make_uniform_layers};

}  // namespace quintet
