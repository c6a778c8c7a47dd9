// Chooses the product kernel's variant for a format: rows -> tiles, product's shape -> warps and blocks. The choice
// changes speed only, never bits.
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/embed.cuh"
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/linear_prompt_sm90.cuh"
#include "backend/cuda/kernels/linear_shared_sm90.cuh"
#include "backend/cuda/kernels/pack.cuh"

namespace quintet::cuda {

template <class Format, int kTiles, int kWarps, int kPieces, int kStages, Epilogue kEpilogue, int kBlocksPerSm>
cudaError_t launch_shared(const ProductParams& p, const LaunchSite& site) {
  constexpr auto kKernel = linear_shared<Format, kTiles, kWarps, kPieces, kStages, kEpilogue, kBlocksPerSm>;
  constexpr int kActBytes = Format::kPieceK / 32 * (kTiles ? kTiles * 512 : 64);
  constexpr int kStageBytes = (kWarps * kPieces * Format::kPieceBytes + kActBytes + 127) / 128 * 128;
  static_assert(kStages * kStageBytes * kBlocksPerSm <= 226 * 1024, "the ring does not fit");
  const int units = p.n / (kWarps * kPieces * 16) * (kEpilogue == Epilogue::partial ? kSlices : 1);
  if (const cudaError_t code = allow_shared<ProductParams>(kKernel, kStages * kStageBytes); code != cudaSuccess) return code;
  return launch_kernel<ProductParams>(kKernel, p,
                                      {.grid = dim3(std::min(units, site.multiprocessors * kBlocksPerSm)),
                                       .block = dim3(kWarps * 32 + 32), .shared_bytes = kStages * kStageBytes}, site);
}

/// Deepest ring of at most 12 stages that fits `blocks` on a multiprocessor.
template <class Format, int kTiles, int kUnitPieces, int kBlocks>
constexpr int kRing = std::min(12, 226 * 1024 / kBlocks / ((kUnitPieces * Format::kPieceBytes + Format::kPieceK / 32 * (kTiles ? kTiles * 512 : 64) + 127) / 128 * 128));

template <class Format, int kTiles>
cudaError_t launch_tiles(const ProductParams& p, Epilogue epilogue, const LaunchSite& site) {
  // Up to 16 rows two blocks of 8 warps; from 32 rows one block whose warps own two pieces each (docs/performance.md).
  constexpr int kBlocks = kTiles <= 2 ? 2 : 1, kPieces = kTiles <= 2 ? 1 : 2;
  switch (epilogue) {
    case Epilogue::partial:
      return launch_shared<Format, kTiles, 8, kPieces, kRing<Format, kTiles, 8 * kPieces, kBlocks>, Epilogue::partial, kBlocks>(p, site);
    case Epilogue::whole:
      return launch_shared<Format, kTiles, 8, kPieces, kRing<Format, kTiles, 8 * kPieces, kBlocks>, Epilogue::whole, kBlocks>(p, site);
    case Epilogue::gated:
      return launch_shared<Format, kTiles, 8, 2, kRing<Format, kTiles, 16, 1>, Epilogue::gated, 1>(p, site);
  }
  return cudaErrorInvalidValue;
}

template <class Format>
cudaError_t launch_prompt(const ProductParams& p, const LaunchSite& site) {
  constexpr auto kKernel = linear_prompt<Format>;
  constexpr size_t kBytes = PromptRing<Format>::kSharedBytes;
  if (const cudaError_t code = allow_shared<ProductParams>(kKernel, kBytes); code != cudaSuccess) return code;
  const int tiles = p.n / kPromptOutputs * ((p.rows + kPromptRows - 1) / kPromptRows);
  return launch_kernel<ProductParams>(kKernel, p, {.grid = dim3(static_cast<unsigned>(std::min(tiles, site.multiprocessors))),
                                                   .block = dim3(kPromptThreads), .shared_bytes = kBytes}, site);
}

template <class Format>
cudaError_t launch_product(const ProductParams& p, int tiles, Epilogue epilogue, const LaunchSite& site) {
  switch (tiles) {
    case 0: return launch_tiles<Format, 0>(p, epilogue, site);
    case 1: return launch_tiles<Format, 1>(p, epilogue, site);
    case 2: return launch_tiles<Format, 2>(p, epilogue, site);
    case 4: return launch_tiles<Format, 4>(p, epilogue, site);
    case 8: return launch_tiles<Format, 8>(p, epilogue, site);
    case kPromptTiles:
      // A minimum a group wants the sums of the activations beside the products: more accumulators than there are registers.
      if constexpr (!Format::kHasMin) {
        if (epilogue == Epilogue::whole) return launch_prompt<Format>(p, site);
      }
      return cudaErrorInvalidValue;
  }
  return cudaErrorInvalidValue;
}

template <class Format>
cudaError_t launch_pack(const PackParams& p, const LaunchSite& site) {
  return launch_kernel<PackParams>(pack_panels<Format>, p,
                                   {.grid = dim3(static_cast<unsigned>((p.k + Format::kPieceK - 1) / Format::kPieceK), static_cast<unsigned>((p.n + 15) / 16)),
                                    .block = dim3(32)}, site);
}

template <class Format>
cudaError_t launch_unpack(const UnpackParams& p, const LaunchSite& site) {
  return launch_kernel<UnpackParams>(unpack_rows<Format>, p,
                                     {.grid = dim3(static_cast<unsigned>((p.k + Format::kPieceK - 1) / Format::kPieceK), static_cast<unsigned>(p.count)),
                                      .block = dim3(32)}, site);
}

template <class Format>
cudaError_t launch_embed(const EmbedParams& p, const LaunchSite& site) {
  return launch_kernel<EmbedParams>(embed_rows<Format>, p,
                                    {.grid = dim3(static_cast<unsigned>(p.pieces), static_cast<unsigned>(p.rows)), .block = dim3(32)}, site);
}

template <class Format>
constexpr ProductKernels product_kernels_of(WeightFormat format) {
  return {format, Format::kPieceK, Format::kPieceBytes, !Format::kHasMin, launch_product<Format>, launch_pack<Format>, launch_unpack<Format>, launch_embed<Format>};
}

}  // namespace quintet::cuda
