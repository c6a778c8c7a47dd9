// The CUDA backend's WeightSolver.
#pragma once

#include <memory>

#include "backend/cuda/kernels/gptq.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/weight_solver.h"

namespace quintet::cuda {

/// not_found where cuBLAS is not on this machine, whose products it needs. Work goes to the site's stream on device `ordinal`.
Result<std::unique_ptr<WeightSolver>> make_weight_solver(const GptqKernels& kernels, const LaunchSite& site, int ordinal);

}  // namespace quintet::cuda
