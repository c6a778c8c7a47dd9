// Gathers phases and launches them.
#include "backend/cuda/row_chain.h"

#include <cstring>

namespace quintet::cuda {

cudaError_t RowChain::add(const ProductKernels& kernels, const ChainPhase& phase, const LaunchSite& site) {
  cudaError_t code = cudaSuccess;
  if (kernels_ != &kernels) code = flush(site);
  kernels_ = &kernels;
  return code == cudaSuccess ? push(phase, site) : code;
}

bool RowChain::add(const AttendParams& params, int dim, const LaunchSite& site, cudaError_t& code) {
  // Behind a product only: alone it has a better kernel, and phases look ahead of a product, past one attention.
  if (params_.phases == 0 || params_.phase[params_.phases - 1].kind == PhaseKind::attend) return false;
  if (!params.fresh || params.splits > 1 || (dim != 64 && dim != 128) || params.kv_heads > site.multiprocessors) return false;
  AttendParams same = params;
  same.layer = same.window = 0;
  same.turn = {};
  code = cudaSuccess;
  if (attends_ && (dim != params_.dim || std::memcmp(&same, &params_.attend, sizeof(same)) != 0)) code = flush(site);
  if (code != cudaSuccess) return true;
  params_.attend = same;
  params_.dim = dim;
  ChainPhase phase = {.kind = PhaseKind::attend, .window = params.window};
  phase.turn = params.turn;
  code = push(phase, site);
  attends_ = true;
  return true;
}

cudaError_t RowChain::push(const ChainPhase& phase, const LaunchSite& site) {
  const cudaError_t code = params_.phases == kMostPhases ? flush(site) : cudaSuccess;
  params_.phase[params_.phases++] = phase;
  return code;
}

cudaError_t RowChain::flush(const LaunchSite& site) {
  if (params_.phases == 0) return cudaSuccess;
  params_.arriving_lanes = site.arriving_lanes;
  const cudaError_t code = kernels_->chain(params_, site);
  params_.phases = 0;
  attends_ = false;
  return code;
}

}  // namespace quintet::cuda
