// Reads a model file or makes a random model.
#include "cli/model_source.h"

#include <algorithm>

#include "model/on_load.h"
#include "model/synthetic.h"

namespace quintet {

void ModelSource::declare(FlagSet& flags) {
  flags.optional_model(path);
  flags.choice("--quantize-on-load", on_load, {"none", "rtn", "outlier", "nf4", "fp8", "int8"},
               "Compress dense weights while they are loaded: rtn and outlier to INT4 in groups of 128");
  const std::string group = "Instead of MODEL";
  flags.text("--shape", shape, "SHAPE", "Random weights: llama3-8b, llama3-70b, qwen2-72b (the text is noise, the speed is real)").group(group);
  flags.text("--weights", weights, "FORMAT", "Their format: int4-g128 (default), f16, bf16, int8, fp8, nf4, q4_k, ... (or any other that inspect names); +outliers behind it: 0.1 % kept apart as FP16").group(group);
  flags.integer("--layers", {layers, 1, 1024}, "How many layers (default: all)").group(group);
}

Status ModelSource::check() const {
  if (path.empty() && shape.empty()) return bad_input("MODEL is required (or --shape)");
  if (!path.empty() && !shape.empty())
    return bad_input(fmt::format("found both MODEL ({}) and --shape {}, allowed is one of them", path, shape));
  return {};
}

std::string ModelSource::name() const { return shape.empty() ? path : "random " + shape; }

Result<ModelSource::ShapeWeights> ModelSource::shape_weights() const {
  constexpr std::string_view kOutliers = "+outliers";
  constexpr double kOutlierShare = 0.001;
  std::string format_name = weights;
  const bool outliers = format_name.ends_with(kOutliers);
  if (outliers) format_name.resize(format_name.size() - kOutliers.size());
  std::ranges::replace(format_name, '-', '_');
  if (const auto format = format_from_name(format_name)) return ShapeWeights{.format = *format, .outliers = outliers ? kOutlierShare : 0};
  std::string names;
  for (const FormatInfo& info : format_table()) names += fmt::format("{}{}", names.empty() ? "" : ", ", info.name);
  return bad_input(fmt::format("--weights: found '{}', allowed are {}, each with or without +outliers behind it", weights, names));
}

Result<std::unique_ptr<Model>> ModelSource::load(Backend& backend, const LoadOptions& options) const {
  TRY(check());
  if (shape.empty()) {
    LoadOptions load = options;
    load.compress = on_load_from_name(on_load).value_or(OnLoad::none);
    return load_model(path, backend, load);
  }
  TRY_ASSIGN(const ShapeWeights chosen, shape_weights());
  return make_synthetic_model({.shape = shape,
                               .format = chosen.format,
                               .outliers = chosen.outliers,
                               .layers = static_cast<int32_t>(layers),
                               .admit = options.admit},
                              backend);
}

}  // namespace quintet
