// Brings a model's weights onto a backend.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "io/model_files.h"
#include "model/config.h"
#include "model/model.h"

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

}  // namespace quintet
