// Looks moments up by the names that GGUF files give weights.
#include "compress/second_moments.h"

#include <fmt/format.h>

#include <algorithm>

#include "model/weight_map.h"

namespace quintet {
namespace {

bool are_zeros(const std::vector<float>& moments) {
  return std::ranges::all_of(moments, [](float moment) { return moment == 0; });
}

}  // namespace

Status SecondMoments::check_importance(const std::function<void(const std::string& message)>& warn) const {
  if (!model_.options.importance) return {};
  if (std::ranges::all_of(*model_.options.importance, [](const auto& weight) { return are_zeros(weight.second); }))
    return bad_input("importance matrix: found zeros alone, allowed is a matrix of mean squares that are not all zero");
  for (const TensorTask& task : model_.tasks) {
    if (!task.changed || task.place.input() < 0) continue;
    TRY_ASSIGN(const std::vector<float> moments, of(task, {}));
    if (moments.empty())
      warn(fmt::format("importance matrix: {}: found zeros alone: its inputs all count the same", gguf_name(task.tensor->weight.name)));
  }
  return {};
}

Result<std::vector<float>> SecondMoments::of(const TensorTask& task, const LayerInputs& layer) const {
  const int input = task.place.input();
  if (input < 0) return std::vector<float>();
  if (!model_.options.importance) return layer.fold.moments(input, layer.statistics[static_cast<size_t>(input)].moments);
  const HostWeight& weight = task.tensor->weight;
  const auto at = model_.options.importance->find(gguf_name(weight.name));
  if (at == model_.options.importance->end())
    return bad_input(fmt::format("importance matrix: found no weight {}, allowed is a matrix of all linear layers",
                                 gguf_name(weight.name)));
  if (static_cast<int64_t>(at->second.size()) != weight.k)
    return bad_input(fmt::format("importance matrix: {}: found {} inputs, allowed are {}, the weight's", at->first,
                                 at->second.size(), weight.k));
  if (are_zeros(at->second)) return std::vector<float>();
  return at->second;
}

std::string SecondMoments::file_name(int32_t layer) { return fmt::format("moments-{}.gguf", layer); }

Status SecondMoments::keep(std::span<const TensorTask> tasks, const LayerStatistics& statistics, const std::string& path,
                           const ImportanceOrigin& origin) const {
  ImportanceMatrix matrix;
  for (const TensorTask& task : tasks)
    if (const int input = task.place.input(); input >= 0)
      matrix[gguf_name(task.tensor->weight.name)] = statistics[static_cast<size_t>(input)].moments;
  return write_importance(path, matrix, origin);
}

Status SecondMoments::write_all(const std::string& folder, const ImportanceOrigin& origin) const {
  ImportanceMatrix all;
  for (int32_t layer = 0; layer < model_.config.layers; ++layer) {
    TRY_ASSIGN(ImportanceMatrix one, read_importance(fmt::format("{}/{}", folder, file_name(layer))));
    all.merge(one);
  }
  return write_importance(model_.options.save_importance, all, origin);
}

std::string SecondMoments::gguf_name(std::string_view name) const {
  return model_.files.kind() == ModelFiles::Kind::gguf ? std::string(name) : gguf_name_of(name, model_.config.post_norms);
}

}  // namespace quintet
