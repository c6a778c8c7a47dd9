// Tensors that other tools have compressed, as weights of this project's formats, made when they are needed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "io/foreign_scheme.h"
#include "io/safetensors.h"
#include "quant/host_weight.h"

namespace quintet {

/// A tensor of a file of the folder.
struct FolderTensor {
  const SafeTensor* tensor = nullptr;
  std::string_view path;  ///< of its file
  int32_t file = 0;
};

/// A weight put together from several tensors.
struct ForeignWeight {
  std::string name;  ///< "model.layers.0.mlp.up_proj.weight"
  WeightFormat format = WeightFormat::int4_g128;
  int64_t n = 0, k = 0;
  int32_t file = 0;  ///< of its codes
  std::unique_ptr<WeightMaker> maker;
};

struct ForeignModel {
  std::vector<ForeignWeight> weights;
  std::vector<FolderTensor> others;  ///< dense ones
};

/// Finds the compressed weights among the tensors and checks dtypes and shapes of their parts; bad_input names file,
/// tensor, what was found and what is allowed. Makers borrow from the tensors.
///
/// Integers become the project's of the largest group of 128, 64 or 32 that divides theirs. The value of a symmetric
/// weight is exact; of others the minimum, -zero point x scale, is rounded to FP16, which is at most 2^-12 of it. The
/// absolute maxima of bitsandbytes are rounded to FP16.
Result<ForeignModel> find_foreign_weights(const ForeignScheme& scheme, const std::vector<FolderTensor>& tensors);

}  // namespace quintet
