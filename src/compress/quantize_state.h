// How far the work on a model has come, as the text that is kept in its work folder.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "compress/outlier_shares.h"
#include "compress/quantize_model.h"

namespace quintet {

/// What a command needs to go on where another stopped, beside what the sink needs.
struct QuantizeState {
  size_t tensors = 0;    ///< that are written, in the order of the tasks
  int entering = 0;      ///< of the states of calibration (compress/hidden_states.h)
  TensorShares shares;   ///< that were chosen
  std::vector<TensorReport> report;  ///< of the tensors that are written, without plots
};

/// With "sink" null, for what ModelSink::checkpoint() gives.
nlohmann::ordered_json to_json(const QuantizeState& state);
/// Of what to_json() gave.
QuantizeState saved_state(const nlohmann::ordered_json& saved);

}  // namespace quintet
