// The oracle: every operation in its most obvious scalar form, accumulated in double.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace quintet {

struct ReferenceOptions {
  DType kv = DType::f32;  ///< what keys and values are rounded to in the cache: what a coarser one costs
};
std::unique_ptr<Backend> make_reference_backend(const ReferenceOptions& options = {});

}  // namespace quintet
