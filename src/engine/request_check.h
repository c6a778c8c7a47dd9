// What a request must be to run at all.
#pragma once

#include "base/result.h"
#include "engine/engine_client.h"

namespace quintet {

/// bad_input that names the field, what was found and what is allowed, where `request` can never run.
Status check_request(const Request& request, const EngineLimits& limits, int32_t vocabulary);

}  // namespace quintet
