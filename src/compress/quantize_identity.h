// Whether a command of compression may go on with what another left.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "backend/backend.h"
#include "compress/quantize_model.h"
#include "io/model_files.h"

namespace quintet {

/// What must be the same for that, an object of texts (WorkFolder::open): the program, the source's files, the method and what the
/// weights are judged by.
nlohmann::ordered_json identity_of(const ModelFiles& files, const Backend& backend, const QuantizeOptions& options);

}  // namespace quintet
