// What the sampler takes beside a step's own parameters, and its launcher.
#pragma once

#include "backend/cuda/kernels/launch.h"

namespace quintet::cuda {

struct SampleRowsParams {
  DeviceSampleParams step;
  Alternative* alternatives;  ///< [rows][20] or null
  int* counts;                ///< [rows][vocabulary] scratch of the penalties
};

cudaError_t launch_sample_rows(const SampleRowsParams&, const LaunchSite&);

}  // namespace quintet::cuda
