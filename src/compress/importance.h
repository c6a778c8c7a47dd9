// Importance matrices: second moments of the inputs of a model's weights, in llama.cpp's GGUF files of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace quintet {

/// By the name that a GGUF file gives a weight: the mean of x_j^2 over the inputs that were seen, [k].
using ImportanceMatrix = std::map<std::string, std::vector<float>, std::less<>>;

/// A GGUF file of general.type "imatrix": of each weight NAME the tensors NAME.in_sum2 f32 [1, k], sums of
/// squares, and NAME.counts f32 [1, 1], how many. bad_input, named by file and tensor, for anything else, for
/// experts (more than one row), and for sums that are negative or not finite. Weights whose inputs were never
/// seen are left out.
Result<ImportanceMatrix> read_importance(const std::string& path);

struct ImportanceOrigin {
  std::string text;                 ///< what was read, for people
  int64_t samples = 0, length = 0;  ///< stretches of so many tokens
};
/// Writes such a file; it is there once it is whole.
Status write_importance(const std::string& path, const ImportanceMatrix& matrix,
                        const ImportanceOrigin& origin);

}  // namespace quintet
