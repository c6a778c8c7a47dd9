// What decides the bits of a result, beside the model and the request. See "Numbers" in docs/design.md.
#pragma once

#include <cstdint>
#include <string>

namespace quintet {

/// Two backends, builds or settings with equal Numerics give equal bits; the id is part of prefix-cache keys,
/// cache files and system_fingerprint.
struct Numerics {
  std::string path;       ///< "reference", "cpu-avx512-i16", "cuda-w4-f16"
  int k_slices = 1;       ///< slices of K whose partial sums are added in order
  int kv_split = 0;       ///< tokens of a fixed attention split; 0: one pass in order
  std::string norm_tree;  ///< the documented reduction of a norm
  std::string kv_rule;    ///< which format a query block sees a KV block in
  std::string build;      ///< compiler and version of the code

  /// A 64-bit hash of all fields.
  uint64_t id() const;
};

}  // namespace quintet
