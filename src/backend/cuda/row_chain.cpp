// Gathers phases and launches them.
#include "backend/cuda/row_chain.h"

#include <algorithm>
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
  if (!params.fresh || params.splits > 1 || (dim != 64 && dim != 128) || params.heads / params.kv_heads > kRowHeads || params.kv_heads > site.multiprocessors) return false;
  AttendParams same = params;
  same.layer = same.window = 0;
  same.turn = params_.dim ? params_.attend.turn : params.turn;
  code = cudaSuccess;
  if (params_.dim && (dim != params_.dim || std::memcmp(&same, &params_.attend, sizeof(same)) != 0)) code = flush(site);
  if (code != cudaSuccess) return true;
  ChainPhase phase = {.kind = PhaseKind::attend, .window = params.window};
  phase.turn = params.turn;
  // The slices of q, K and V are added up by those who attend: they would be waited for twice, were they handed over to another block first.
  if (ChainPhase& product = params_.phase[std::max(0, params_.phases - 1)]; params_.phases > 0 && product.kind == PhaseKind::whole && product.out == params.turn.partial && product.n == params.turn.stride) {
    product.kind = PhaseKind::partial;
    phase.turn.slices = product.outliers.begin ? kSlices + 1 : kSlices;
  }
  code = push(phase, site);  // which may launch those before, with what they had in common
  if (params_.dim == 0) same.turn = params.turn;
  params_.attend = same;
  params_.dim = dim;
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
  params_.phases = params_.dim = 0;
  params_.attend = {};
  return code;
}

}  // namespace quintet::cuda
