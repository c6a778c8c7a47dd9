// The tensors of a model in the order of a forward pass, where each stands, and what it is to become.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "compress/quantize_model.h"
#include "io/model_files.h"
#include "model/config.h"

namespace quintet {

/// What a tensor is part of. The first four have inputs, numbered alike (LayerStatistics).
enum class TensorPart : uint8_t { qkv, attn_out, gate_up, mlp_out, qkv_bias, attn_norm, mlp_norm, table, other };

/// Where a tensor stands in the network.
struct TensorPlace {
  TensorPart part = TensorPart::other;
  int32_t layer = -1;     ///< -1: outside the layers
  int64_t first_row = 0;  ///< of the stacked weight (q, k, v; gate, up), where the tensor is a part of one
  bool plus_one = false;  ///< a norm that stores its weight less 1

  /// Index into LayerStatistics, -1 where it is no linear layer's.
  int input() const { return part <= TensorPart::mlp_out ? static_cast<int>(part) : -1; }
};

/// One tensor and what it is to become.
struct TensorTask {
  const ModelTensor* tensor = nullptr;
  TensorPlace place;
  WeightFormat format = WeightFormat::f32;
  std::optional<IntegerFormat> integers;  ///< by the method
  bool changed = false;                   ///< false: its bytes are copied
  std::string note;
};

/// What the tensor will take, outliers aside.
uint64_t planned_bytes(const TensorTask& task);

/// The member of a family with the largest group up to `wanted`'s of which k inputs are a whole number; nothing where that is
/// less than 32.
std::optional<IntegerFormat> fit_group(IntegerFormat wanted, int64_t k);

/// All tensors, in the order of a forward pass; those that no weight is made of come last.
Result<std::vector<TensorTask>> plan_tensors(const ModelFiles& files, const ModelConfig& config,
                                             const QuantizeOptions& options);

}  // namespace quintet
