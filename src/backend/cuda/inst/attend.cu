// Attention: one instance a head size and pass.
#include <algorithm>

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/attend_merge.cuh"
#include "backend/cuda/kernels/attend_row.cuh"
#include "backend/cuda/kernels/attend_splits.cuh"
#if QUINTET_CUDA_HOPPER
#include "backend/cuda/kernels/attend_alone_sm90.cuh"
#include "backend/cuda/kernels/attend_prompt_sm90.cuh"
#endif
#include "backend/cuda/kernels/launch_kernel.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {
namespace {

/// Head sizes whose splits of few rows are attend_splits' business.
template <int kDim>
constexpr bool kHasSplits = kDim == 64 || kDim == 128;

template <int kDim, int kStages, bool kTogether, bool kFresh>
cudaError_t launch(const AttendParams& p, int query_tiles, int seqs, const LaunchSite& site) {
  auto kernel = attend<kDim, kStages, false, kTogether, kFresh>;
  if constexpr (!kTogether || kFresh || !kHasSplits<kDim>)
    if (p.partial) kernel = attend<kDim, kStages, true, kTogether, kFresh>;
  constexpr size_t kBytes = attend_shared_bytes<kDim>(kStages);
  if (const cudaError_t code = allow_shared<AttendParams>(kernel, kBytes); code != cudaSuccess) return code;
  const int runs = p.partial ? (p.splits + p.block_splits - 1) / p.block_splits : 1;
  return launch_kernel<AttendParams>(kernel, p,
                                     {.grid = dim3(static_cast<unsigned>(p.kv_heads * query_tiles), static_cast<unsigned>(seqs), static_cast<unsigned>(runs)),
                                      .block = dim3(kAttendWarps * 32), .shared_bytes = kBytes}, site);
}

/// Clusters of how many blocks, and how many of them.
struct SplitGrid { int blocks = 1, clusters = 1; };

template <class Shape>
cudaError_t launch_splits(const AttendParams& p, const SplitGrid& grid, const LaunchSite& site) {
  const auto kernel = attend_splits<Shape>;
  if (const cudaError_t code = allow_shared<AttendParams>(kernel, Shape::kSharedBytes); code != cudaSuccess) return code;
  return launch_kernel<AttendParams>(kernel, p, {.grid = dim3(static_cast<unsigned>(grid.blocks * grid.clusters)), .block = dim3(Shape::kThreads),
                                                 .shared_bytes = Shape::kSharedBytes, .cluster_x = grid.blocks}, site);
}

#if QUINTET_CUDA_HOPPER
/// The fewest blocks a cluster with which nearly all multiprocessors attend for whole pairs of sequence and kv head, as many each; no
/// clusters: too few pairs, or a number that does not come out even.
SplitGrid fold_grid(int pairs, int multiprocessors) {
  constexpr int kLeastUsed = 90, kMostLonger = 15;  // per cent
  for (int blocks = 1; blocks <= kMostCluster; ++blocks) {
    const int clusters = std::min(pairs, multiprocessors / blocks), each = (pairs + clusters - 1) / clusters;
    if (clusters * blocks * 100 >= multiprocessors * kLeastUsed && each * clusters * 100 <= pairs * (100 + kMostLonger)) return {blocks, clusters};
  }
  return {.clusters = 0};
}
#endif

/// Attention of few rows by splits. Splits that blocks merge themselves are as p.merge_from says, which is null where there are none.
template <int kDim>
cudaError_t launch_few_rows(AttendParams& p, int most_rows, int seqs, const LaunchSite& site) {
  constexpr int kHalfStages = 384 / kDim;  // of half a tile, for each of eight warps of a Hopper multiprocessor
  const int jobs = seqs * p.kv_heads * p.splits;
#if QUINTET_CUDA_HOPPER
  if (most_rows <= 8)
    if (const SplitGrid grid = fold_grid(seqs * p.kv_heads, site.multiprocessors); grid.clusters > 0)
      return launch_splits<SplitShape<kDim, 8, 8, kHalfStages, 32, 4>>(p, grid, site);
  p.merge_from = nullptr;
  const SplitGrid grid = {.clusters = std::min(site.multiprocessors, jobs)};
  if (most_rows > 8) return launch_splits<SplitShape<kDim, 16, 8, kHalfStages, 32, 0>>(p, grid, site);
  // A multiprocessor's only splits get all of its memory.
  if (jobs <= site.multiprocessors) return launch_splits<SplitShape<kDim, 8, 2, kHalfStages * 2, 64, 0>>(p, grid, site);
  return launch_splits<SplitShape<kDim, 8, 8, kHalfStages, 32, 0>>(p, grid, site);
#else
  using Shape = SplitShape<kDim, 16, 4, kHalfStages, 32, 0>;
  p.merge_from = nullptr;
  const int resident = site.multiprocessors * std::max(1, site.multiprocessor_shared_bytes / (Shape::kSharedBytes + 1024));
  return launch_splits<Shape>(p, {.clusters = std::min(resident, jobs)}, site);
#endif
}

#if QUINTET_CUDA_HOPPER
/// The only row of a step, and its merge.
template <int kDim>
cudaError_t launch_alone(const AttendParams& p, const LaunchSite& site) {
  constexpr size_t kBytes = sizeof(AloneShared<kDim>);
  const int splits = p.window ? std::min(p.splits, (p.window + kSplit - 2) / kSplit + 1) : p.splits;  // that the row sees at most
  const int resident = 2 * site.multiprocessors / p.kv_heads;  // splits whose blocks are there at once
  if (const cudaError_t code = allow_shared<AttendParams>(attend_alone<kDim>, kBytes); code != cudaSuccess) return code;
  // Blocks without a split fill the multiprocessors up: else the warps that merge gather where there is room, and keep the next layer's blocks out.
  const int rows = splits * 2 > resident ? std::max(splits, resident) : splits;
  const cudaError_t code = launch_kernel<AttendParams>(attend_alone<kDim>, p, {.grid = dim3(static_cast<unsigned>(p.kv_heads), static_cast<unsigned>(rows)),
                                                                               .block = dim3(kAloneThreads), .shared_bytes = kBytes}, site);
  if (code != cudaSuccess) return code;
  return launch_kernel<AttendParams>(merge_alone<kDim>, p, {.grid = dim3(static_cast<unsigned>(p.heads), kDim / 64), .block = dim3(32)}, site);
}
#endif

/// Whether attend_prompt takes it; `code`: of its launch.
template <int kDim>
bool launch_prompt(const AttendParams& p, int most_rows, int seqs, const LaunchSite& site, cudaError_t& code) {
#if QUINTET_CUDA_HOPPER
  if constexpr (kDim == 64 || kDim == 128) {
    if (most_rows <= kAttendRows || p.partial || p.fresh) return false;
    constexpr size_t kBytes = prompt_attend_bytes<kDim>();
    code = allow_shared<AttendParams>(attend_prompt<kDim>, kBytes);
    if (code != cudaSuccess) return true;
    const int query_tiles = (most_rows + kPromptAttendRows - 1) / kPromptAttendRows;
    code = launch_kernel<AttendParams>(attend_prompt<kDim>, p, {.grid = dim3(static_cast<unsigned>(p.kv_heads * query_tiles), static_cast<unsigned>(seqs)),
                                                               .block = dim3(kPromptAttendThreads), .shared_bytes = kBytes}, site);
    return true;
  }
#endif
  return false;
}

/// One fresh row over one split: on Hopper it is a phase of a chain.
template <int kDim>
bool launch_one_row(const AttendParams& p, int seqs, const LaunchSite& site, cudaError_t& code) {
#if !QUINTET_CUDA_HOPPER
  if constexpr (kDim == 64 || kDim == 128) {
    if (seqs > 1 || p.splits > 1 || p.heads / p.kv_heads > kRowHeads) return false;
    constexpr size_t kBytes = sizeof(RowAttention<kDim>);
    code = allow_shared<AttendParams>(attend_one_row<kDim>, kBytes);
    if (code == cudaSuccess)
      code = launch_kernel<AttendParams>(attend_one_row<kDim>, p, {.grid = dim3(static_cast<unsigned>(p.kv_heads)), .block = dim3(kRowAttendWarps * 32),
                                                                   .shared_bytes = kBytes}, site);
    return true;
  }
#endif
  return false;
}

template <int kDim, int kStages>
cudaError_t launch_rows(AttendParams& p, int most_rows, int seqs, const LaunchSite& site) {
  if (p.fresh) {
    p.merge_from = nullptr;
    if (cudaError_t code = cudaSuccess; launch_one_row<kDim>(p, seqs, site, code)) return code;
    return launch<kDim, kStages, true, true>(p, 1, seqs, site);
  }
  cudaError_t code = cudaSuccess;
  if (launch_prompt<kDim>(p, most_rows, seqs, site, code)) return code;
  if constexpr (kHasSplits<kDim>)
    if (p.partial && most_rows <= 16) return launch_few_rows<kDim>(p, most_rows, seqs, site);
  p.merge_from = nullptr;
  if (most_rows <= 16) return launch<kDim, kStages, true, false>(p, 1, seqs, site);
  return launch<kDim, kStages, false, false>(p, (most_rows + kAttendRows - 1) / kAttendRows, seqs, site);
}

// Tiles of keys and values in flight: what leaves room for two blocks on a Hopper multiprocessor; on the others, what fits
// 99 KiB (sm_86, sm_89) beside what a block keeps of its own row.
constexpr int kStages64 = 3, kStages128 = QUINTET_CUDA_HOPPER ? 3 : 2, kStages256 = QUINTET_CUDA_HOPPER ? 2 : 1;

}  // namespace

/// Up to twice as many splits as are resident at once: with more attend_splits is faster, whose warps go from one split to the next without a pause.
bool attends_alone(int dim, int heads, int kv_heads, int splits, const LaunchSite& site) {
#if QUINTET_CUDA_HOPPER
  return (dim == 64 || dim == 128) && heads <= kv_heads * kAloneHeads && kv_heads * splits <= 4 * site.multiprocessors;
#else
  return false;
#endif
}

cudaError_t launch_attend(const AttendParams& params, int dim, int most_rows, int seqs, int rows, const LaunchSite& site) {
#if QUINTET_CUDA_HOPPER
  if (params.partial && rows == 1 && seqs == 1 && attends_alone(dim, params.heads, params.kv_heads, params.splits, site))
    return dim == 64 ? launch_alone<64>(params, site) : launch_alone<128>(params, site);
#endif
  AttendParams p = params;
  cudaError_t code = cudaErrorInvalidValue;
  switch (dim) {
    case 64: code = launch_rows<64, kStages64>(p, most_rows, seqs, site); break;
    case 96: code = launch_rows<96, kStages128>(p, most_rows, seqs, site); break;
    case 128: code = launch_rows<128, kStages128>(p, most_rows, seqs, site); break;
    case 256: code = launch_rows<256, kStages256>(p, most_rows, seqs, site); break;
  }
  if (code != cudaSuccess || !p.partial) return code;
  return launch_kernel<AttendParams>(attend_merge, p,
                                     {.grid = dim3(static_cast<unsigned>(p.heads), static_cast<unsigned>(rows)),
                                      .block = dim3(static_cast<unsigned>(dim))}, site);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
