// Text to tokens, states to the backend or the disk.
#include "compress/calibration_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

namespace quintet {
namespace {

/// Of a heavy-tailed input that is present in one token of a hundred, this leaves some forty.
constexpr int64_t kFewTokens = 4096;

}  // namespace

bool CalibrationRun::is_needed(const ModelToQuantize& model) {
  return model.options.needs_calibration() && (!model.options.is_gptq() || std::ranges::any_of(model.tasks, [](const TensorTask& task) {
                                                 return task.changed && task.place.input() >= 0;
                                               }));
}

Status CalibrationRun::read_text() {
  const QuantizeOptions& options = setup_.model.options;
  TRY_ASSIGN(tokens_, calibration_sequences({.source = setup_.model.source,
                                             .config = setup_.model.config,
                                             .text = {.text = options.calibration_text, .special = options.calibration_special},
                                             .samples = options.samples,
                                             .length = options.length}));
  warn_of_text();
  return {};
}

uint64_t CalibrationRun::state_bytes() const {
  constexpr uint64_t kFiles = 2;  // what enters a layer and what leaves it
  return kFiles * static_cast<uint64_t>(tokens() * setup_.model.config.hidden) * sizeof(float);
}

Result<std::unique_ptr<LayerCalibration>> CalibrationRun::start(size_t first_task, int entering) {
  const ModelToQuantize& model = setup_.model;
  int32_t next = model.config.layers;
  for (size_t i = first_task; i < model.tasks.size() && next == model.config.layers; ++i)
    if (model.tasks[i].place.layer >= 0) next = model.tasks[i].place.layer;
  if (next == model.config.layers) return std::unique_ptr<LayerCalibration>();
  TRY_ASSIGN(HiddenStates states, open_states({.tokens = tokens(), .hidden = model.config.hidden, .entering = entering}, next > 0));
  const uint64_t free_bytes = setup_.backend.info().free_bytes, others = needs_beside_states();
  const uint64_t kept_bytes = states.on_backend() && free_bytes > others ? free_bytes - others : 0;
  return LayerCalibration::make({.files = model.files,
                                 .config = model.config,
                                 .backend = setup_.backend,
                                 .tokens = tokens_,
                                 .threads = model.options.threads,
                                 .solver = setup_.solver,
                                 .goes_on = setup_.goes_on,
                                 .kept_bytes = kept_bytes},
                                std::move(states), next);
}

/// Of a device's memory: a layer, what solves for its weights (backend/weight_solver.h), and a step's workspace.
uint64_t CalibrationRun::needs_beside_states() const {
  constexpr uint64_t kWorkspaceBytes = uint64_t{2} << 30;  // a step of 2048 tokens of a 70B model takes 1.2 GB
  std::map<int32_t, uint64_t> layers;
  uint64_t largest = 0, widest = 0, most = 0;
  for (const TensorTask& task : setup_.model.tasks) {
    if (task.place.layer < 0) continue;
    const auto k = static_cast<uint64_t>(task.tensor->weight.k), weights = static_cast<uint64_t>(task.tensor->weight.n) * k;
    most = std::max(most, layers[task.place.layer] += weights);
    if (task.place.input() >= 0) largest = std::max(largest, weights), widest = std::max(widest, k);
  }
  return kWorkspaceBytes + 5 * most / 2 + (setup_.solver ? 8 * widest * widest + 10 * largest : 0);
}

/// A device has them in its own memory where there is room: on their way to and from the host's, and from there to the disk,
/// they would take ten times as long as the layers.
Result<HiddenStates> CalibrationRun::open_states(const HiddenStates::Shape& shape, bool saved) const {
  const BackendInfo info = setup_.backend.info();
  if (info.asynchronous && static_cast<uint64_t>(shape.tokens * shape.hidden) * sizeof(float) + needs_beside_states() < info.free_bytes) {
    auto kept = HiddenStates::keep(setup_.folder, shape, setup_.backend, saved);
    if (kept || kept.error().kind != ErrorKind::no_room) return kept;
  }
  return HiddenStates::open(setup_.folder, shape);
}

void CalibrationRun::warn_of_text() const {
  const QuantizeOptions& options = setup_.model.options;
  const ModelConfig& config = setup_.model.config;
  if (samples() < options.samples)
    setup_.warn(fmt::format("calibration text: found {} stretches of {} tokens, asked for were {}", samples(), options.length,
                            options.samples));
  const int64_t widest = std::max({config.hidden, config.ffn, config.heads * config.head_dim});
  if (options.is_gptq() && tokens() < widest)
    setup_.warn(fmt::format("calibration text: {} tokens are fewer than the {} inputs of the widest layer; the Hessian has "
                            "no full rank",
                            tokens(), widest));
  else if (tokens() < kFewTokens)
    setup_.warn(fmt::format("calibration text: {} tokens are few; second moments settle with {} and more", tokens(), kFewTokens));
}

}  // namespace quintet
