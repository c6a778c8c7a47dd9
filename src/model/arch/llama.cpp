// Llama 2, 3, 3.1 and what follows their shape: SmolLM2, TinyLlama, DeepSeek-LLM, Yi.
#include "model/arch/architecture.h"

namespace quintet {

const Architecture kLlama{.name = "llama",
                          .gguf = "llama",
                          .model_type = "llama",
                          .class_name = "LlamaForCausalLM",
                          .gguf_rope = RopeStyle::pairs,
                          .make_layers = make_uniform_layers};

}  // namespace quintet
