// Where a verb's model comes from: a file, or a shape filled with random weights.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "cli/flags.h"
#include "model/model.h"

namespace quintet {

struct ModelSource {
  std::string path;
  std::string shape;  ///< "llama3-70b": random weights instead of a file
  std::string weights = "int4-g128";
  int64_t layers = 0;  ///< 0: all of the shape
  std::string on_load = "none";  ///< --quantize-on-load

  /// MODEL, or --shape with --weights and --layers.
  void declare(FlagSet& flags);
  /// bad_input unless there is exactly one of MODEL and --shape.
  Status check() const;
  /// For messages: the path, or "random llama3-70b".
  std::string name() const;
  /// What --weights says; bad_input lists what it may.
  struct ShapeWeights {
    WeightFormat format;
    double outliers;  ///< share of the weights of linear layers
  };
  Result<ShapeWeights> shape_weights() const;
  Result<std::unique_ptr<Model>> load(Backend& backend, const LoadOptions& options) const;
};

}  // namespace quintet
