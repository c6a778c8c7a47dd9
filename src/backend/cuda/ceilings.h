// What the GPU can do at all, measured: the denominator of every figure.
#pragma once

#include "base/result.h"

namespace quintet {

struct CudaCeilings {
  double read_bytes_per_s = 0;  ///< one kernel that only reads, the best of several grids
  int sm_mhz = 0;               ///< clock of the multiprocessors as the runtime tells it
};

/// Uses the current device and 4 GiB of its memory for a moment.
Result<CudaCeilings> measure_cuda_ceilings();

}  // namespace quintet
