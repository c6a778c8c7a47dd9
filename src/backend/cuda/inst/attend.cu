// Attention: one instance a head size and pass.
#include "backend/cuda/kernels/attend.cuh"
#include "backend/cuda/kernels/attend_merge.cuh"
#include "backend/cuda/kernels/launch_kernel.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {
namespace {

template <int kDim, int kStages, bool kTogether, bool kFresh>
cudaError_t launch(const AttendParams& p, int query_tiles, int seqs, const LaunchSite& site) {
  const auto kernel = p.partial ? attend<kDim, kStages, true, kTogether, kFresh> : attend<kDim, kStages, false, kTogether, kFresh>;
  constexpr size_t kBytes = attend_shared_bytes<kDim>(kStages);
  if (const cudaError_t code = allow_shared<AttendParams>(kernel, kBytes); code != cudaSuccess) return code;
  const int runs = p.partial ? (p.splits + p.block_splits - 1) / p.block_splits : 1;
  return launch_kernel<AttendParams>(kernel, p,
                                     {.grid = dim3(static_cast<unsigned>(p.kv_heads * query_tiles), static_cast<unsigned>(seqs), static_cast<unsigned>(runs)),
                                      .block = dim3(kAttendWarps * 32), .shared_bytes = kBytes}, site);
}

template <int kDim, int kStages>
cudaError_t launch_rows(const AttendParams& p, int most_rows, int seqs, const LaunchSite& site) {
  if (p.fresh) return launch<kDim, kStages, true, true>(p, 1, seqs, site);
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
                                      .block = dim3(static_cast<unsigned>(dim / 2))}, site);
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
