// Chooses the sm80 product kernel's variant for a format by the rows, and the depth of rings and the number of blocks by the
// device. The choice changes speed only, never bits.
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/launch_input_sums.cuh"
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/linear_row_sm80.cuh"
#include "backend/cuda/kernels/linear_shared_sm80.cuh"
#include "backend/cuda/kernels/linear_tile_sm80.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// What a block takes beside its dynamic shared memory: the runtime's share, and static memory at most.
inline constexpr int kReservedBytes = 1024 + 1024;

/// Blocks of a persistent grid: as many of `bytes` shared memory as a multiprocessor holds, at most `most`.
inline unsigned resident_blocks(int units, size_t bytes, int most, const LaunchSite& site) {
  const int fit = site.multiprocessor_shared_bytes / (static_cast<int>(bytes) + kReservedBytes);
  return static_cast<unsigned>(std::min(units, site.multiprocessors * std::clamp(fit, 1, most)));
}

/// A block a multiprocessor, of as many groups of warps as have room for two stages each beside the row, then as many stages as they
/// have room for.
template <class Format, Epilogue kEpilogue, bool kNormed>
cudaError_t launch_row(ProductParams p, const LaunchSite& site) {
  constexpr auto kKernel = linear_row_sm80<Format, kEpilogue, kNormed>;
  constexpr int kMostStages = kMostPending + 1;
  const int row_bytes = p.pieces * Format::kPieceK * 2, room = site.shared_bytes - kRowStaticBytes - format_static_bytes<Format>() - row_bytes;
  int threads = kRowThreads;
  const auto stages = [&] { return room / (threads / 32 * RowStage<Format>::kBytes); };
  if (!kNormed)
    while (threads > row_group_threads(kEpilogue) && stages() < 2) threads /= 2;
  p.stages = std::min(stages(), kMostStages);
  if (p.stages < 2) return cudaErrorInvalidConfiguration;
  const size_t bytes = static_cast<size_t>(row_bytes + p.stages * (threads / 32) * RowStage<Format>::kBytes);
  if (const cudaError_t code = allow_shared<ProductParams>(kKernel, bytes); code != cudaSuccess) return code;
  const int units = p.n / (16 * row_pieces(kEpilogue));
  return launch_kernel<ProductParams>(kKernel, p, {.grid = dim3(static_cast<unsigned>(std::min(units, site.multiprocessors))), .block = dim3(static_cast<unsigned>(threads)),
                                                   .shared_bytes = bytes}, site);
}

template <class Format, Epilogue kEpilogue>
cudaError_t launch_row(const ProductParams& p, const LaunchSite& site) {
  return p.norm.weight ? launch_row<Format, kEpilogue, true>(p, site) : launch_row<Format, kEpilogue, false>(p, site);
}

template <class Format, int kTiles, Epilogue kEpilogue>
cudaError_t launch_shared(const ProductParams& p, const LaunchSite& site) {
  constexpr auto kKernel = linear_shared_sm80<Format, kTiles, kEpilogue>;
  constexpr size_t kBytes = SharedRing<Format, kTiles>::kBytes;
  if (const cudaError_t code = allow_shared<ProductParams>(kKernel, kBytes); code != cudaSuccess) return code;
  const int units = p.n / kSharedOutputs * (kEpilogue == Epilogue::partial ? kSlices : 1);
  const unsigned blocks = resident_blocks(units, kBytes + format_static_bytes<Format>(), kSharedBlocks, site);
  return launch_kernel<ProductParams>(kKernel, p, {.grid = dim3(blocks), .block = dim3(kSharedWarps * 32), .shared_bytes = kBytes}, site);
}

template <class Format, int kRows, Epilogue kEpilogue>
cudaError_t launch_tile(ProductParams p, int tile_rows, const LaunchSite& site) {
  using Ring = TileRing<Format, kRows>;
  constexpr auto kKernel = linear_tile_sm80<Format, kRows, kEpilogue>;
  p.tile_rows = tile_rows;
  // Two blocks on a multiprocessor if each has room for two stages.
  constexpr int kStatic = format_static_bytes<Format>();
  p.stages = (site.multiprocessor_shared_bytes / kTileBlocks - kReservedBytes - kStatic) / Ring::kStageBytes;
  if (p.stages < 2) p.stages = (site.shared_bytes - kStatic) / Ring::kStageBytes;
  if (p.stages < 2) return cudaErrorInvalidConfiguration;
  p.stages = std::min(p.stages, kTileMostStages);
  const size_t bytes = static_cast<size_t>(p.stages) * Ring::kStageBytes;
  if (const cudaError_t code = allow_shared<ProductParams>(kKernel, bytes); code != cudaSuccess) return code;
  const int tiles_m = kEpilogue == Epilogue::partial ? 1 : (p.rows + kRows - 1) / kRows;
  const unsigned blocks = resident_blocks(p.n / kTileOutputs * tiles_m * (kEpilogue == Epilogue::partial ? kSlices : 1), bytes + kStatic, kTileBlocks, site);
  return launch_kernel<ProductParams>(kKernel, p, {.grid = dim3(blocks), .block = dim3(kTileWarps * 32), .shared_bytes = bytes}, site);
}

template <class Format>
cudaError_t launch_wide(const ProductParams& p, int tiles, Epilogue epilogue, const LaunchSite& site) {
  if constexpr (Format::kHasMin)
    if (const cudaError_t code = launch_input_sums<Format>(p, tiles, site); code != cudaSuccess) return code;
  if (epilogue == Epilogue::whole) return tiles == 32 ? launch_tile<Format, 32, Epilogue::whole>(p, tiles, site) : launch_tile<Format, 64, Epilogue::whole>(p, tiles, site);
  if (epilogue != Epilogue::partial || p.rows > kMidRows) return cudaErrorInvalidValue;
  return tiles == 32 ? launch_tile<Format, 32, Epilogue::partial>(p, tiles, site) : launch_tile<Format, 64, Epilogue::partial>(p, tiles, site);
}

template <class Format, int kTiles>
cudaError_t launch_tiles(const ProductParams& p, Epilogue epilogue, const LaunchSite& site) {
  if constexpr (Format::kHasMin)
    if (const cudaError_t code = launch_input_sums<Format>(p, kTiles * 8, site); code != cudaSuccess) return code;
  if (epilogue == Epilogue::partial) return launch_shared<Format, kTiles, Epilogue::partial>(p, site);
  return epilogue == Epilogue::whole ? launch_shared<Format, kTiles, Epilogue::whole>(p, site) : cudaErrorInvalidValue;
}

template <class Format>
cudaError_t launch_product(const ProductParams& p, int tiles, Epilogue epilogue, const LaunchSite& site) {
  switch (tiles) {
    case 0:
      if (epilogue == Epilogue::whole) return launch_row<Format, Epilogue::whole>(p, site);
      return epilogue == Epilogue::gated ? launch_row<Format, Epilogue::gated>(p, site) : cudaErrorInvalidValue;
    case 8: return launch_tiles<Format, 1>(p, epilogue, site);
    case 16: return launch_tiles<Format, 2>(p, epilogue, site);
    case 32: case 64: case kPromptRows: return launch_wide<Format>(p, tiles, epilogue, site);
  }
  return cudaErrorInvalidValue;
}

/// Partial products leave what outliers add to a kernel of its own here.
template <class Format>
inline constexpr int kOutlierRows = 0;

/// One row is a launch a product here.
template <class Format>
inline constexpr cudaError_t (*kLaunchChain)(ChainParams&, const LaunchSite&) = nullptr;

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
