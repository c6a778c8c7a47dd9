// Places from the plan of weights; formats from the method and its exceptions.
#include "compress/tensor_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"
#include "base/printable.h"
#include "compress/gguf_mix.h"
#include "model/weight_map.h"

namespace quintet {
namespace {

/// The part that each weight of a layer is.
std::unordered_map<const Weight*, TensorPlace> places_of(ModelWeights& weights) {
  std::unordered_map<const Weight*, TensorPlace> places = {{&weights.embedding, {.part = TensorPart::table}},
                                                           {&weights.head, {.part = TensorPart::table}}};
  for (size_t i = 0; i < weights.layer.size(); ++i) {
    LayerWeights& l = weights.layer[i];
    const auto layer = static_cast<int32_t>(i);
    const std::pair<const Weight*, TensorPart> parts[] = {
        {&l.qkv, TensorPart::qkv},
        {&l.attn_out, TensorPart::attn_out},
        {&l.gate_up, TensorPart::gate_up},
        {&l.mlp_out, TensorPart::mlp_out},
        {&l.qkv_bias, TensorPart::qkv_bias},
        {&l.attn_norm, TensorPart::attn_norm},
        {&l.mlp_norm, TensorPart::mlp_norm},
        {&l.q_norm, TensorPart::other},
        {&l.k_norm, TensorPart::other},
        {&l.attn_out_bias, TensorPart::other},
        {&l.post_attn_norm, TensorPart::other},
        {&l.post_mlp_norm, TensorPart::other}};
    for (const auto& [weight, part] : parts) places[weight] = {.part = part, .layer = layer};
  }
  return places;
}

void fit_groups(const HostWeight& weight, TensorTask& task) {
  const int wanted = task.integers->group;
  task.integers = fit_group(*task.integers, weight.k);
  if (task.integers) {
    task.format = *weight_format_of(*task.integers);
    if (task.integers->group != wanted)
      task.note = fmt::format("groups of {}: {} inputs are no multiple of {}", task.integers->group, weight.k, wanted);
    return;
  }
  task.format = weight.format;
  task.note = fmt::format("stays as it is: {} inputs are no multiple of 32", weight.k);
}

/// Linear layers, embedding and head; norms and biases stay as they are.
bool can_change(const TensorPlace& place) { return place.input() >= 0 || place.part == TensorPart::table; }

void decide(const ModelConfig& config, const QuantizeOptions& options, TensorTask& task) {
  const HostWeight& weight = task.tensor->weight;
  task.format = weight.format;
  if (!can_change(task.place)) return;
  const bool gguf = options.method == QuantizeMethod::gguf;
  if (gguf) {
    const auto format = format_of_blocks(
        format_in_mix(*options.mix, weight.name, task.place.layer, config.layers, config.tied_embeddings), weight.k);
    if (!format) task.note = fmt::format("stays as it is: {} inputs are no multiple of 32", weight.k);
    task.format = format.value_or(weight.format);
  } else if (task.place.input() >= 0 && options.method == QuantizeMethod::direct) {
    task.format = options.direct;
  } else if (task.place.input() >= 0) {
    task.integers = options.format;
  }
  for (const FormatOverride& override : options.overrides) {
    if (!matches(override.pattern, weight.name)) continue;
    task.format = override.stays ? weight.format : override.format;
    task.integers = gguf || override.stays ? std::nullopt : integer_format(override.format);
    if (task.integers && task.integers->minimum) task.integers->whole_zero = options.format.whole_zero;
  }
  if (task.integers) fit_groups(weight, task);
  if (!task.integers && weight.k % format_info(task.format).block_weights != 0) {
    task.note = fmt::format("stays as it is: {} inputs are no multiple of {}", weight.k,
                            format_info(task.format).block_weights);
    task.format = weight.format;
  }
  task.changed = task.integers || task.format != weight.format;
}

}  // namespace

uint64_t planned_bytes(const TensorTask& task) {
  const HostWeight& weight = task.tensor->weight;
  if (!task.changed) return weight.stored_bytes();
  const uint64_t scales = format_info(task.format).decode_scaled ? sizeof(float) * static_cast<uint64_t>(weight.n) : 0;
  return format_bytes_of(task.format, static_cast<uint64_t>(weight.n * weight.k)) + scales;
}

std::optional<IntegerFormat> fit_group(IntegerFormat wanted, int64_t k) {
  while (wanted.group >= 32 && k % wanted.group != 0) wanted.group /= 2;
  return wanted.group >= 32 ? std::optional(wanted) : std::nullopt;
}

Result<std::vector<TensorTask>> plan_tensors(const ModelFiles& files, const ModelConfig& config,
                                             const QuantizeOptions& options) {
  const Architecture* architecture = find_architecture(config.architecture);
  QUINTET_CHECK(architecture, "no architecture '{}'", config.architecture);
  ModelWeights weights;
  TRY_ASSIGN(const auto planned, plan_weights(files, *architecture, config, weights));
  const auto places = places_of(weights);
  std::vector<TensorTask> tasks;
  std::unordered_map<std::string_view, size_t> seen;
  const auto add = [&](const ModelTensor* tensor, const TensorPlace& place) {
    if (!seen.emplace(tensor->weight.name, tasks.size()).second) return;  // another part of a fused tensor
    tasks.push_back({.tensor = tensor, .place = place});
    decide(config, options, tasks.back());
  };
  for (const PlannedWeight& weight : planned) {
    const auto at = places.find(weight.target);
    TensorPlace place = at == places.end() ? TensorPlace{} : at->second;
    place.plus_one = weight.plus_one;
    for (const HostWeight& part : weight.parts) {
      TRY_ASSIGN(const ModelTensor* tensor, files.require(part.name));
      add(tensor, place);
      place.first_row += weight.role == WeightRole::vector ? part.k : part.n;
    }
  }
  for (const ModelTensor& tensor : files.tensors()) add(&tensor, {});  // frequencies and the like
  for (const FormatOverride& override : options.overrides)
    if (std::ranges::none_of(tasks, [&](const TensorTask& task) {
          return can_change(task.place) && matches(override.pattern, task.tensor->weight.name);
        }))
      return bad_input(fmt::format("--tensor-format: found {}, which is the name of no tensor, allowed are names of linear layers, "
                                   "embedding and head: {}, say",
                                   printable(override.pattern), printable(tasks.front().tensor->weight.name)));
  return tasks;
}

}  // namespace quintet
