// Which tensors of a model's files make which weights of the decoder.
#pragma once

#include <string>
#include <vector>

#include "backend/weight.h"
#include "base/result.h"
#include "io/model_files.h"
#include "model/arch/architecture.h"
#include "model/config.h"
#include "model/model.h"

namespace quintet {

/// One weight to prepare: rows of tensors, in order.
struct PlannedWeight {
  Weight* target = nullptr;  ///< in the ModelWeights that the plan was made for
  WeightRole role = WeightRole::linear;
  std::vector<HostWeight> parts;
  bool plus_one = false;  ///< vectors: 1 is added to each value
};

/// The name that a GGUF file gives a tensor of a Hugging Face folder; empty where it has none for it.
std::string gguf_name_of(std::string_view huggingface, bool post_norms);

/// Lists what to prepare, in the order in which a forward pass uses it. Sizes `weights.layer`; pointers into
/// `weights` stay valid as long as that is not resized. Tensors that are missing, of the wrong shape, or that
/// nothing would use are bad_input, named with file, what was found and what is allowed.
Result<std::vector<PlannedWeight>> plan_weights(const ModelFiles& files, const Architecture& architecture,
                                                const ModelConfig& config, ModelWeights& weights);

}  // namespace quintet
