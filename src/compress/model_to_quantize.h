// What the parts of the work on one model share.
#pragma once

#include <string>
#include <vector>

#include "compress/quantize_model.h"
#include "compress/tensor_plan.h"
#include "io/model_files.h"
#include "model/config.h"

namespace quintet {

/// A model and what is to become of it; borrowed throughout the work.
struct ModelToQuantize {
  const std::string& source;  ///< for errors
  const ModelFiles& files;
  const ModelConfig& config;
  const QuantizeOptions& options;
  const std::vector<TensorTask>& tasks;  ///< plan_tensors()
};

}  // namespace quintet
