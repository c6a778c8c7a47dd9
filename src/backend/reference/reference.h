// The oracle: every operation in its most obvious scalar form, accumulated in double.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace quintet {

std::unique_ptr<Backend> make_reference_backend();

}  // namespace quintet
