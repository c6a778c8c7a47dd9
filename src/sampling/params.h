// The ranges of sampling parameters, the same for the command line, the server and the engine.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/step_view.h"
#include "base/result.h"

namespace quintet {

/// Names the field, what was found and what is allowed. Looks only at what a client may set.
Status check_sampling(const SampleParams& params);

inline constexpr size_t kMaxStopStrings = 16;
inline constexpr size_t kMaxStopBytes = 1024;  ///< of one stop string

/// At most kMaxStopStrings, none empty, none longer than kMaxStopBytes.
Status check_stop_strings(const std::vector<std::string>& stops);

}  // namespace quintet
