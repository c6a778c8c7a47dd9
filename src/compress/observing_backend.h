// A backend that computes with another one and shows the inputs of its products: for calibration.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "backend/backend.h"

namespace quintet {

/// Inputs of a product with `weight`, as the weight sees them (after the norm): x [rows, k] in host memory,
/// valid during the call.
using InputSink = std::function<void(const Weight& weight, const float* x, int64_t rows, int64_t k)>;

struct ObservingOptions {
  std::function<bool(const Weight& weight)> wants;  ///< chooses the weights whose inputs are shown
  InputSink sink;
  /// Where set, called instead of `sink` with the inputs where they lie, x [rows, k] in memory of the inner backend; work that
  /// it orders there before it returns sees them.
  std::function<Status(const Weight& weight, ConstMatrixView x)> device_sink;
  /// Where set, rows [count, hidden] of the residual stream come from the memory (of the host or of the inner backend) that it
  /// names instead of from the embedding, in the order of their tokens.
  std::function<const float*(int64_t count)> enter;
  /// Names the memory, again of either, that the rows [count, hidden] of the residual stream behind each layer go to.
  std::function<float*(int64_t count)> leave;
  /// They go there before this weight's product instead.
  const Weight* leave_before = nullptr;
  /// Nothing is computed behind this weight's input, until the next rows enter.
  const Weight* last = nullptr;
  /// Nothing is computed before this weight's product.
  const Weight* first = nullptr;
  /// Names the memory that the inputs of `first` come from: as its product reads them, dense rows. Unset: they are the rows
  /// that entered.
  std::function<const uint8_t*(int64_t count)> resume;
  /// Names the memory that the inputs of `kept` go to, dense rows, before any norm.
  const Weight* kept = nullptr;
  std::function<uint8_t*(int64_t count)> keep;
};

/// Wraps `inner`, which must outlive it and be used through it alone meanwhile. Coarse operations are
/// composed from the fine ones here, so that every product passes by, whatever `inner` fuses. Each shown product waits
/// for the device: slow, and meant to be.
std::unique_ptr<Backend> make_observing_backend(Backend& inner, ObservingOptions options);

}  // namespace quintet
