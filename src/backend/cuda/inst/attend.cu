// Attention: one instance a head size and pass.
#include <algorithm>

#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/attend_merge.cuh"
#include "backend/cuda/kernels/attend_splits.cuh"
#if QUINTET_CUDA_HOPPER
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

template <int kDim, int kStages>
cudaError_t launch_rows(const AttendParams& p, int most_rows, int seqs, const LaunchSite& site) {
  if (p.fresh) return launch<kDim, kStages, true, true>(p, 1, seqs, site);
  cudaError_t code = cudaSuccess;
  if (launch_prompt<kDim>(p, most_rows, seqs, site, code)) return code;
  if constexpr (kHasSplits<kDim>)
    if (p.partial && most_rows <= 16) {
      constexpr size_t kBytes = splits_shared_bytes<kDim>();
      if (code = allow_shared<AttendParams>(attend_splits<kDim>, kBytes); code != cudaSuccess) return code;
      const int resident = site.multiprocessors * std::max(1, site.multiprocessor_shared_bytes / static_cast<int>(kBytes + 1024));
      return launch_kernel<AttendParams>(attend_splits<kDim>, p, {.grid = dim3(static_cast<unsigned>(std::min(resident, seqs * p.kv_heads * p.splits))),
                                                                 .block = dim3(kSplitWarps * 32), .shared_bytes = kBytes}, site);
    }
  if (most_rows <= 16) return launch<kDim, kStages, true, false>(p, 1, seqs, site);
  return launch<kDim, kStages, false, false>(p, (most_rows + kAttendRows - 1) / kAttendRows, seqs, site);
}

// Tiles of keys and values in flight: what leaves room for two blocks on a Hopper multiprocessor; on the others, what fits
// 99 KiB (sm_86, sm_89) beside what a block keeps of its own row.
constexpr int kStages64 = 3, kStages128 = QUINTET_CUDA_HOPPER ? 3 : 2, kStages256 = QUINTET_CUDA_HOPPER ? 2 : 1;

}  // namespace

cudaError_t launch_attend(const AttendParams& p, int dim, int most_rows, int seqs, int rows, const LaunchSite& site) {
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
