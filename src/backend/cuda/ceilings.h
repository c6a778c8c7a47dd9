// What the GPU can do at all, measured: the denominator of every figure.
#pragma once

#include <optional>

#include "base/result.h"

namespace quintet {

struct CudaCeilings {
  double read_bytes_per_s = 0;  ///< one kernel that only reads, the best of several grids
  double upload_bytes_per_s = 0;  ///< from pinned memory of the host
};

/// Uses the current device and 4 GiB of its memory for a moment.
Result<CudaCeilings> measure_cuda_ceilings();

/// The clock of the current device's multiprocessors now, as NVML tells it; nothing where there is no NVML.
std::optional<int> cuda_clock_mhz();

}  // namespace quintet
