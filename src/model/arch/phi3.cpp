// Phi-3, Phi-3.5 and Phi-4: q, k, v in one tensor, gate and up in another, a part of each head turned.
#include "model/arch/architecture.h"

namespace quintet {

const Architecture kPhi3{.name = "phi3",
                         .gguf = "phi3",
                         .model_type = "phi3",
                         .class_name = "Phi3ForCausalLM",
                         .norm_eps = 1e-5f,
                         .fused = true,
                         .make_layers = make_uniform_layers};

}  // namespace quintet
