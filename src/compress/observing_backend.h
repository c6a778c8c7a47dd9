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

/// Wraps `inner`, which must outlive it and be used through it alone meanwhile. Coarse operations are
/// composed from the fine ones here, so that every product passes by, whatever `inner` fuses. `wants` chooses
/// the weights to show. Each shown product waits for the device: slow, and meant to be.
std::unique_ptr<Backend> make_observing_backend(Backend& inner,
                                                std::function<bool(const Weight& weight)> wants,
                                                InputSink sink);

}  // namespace quintet
