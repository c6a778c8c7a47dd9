// The table of architectures. Adding one is a description beside these and a line here
// (docs/add-an-architecture.md).
#include <array>

#include "model/arch/architecture.h"

namespace quintet {
namespace {

constexpr std::array kTable = {&kLlama, &kMistral, &kQwen2, &kQwen3, &kPhi3, &kGemma3};

void append(std::string& list, std::string_view name) {
  if (name.empty()) return;
  if (!list.empty()) list += ", ";
  list += name;
}

}  // namespace

std::span<const Architecture* const> architectures() { return kTable; }

const Architecture* find_architecture(std::string_view name) {
  for (const Architecture* architecture : kTable)
    if (architecture->name == name) return architecture;
  return nullptr;
}

std::string allowed_gguf_architectures() {
  std::string list;
  for (const Architecture* architecture : kTable) append(list, architecture->gguf);
  return list;
}

std::string allowed_model_types() {
  std::string list;
  for (const Architecture* architecture : kTable) append(list, architecture->model_type);
  return list;
}

void make_uniform_layers(const ConfigDraft& draft, ModelConfig& config) {
  config.ropes = {make_rope(draft.rope_style, draft.rope_dims, draft.rope_base, draft.rope_scaling)};
  for (int32_t i = 0; i < config.layers; ++i) {
    const bool slides = draft.layer_slides.empty() ? i >= draft.first_window_layer
                                                   : draft.layer_slides[static_cast<size_t>(i)];
    config.layer.push_back({.sliding_window = slides ? draft.sliding_window : 0, .rope = 0});
  }
}

}  // namespace quintet
