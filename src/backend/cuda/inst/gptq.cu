// GPTQ. Launches are plain ones: the vendor library's products stand between them.
#include <algorithm>

#include "backend/cuda/kernels/gptq_factor.cuh"
#include "backend/cuda/kernels/gptq_ranges.cuh"
#include "backend/cuda/kernels/gptq_round.cuh"
#include "backend/cuda/kernels/launch.h"

namespace quintet::cuda::QUINTET_CUDA_PATH {
namespace {

unsigned chunks(int64_t count, int of) { return static_cast<unsigned>((count + of - 1) / of); }

template <class... Params>
cudaError_t launch_plain(void (*kernel)(Params...), dim3 grid, int threads, int shared_bytes, const LaunchSite& site,
                         const Params&... params) {
  if (shared_bytes > 0)
    if (const cudaError_t code =
            cudaFuncSetAttribute(reinterpret_cast<const void*>(kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes);
        code != cudaSuccess)
      return code;
  kernel<<<grid, threads, static_cast<size_t>(shared_bytes), site.stream>>>(params...);
  return cudaGetLastError();
}

cudaError_t launch_arrange(const ArrangeParams& p, const LaunchSite& site) {
  return launch_plain<ArrangeParams>(gptq_arrange, dim3(chunks(p.k, 256), static_cast<unsigned>(p.k)), 256, 0, site, p);
}
cudaError_t launch_diagonal(const DiagonalParams& p, const LaunchSite& site) {
  return launch_plain<DiagonalParams>(gptq_diagonal, dim3(chunks(p.k, 256)), 256, 0, site, p);
}
cudaError_t launch_factor_block(const FactorParams& p, const LaunchSite& site) {
  return launch_plain<FactorParams>(gptq_factor_block, dim3(1), kFactorThreads, 0, site, p);
}
cudaError_t launch_solve_block(const FactorParams& p, const LaunchSite& site) {
  return launch_plain<FactorParams>(gptq_solve_block, dim3(chunks(p.k - p.at - p.rows, kSolveThreads)), kSolveThreads, 0, site, p);
}
cudaError_t launch_unit_rows(float* matrix, int k, const LaunchSite& site) {
  return launch_plain<float*, int>(gptq_unit_rows, dim3(static_cast<unsigned>(k)), 256, 0, site, matrix, k);
}
cudaError_t launch_ranges(const RangesParams& p, const LaunchSite& site) {
  return launch_plain<RangesParams>(gptq_ranges, dim3(static_cast<unsigned>(p.k / p.rules.group), chunks(p.n, kRangeThreads)),
                                    kRangeThreads, kRangeBytes, site, p);
}
cudaError_t launch_scores(const RangesParams& p, const LaunchSite& site) {
  return launch_plain<RangesParams>(gptq_scores, dim3(static_cast<unsigned>(p.k / p.rules.group), chunks(p.n, kRangeThreads)),
                                    kRangeThreads, kRangeBytes, site, p);
}
cudaError_t launch_count_scores(const ScoresParams& p, const LaunchSite& site) {
  return launch_plain<ScoresParams>(gptq_count_scores, dim3(static_cast<unsigned>(8 * site.multiprocessors)), 256, 0, site, p);
}
cudaError_t launch_take_scores(const ScoresParams& p, const LaunchSite& site) {
  return launch_plain<ScoresParams>(gptq_take_scores, dim3(chunks(p.n, 8)), 256, 0, site, p);
}
cudaError_t launch_round(const RoundParams& p, const LaunchSite& site) {
  // As many as multiprocessors hold at once: each fetches its piece of the factor once and goes on to further rows.
  const unsigned blocks = std::min(chunks(p.n, kRoundWarps), static_cast<unsigned>(kRoundBlocks * site.multiprocessors));
  return launch_plain<RoundParams>(gptq_round, dim3(blocks), kRoundWarps * 32, kRoundBytes, site, p);
}

}  // namespace

const GptqKernels& gptq_kernels() {
  static const GptqKernels kKernels = {.arrange = launch_arrange,
                                       .diagonal = launch_diagonal,
                                       .factor_block = launch_factor_block,
                                       .solve_block = launch_solve_block,
                                       .unit_rows = launch_unit_rows,
                                       .ranges = launch_ranges,
                                       .scores = launch_scores,
                                       .count_scores = launch_count_scores,
                                       .take_scores = launch_take_scores,
                                       .round = launch_round};
  return kKernels;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
