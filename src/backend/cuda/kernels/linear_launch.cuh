// A format's launchers: the product by the kernels of this set, and what both sets share.
#pragma once

#include "backend/cuda/kernels/embed.cuh"
#include "backend/cuda/kernels/expand.cuh"
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/pack.cuh"
#include "backend/cuda/kernels/path.h"
#if QUINTET_CUDA_HOPPER
#include "backend/cuda/kernels/linear_launch_sm90.cuh"
#else
#include "backend/cuda/kernels/linear_launch_sm80.cuh"
#endif

namespace quintet::cuda::QUINTET_CUDA_PATH {

template <class Format, class File>
cudaError_t launch_pack(const PackParams& p, const LaunchSite& site) {
  return launch_kernel<PackParams>(pack_panels<Format, File>, p,
                                   {.grid = dim3(static_cast<unsigned>((p.k + Format::kPieceK - 1) / Format::kPieceK), static_cast<unsigned>((p.n + p.place.rows - 1) / p.place.rows)),
                                    .block = dim3(32)}, site);
}

template <class Format>
cudaError_t launch_unpack(const UnpackParams& p, const LaunchSite& site) {
  return launch_kernel<UnpackParams>(unpack_rows<Format>, p,
                                     {.grid = dim3(static_cast<unsigned>((p.k + Format::kPieceK - 1) / Format::kPieceK), static_cast<unsigned>(p.count)),
                                      .block = dim3(32)}, site);
}

template <class Format>
cudaError_t launch_expand(const ExpandParams& p, const LaunchSite& site) {
  const dim3 grid(static_cast<unsigned>(p.pieces < kExpandRuns ? p.pieces : kExpandRuns), static_cast<unsigned>(p.outputs / kPanel));
  return launch_kernel<ExpandParams>(expand_panels<Format>, p, {.grid = grid, .block = dim3(kExpandWarps * 32)}, site);
}

template <class Format>
cudaError_t launch_embed(const EmbedParams& p, const LaunchSite& site) {
  return launch_kernel<EmbedParams>(embed_rows<Format>, p,
                                    {.grid = dim3(static_cast<unsigned>(p.pieces), static_cast<unsigned>(p.rows)), .block = dim3(32)}, site);
}

/// Of a file format whose blocks `File` reads into pieces of `Format`.
template <class Format, class File = Format>
constexpr ProductKernels product_kernels_of(WeightFormat format) {
  float unit = 1;
  if constexpr (requires { Format::kUnit; }) unit = Format::kUnit;
  return {format, Format::kPieceK, Format::kPieceBytes, format_static_bytes<Format>(), unit, kOutlierRows<Format>, kChainsOutliers, launch_chain<Format>, launch_product<Format>,
          launch_pack<Format, File>, launch_unpack<Format>, launch_expand<Format>, launch_embed<Format>};
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
