// What runs a planned step: the model on a backend, or, in tests, a fake that checks everything it is told.
#pragma once

#include <cstdint>
#include <span>

#include "backend/backend.h"

namespace quintet {

/// Launch, then wait; a second step may be launched before the first is waited for, never a third. Steps are
/// waited for in the order of their launches. One thread.
class Executor {
 public:
  virtual ~Executor() = default;

  /// Host memory for StepInputs.
  virtual Result<Buffer> allocate_staging(size_t bytes) = 0;
  /// Issues the forward pass and the sampling of inputs.view.logit_row. The inputs stay untouched until
  /// wait().
  virtual Status launch(const StepInputs& inputs) = 0;
  /// Waits for the step: `sampled` [logit_rows], and, where any row asked for logprobs, `alternatives`
  /// [logit_rows, kAlternatives] (otherwise left as they are; a step whose rows ask for them is waited for
  /// before the next launch). An error means that the device is lost.
  virtual Status wait(std::span<Sampled> sampled, std::span<Alternative> alternatives) = 0;
};

}  // namespace quintet
