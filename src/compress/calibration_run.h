// Where the walk of calibration over a model begins, and where its states lie.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/result.h"
#include "compress/hidden_states.h"
#include "compress/layer_calibration.h"
#include "compress/model_to_quantize.h"

namespace quintet {

/// The calibration of one model: its tokens, of which the LayerCalibrations that it makes borrow. One thread calls.
class CalibrationRun {
 public:
  struct Setup {
    const ModelToQuantize& model;
    Backend& backend;
    WeightSolver* solver = nullptr;  ///< of gptq, where the backend has one
    std::string folder;              ///< where states lie that have no room on the backend
    std::function<bool()> goes_on;   ///< asked after each sequence; false: stop (cancelled)
    std::function<void(const std::string& message)> warn;
  };
  explicit CalibrationRun(const Setup& setup) : setup_(setup) {}

  /// Whether the method asks for any: GPTQ that has nothing to round does not.
  static bool is_needed(const ModelToQuantize& model);

  /// Cuts the text, and warns where it is short. bad_input of one that cannot be used.
  Status read_text();
  /// What the states of its tokens take on the disk; 0 before read_text().
  uint64_t state_bytes() const;
  /// Behind read_text(): goes to the first layer among the tasks from `first_task` on. The embedding stands before the layers,
  /// output norm and head behind. `entering`: of the states that an earlier command left for it. Null where no layer is left.
  /// no_room where neither backend nor disk has any for the states.
  Result<std::unique_ptr<LayerCalibration>> start(size_t first_task, int entering);

  /// How many stretches the text gave, and their tokens.
  int64_t samples() const { return static_cast<int64_t>(tokens_.size()); }
  int64_t tokens() const { return samples() * setup_.model.options.length; }

 private:
  uint64_t needs_beside_states() const;
  Result<HiddenStates> open_states(const HiddenStates::Shape& shape, bool saved) const;
  void warn_of_text() const;

  Setup setup_;
  CalibrationTokens tokens_;
};

}  // namespace quintet
