// What the sampler takes beside a step's own parameters.
#pragma once

#include "backend/cuda/kernels/params.h"

namespace quintet::cuda {

/// The tokens of the rows that are sampled, those included that the step before sampled.
struct RowTokensParams {
  const int* token;        ///< [rows of the step], -1: sampled[prev[row]]
  const int* prev;
  const int* logit_row;    ///< [rows]
  const Sampled* sampled;
  int* out;                ///< [rows]
  int rows;
};

struct SampleRowsParams {
  DeviceSampleParams step;
  const int* own_token;       ///< [rows]: what -1 in the history means
  Alternative* alternatives;  ///< [rows][20] or null
  int* counts;                ///< [rows][vocabulary] scratch of the penalties
};

}  // namespace quintet::cuda
