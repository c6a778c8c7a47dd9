// Measures some rows of each tensor.
#include "compress/choose_shares.h"

#include <algorithm>

#include "compress/sample_rows.h"

namespace quintet {
namespace {

constexpr int64_t kRows = 128;

Status measure(const ModelToQuantize& model, const TensorTask& task, const std::vector<float>& moments, ShareChooser& chooser) {
  const HostWeight& weight = task.tensor->weight;
  const int64_t rows = std::min(weight.n, kRows);
  TRY_ASSIGN(const std::vector<float> values, sample_rows(weight, rows));
  drop_pages(weight.bytes);
  const MatrixToQuantize matrix{.name = weight.name,
                                .n = rows,
                                .k = weight.k,
                                .weights = values.data(),
                                .moments = moments,
                                .threads = model.options.threads};
  TRY(check_weights(matrix));
  chooser.measure(matrix, weight.n, *task.integers);
  return {};
}

}  // namespace

double share_of(const ModelToQuantize& model, const TensorTask& task, const TensorShares& chosen) {
  if (!model.options.has_outliers()) return 0;
  if (const auto at = chosen.find(task.tensor->weight.name); at != chosen.end()) return at->second;
  const OutlierShares& shares = model.options.shares;
  return task.place.input() < 0                             ? shares.head
         : task.place.layer < (model.config.layers + 7) / 8 ? shares.first
                                                            : shares.middle;
}

Result<TensorShares> choose_shares(const ModelToQuantize& model, const SecondMoments& moments, LayerCalibration* calibration,
                                   const std::function<bool(const TensorTask& task)>& goes_on) {
  ShareChooser chooser(model.options.select);
  double room = 0;
  int32_t layer = -1;
  LayerInputs inputs;
  for (const TensorTask& task : model.tasks) {
    if (task.place.layer >= 0 && task.place.layer != layer && calibration) {
      layer = task.place.layer;
      TRY(calibration->load(layer));
      TRY_ASSIGN(inputs.statistics, calibration->pass({.inputs = {true, true, true, true}, .advance = true}));
      TRY(check_statistics(model.source, layer, inputs.statistics));
    }
    if (task.integers && task.changed) {
      room += 4 * share_of(model, task, {}) * static_cast<double>(task.tensor->weight.n * task.tensor->weight.k);
      TRY_ASSIGN(const std::vector<float> of_inputs, moments.of(task, inputs));
      TRY(measure(model, task, of_inputs, chooser));
    }
    if (!goes_on(task)) return Error{ErrorKind::cancelled, "stopped by a signal"};
  }
  return chooser.choose(static_cast<uint64_t>(room));
}

}  // namespace quintet
