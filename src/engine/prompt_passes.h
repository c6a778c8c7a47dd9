// Many prompts through a model without an engine, for calibration.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "model/model.h"

namespace quintet {

/// prompt_pass() of each sequence in turn, with one workspace for all: on a device its allocations take longer than a small
/// layer. `behind_each`, where set, is called behind each sequence; an error from it ends the work and is returned.
Status prompt_passes(Backend& backend, const Model& model, std::span<const std::vector<TokenId>> sequences, int32_t chunk_tokens,
                     const std::function<Status()>& behind_each);

}  // namespace quintet
