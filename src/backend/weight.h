// A weight as a backend holds it: prepared once from mapped bytes, opaque from then on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "quant/host_weight.h"

namespace quintet {

/// What a weight is for; a backend may lay out, merge or interleave its parts by it.
enum class WeightRole : uint8_t {
  vector,              ///< norm weights, biases: kept as f32
  linear,              ///< one part
  qkv,                 ///< three parts: q, k, v
  gate_up,             ///< two parts of equal shape: gate, up
  embedding,           ///< rows are looked up
  head,                ///< logits
  embedding_and_head,  ///< tied: both
};

enum class WeightPlace : uint8_t { resident, streamed, cpu };

/// A backend's own layout; each backend derives its own.
struct PackedWeight {
  virtual ~PackedWeight() = default;
};

/// Move-only. [n, k] in logical row order: the parts one after the other.
class Weight {
 public:
  Weight() = default;
  Weight(Weight&&) = default;
  Weight& operator=(Weight&&) = default;

  bool empty() const { return packed == nullptr; }

  WeightRole role = WeightRole::linear;
  WeightPlace place = WeightPlace::resident;
  int64_t n = 0;
  int64_t k = 0;
  std::vector<int64_t> part_rows;  ///< rows of each part; sums to n
  uint64_t bytes = 0;              ///< memory that the packed form takes
  std::unique_ptr<PackedWeight> packed;
};

}  // namespace quintet
