// Each tensor's share of outliers: what the options say, or from a walk over the model that measures it.
#pragma once

#include <functional>

#include "base/result.h"
#include "compress/layer_calibration.h"
#include "compress/model_to_quantize.h"
#include "compress/outlier_shares.h"
#include "compress/second_moments.h"

namespace quintet {

/// Of a task's weights that are kept apart: what was chosen for it, or what the options say of its place.
double share_of(const ModelToQuantize& model, const TensorTask& task, const TensorShares& chosen);

/// One walk over the model before the one that compresses: its moments, and what outliers save of each tensor's error
/// (compress/outlier_shares.h). As many outliers in all as the options' shares would keep. `calibration` stands before the first
/// layer; null where the method asks for none. `goes_on`: told of each task; false stops (cancelled).
Result<TensorShares> choose_shares(const ModelToQuantize& model, const SecondMoments& moments, LayerCalibration* calibration,
                                   const std::function<bool(const TensorTask& task)>& goes_on);

}  // namespace quintet
