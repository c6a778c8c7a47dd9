// Which format each tensor gets so that a whole model fits into so many bytes and loses least.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/result.h"
#include "compress/quantize_model.h"

namespace quintet {

struct ChooseRequest {
  uint64_t target_bytes = 0;  ///< of all tensors, as they will be stored
  /// On which the loss is measured: of the calibration text, beside what GPTQ sees where it is long enough.
  int64_t probe_tokens = 512;
  /// done of all steps. false: stop (cancelled).
  std::function<bool(uint64_t done, uint64_t all)> progress;
};

/// Tensors that share an input (v apart from q and k), or the embedding, or the head.
struct FormatChoice {
  std::string name;                  ///< "layer 3: gate, up", "embedding"
  std::vector<std::string> tensors;
  WeightFormat format = WeightFormat::f16;
  bool changed = false;              ///< false: they stay as they are, each in its own format (`format` is the first one's)
  uint64_t bytes = 0;
  WeightFormat probe = WeightFormat::f16;  ///< what they were tried in; f16: not tried, since no format fits their rows, or nothing was
  double probe_kl = 0;               ///< measured with these tensors alone in that format
  double expected_kl = 0;            ///< of the chosen format
};

/// Where a choice comes from.
enum class ChoiceBasis : uint8_t {
  measured,
  saved,  ///< measured by an earlier command, which was stopped
  room,   ///< there is room for the best format of every group: nothing was measured
};

struct ChosenFormats {
  ChoiceBasis basis = ChoiceBasis::measured;
  std::vector<FormatChoice> choices;
  uint64_t bytes = 0;        ///< of all tensors
  double expected_kl = 0;    ///< the sum: as far as losses add up
  std::vector<FormatOverride> overrides;  ///< what makes quantize_model() do it
};

/// Measures, for each group of tensors, the KL divergence of the model whose other weights are the source's from the source,
/// with the group in 3 bits by GPTQ (embedding and head: rounded to 4); other formats' losses are taken to be in proportion to
/// their error (format_errors.h). Layer by layer, all trials together: in memory are one layer's weights and the Hessians of its
/// inputs, or the head's; on the disk the rows between two layers of every trial, and the source's logits of the probe. Then
/// takes, from the smallest formats up, the step that saves most loss a byte, until the room is used (format_budget.h).
///
/// `options` as for quantize_model: calibration text, samples, length, threads, restart. Tensors that its overrides name get
/// those formats, which the others have to make room for. bad_input where even the smallest formats do not fit, before anything
/// is measured; names both sizes. no_room, also before, where the disk has too little for the rows.
///
/// What was measured is kept in the work folder of `destination` (compress/work_folder.h), where quantize_model() goes on: the
/// same command does not measure again. Files beside it that are measured with have no name while they are used.
Result<ChosenFormats> choose_formats(const std::string& source, const std::string& destination, Backend& backend,
                                     const QuantizeOptions& options, const ChooseRequest& request);

/// Bytes that are left for weights on a GPU of so many bytes beside the cache of `users` sequences of `context` tokens in
/// FP16, the workspace, and what a driver keeps. bad_input where nothing is left; `sum` says what takes what.
Result<uint64_t> weight_room(const std::string& source, uint64_t gpu_bytes, int64_t context, int64_t users,
                             std::string& sum);

}  // namespace quintet
