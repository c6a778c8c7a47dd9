// Brings a model's weights onto a backend.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "io/model_files.h"
#include "model/config.h"
#include "model/model.h"
#include "model/weight_map.h"

namespace quintet {

/// Keeps alive what prepared weights may borrow from.
struct WeightSource {
  ModelFiles files;
  std::vector<std::vector<float>> vectors;  ///< norm weights and biases, decoded
};

/// Prepares every weight, one after the other, and lets go of the mapped pages behind it. Logs the speed.
/// bad_input, before anything is prepared, where the backend has no kernels for a weight.
Result<ModelWeights> load_weights(WeightSource& source, const ModelConfig& config, Backend& backend,
                                  const LoadOptions& options);

/// One weight of a plan on a backend, made of `parts` (planned.parts, or what stands for them). Vectors are decoded into
/// `vectors`, which must outlive the weight. `origin` names the file in errors.
Result<Weight> prepare_weight(const std::string& origin, const PlannedWeight& planned, std::span<const HostWeight> parts,
                              std::vector<std::vector<float>>& vectors, Backend& backend,
                              OnLoad compress = OnLoad::none);

}  // namespace quintet
