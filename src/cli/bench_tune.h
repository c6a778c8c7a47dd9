// `quintet bench --tune`: measures choices among a GPU's kernels that leave bits as they are, and writes the best as a kernel table.
#pragma once

#include <string>

#include "cli/session.h"

namespace quintet {

struct TuneRequest {
  std::string path;  ///< where the table goes
  int32_t steps = 256;
  bool json = false;  ///< an object a line of everything measured
};

/// Each candidate gets a backend of its own and loads the model anew, so that it is timed as later runs take it, graphs included.
/// bad_input where the device is no GPU.
Status bench_tune(const ModelSource& source, const CommonOptions& common, const TuneRequest& request);

}  // namespace quintet
