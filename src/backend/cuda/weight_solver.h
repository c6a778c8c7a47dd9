// The CUDA backend's WeightSolver.
#pragma once

#include <functional>
#include <memory>

#include "backend/cuda/kernels/gptq.h"
#include "backend/cuda/kernels/launch.h"
#include "backend/weight_solver.h"

namespace quintet::cuda {

/// Issues what its owner has held back of the work so far (the launches of one row that wait to be one), and tells what went wrong.
using IssuePending = std::function<Status()>;

/// not_found where cuBLAS is not on this machine, whose products it needs. Work goes to the site's stream on device `ordinal`.
Result<std::unique_ptr<WeightSolver>> make_weight_solver(const GptqKernels& kernels, const LaunchSite& site, int ordinal,
                                                         IssuePending issue_pending);

}  // namespace quintet::cuda
