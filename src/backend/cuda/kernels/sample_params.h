// What the sampler takes beside a step's own parameters.
#pragma once

#include "backend/cuda/kernels/params.h"

namespace quintet::cuda {

struct SampleRowsParams {
  DeviceSampleParams step;
  Alternative* alternatives;  ///< [rows][20] or null
  int* counts;                ///< [rows][vocabulary] scratch of the penalties
};

}  // namespace quintet::cuda
