// Second moments of the inputs of a model's weights: those that calibration finds, or an importance matrix's.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compress/importance.h"
#include "compress/layer_calibration.h"
#include "compress/layer_fold.h"
#include "compress/model_to_quantize.h"

namespace quintet {

/// What is known of the inputs of the layer that is worked on; nothing of tensors outside the layers.
struct LayerInputs {
  LayerStatistics statistics = LayerStatistics(kLayerInputs);
  LayerFold fold;  ///< awq: what its weights are multiplied with before they are rounded
};

/// Holds nothing: any number of threads may ask.
class SecondMoments {
 public:
  explicit SecondMoments(const ModelToQuantize& model) : model_(model) {}

  /// bad_input where the importance matrix lacks a weight, is of another shape, or says nothing at all. One that is zero
  /// throughout for a weight is no reason to stop: other weights have their say. But nobody should take the result for one that
  /// it shaped: `warn` is told.
  Status check_importance(const std::function<void(const std::string& message)>& warn) const;
  /// Of a task's inputs, [k]; empty where nothing is known of them. bad_input as check_importance().
  Result<std::vector<float>> of(const TensorTask& task, const LayerInputs& layer) const;

  /// Where a layer's moments stay in the work folder, as its compressed weights do, whatever ends the process.
  static std::string file_name(int32_t layer);
  /// Writes those of a layer, of which `tasks` are, to such a file.
  Status keep(std::span<const TensorTask> tasks, const LayerStatistics& statistics, const std::string& path,
              const ImportanceOrigin& origin) const;
  /// The files of all layers, in `folder`, as one matrix to options.save_importance.
  Status write_all(const std::string& folder, const ImportanceOrigin& origin) const;

 private:
  std::string gguf_name(std::string_view name) const;

  ModelToQuantize model_;
};

}  // namespace quintet
