// Mistral 7B and its kin: Llama with a sliding window on every layer. GGUF files call them "llama".
#include "model/arch/architecture.h"

namespace quintet {

const Architecture kMistral{.name = "mistral",
                            .model_type = "mistral",
                            .class_name = "MistralForCausalLM",
                            .sliding_window = 4096,
                            .make_layers = make_uniform_layers};

}  // namespace quintet
