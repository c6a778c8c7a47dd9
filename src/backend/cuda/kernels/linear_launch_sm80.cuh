// Chooses the sm80 product kernel's variant for a format by the rows, and the depth of rings and the number of blocks by the
// device. The choice changes speed only, never bits.
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/launch_input_sums.cuh"
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/linear_row_sm80.cuh"
#include "backend/cuda/kernels/linear_shared_sm80.cuh"
#include "backend/cuda/kernels/linear_tile_sm80.cuh"
#include "backend/cuda/kernels/row_chain_sm80.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// What a block takes beside its dynamic shared memory: the runtime's share, and static memory at most.
inline constexpr int kReservedBytes = 1024 + 1024;

/// Blocks of a persistent grid: as many of `bytes` shared memory as a multiprocessor holds, at most `most`.
inline unsigned resident_blocks(int units, size_t bytes, int most, const LaunchSite& site) {
  const int fit = site.multiprocessor_shared_bytes / (static_cast<int>(bytes) + kReservedBytes);
  return static_cast<unsigned>(std::min(units, site.multiprocessors * std::clamp(fit, 1, most)));
}

template <class Format, Epilogue kEpilogue, bool kNormed, int kStages>
cudaError_t launch_row(ProductParams p, unsigned blocks, int groups, size_t row_bytes, const LaunchSite& site) {
  using Unit = RowUnit<Format, kEpilogue>;
  p.groups = groups;
  constexpr auto kKernel = linear_row_sm80<Format, kEpilogue, kNormed, kStages>;
  const size_t bytes = row_bytes + static_cast<size_t>(groups * Unit::ring_bytes(kStages));
  if (const cudaError_t code = allow_shared<ProductParams>(kKernel, bytes); code != cudaSuccess) return code;
  const int threads = kNormed ? kRowThreads : groups * Unit::kThreads;
  return launch_kernel<ProductParams>(kKernel, p, {.grid = dim3(blocks), .block = dim3(static_cast<unsigned>(threads)), .shared_bytes = bytes}, site);
}

/// A block a multiprocessor, of as many groups of warps as it has units for and room beside the row, then as many stages as they have room
/// for.
template <class Format, Epilogue kEpilogue, bool kNormed>
cudaError_t launch_row(const ProductParams& p, const LaunchSite& site) {
  using Unit = RowUnit<Format, kEpilogue>;
  const int row_bytes = p.pieces * Format::kPieceK * 2, room = site.shared_bytes - kRowStaticBytes - format_static_bytes<Format>() - row_bytes;
  const int units = p.n / Unit::kOutputs, blocks = std::min(units, site.multiprocessors);
  const int groups = std::min({Unit::kMostGroups, (units + blocks - 1) / blocks, room / Unit::ring_bytes(2)});
  if (groups < 1) return cudaErrorInvalidConfiguration;
  const auto launch = [&]<int kStages>() { return launch_row<Format, kEpilogue, kNormed, kStages>(p, static_cast<unsigned>(blocks), groups, static_cast<size_t>(row_bytes), site); };
  return groups * Unit::ring_bytes(4) <= room ? launch.template operator()<4>() : launch.template operator()<2>();
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

/// More than one row: one row goes through launch_chain.
template <class Format>
cudaError_t launch_product(const ProductParams& p, int tiles, Epilogue epilogue, const LaunchSite& site) {
  switch (tiles) {
    case 8: return launch_tiles<Format, 1>(p, epilogue, site);
    case 16: return launch_tiles<Format, 2>(p, epilogue, site);
    case 32: case 64: case kPromptRows: return launch_wide<Format>(p, tiles, epilogue, site);
  }
  return cudaErrorInvalidValue;
}

/// Partial products leave what outliers add to a kernel of its own here.
template <class Format>
inline constexpr int kOutlierRows = 0;

/// Each phase by a launch of its own.
template <class Format>
cudaError_t launch_phases(const ChainParams& p, const LaunchSite& site) {
  for (int i = 0; i < p.phases; ++i) {
    const ChainPhase& phase = p.phase[i];
    cudaError_t code = cudaSuccess;
    if (phase.kind == PhaseKind::attend) {
      AttendParams attend = p.attend;
      attend.turn = phase.turn, attend.layer = phase.turn.layer, attend.window = phase.window;
      code = launch_attend(attend, p.dim, p.attend.heads / p.attend.kv_heads, 1, 1, site);
    } else {
      const ProductParams product = {.weights = phase.weights, .x = phase.x, .unit = phase.unit, .out = phase.out, .n = phase.n, .pieces = phase.pieces, .rows = 1,
                                     .out_layout = {.tiles = 0}, .activation = phase.activation, .norm = phase.norm};
      code = phase.kind == PhaseKind::gated ? launch_row<Format, Epilogue::gated>(product, site) : launch_row<Format, Epilogue::whole>(product, site);
    }
    if (code != cudaSuccess) return code;
  }
  return cudaSuccess;
}

template <class Format, int kStages>
cudaError_t launch_chain(const ChainParams& p, unsigned blocks, const LaunchSite& site) {
  const size_t bytes = static_cast<size_t>(p.scratch_bytes + ChainRing<Format>::bytes(kStages));
  constexpr auto kKernel = row_chain<Format, kStages>;
  if (const cudaError_t code = allow_shared<ChainParams>(kKernel, bytes); code != cudaSuccess) return code;
  return launch_kernel<ChainParams>(kKernel, p, {.grid = dim3(blocks), .block = dim3(kRowThreads), .shared_bytes = bytes}, site);
}

/// Whether `next` may begin before all of `phase` is done (ChainUnits): its inputs are all that `phase` makes, both can be cut into the same slices,
/// every group of warps has early units, and none more than one of `next`.
template <class Format>
bool may_begin_early(const ChainPhase& phase, const ChainPhase& next, int blocks) {
  using Ring = ChainRing<Format>;
  const int units = phase.n / Ring::kOutputs, step = blocks * Ring::kGroups;
  return phase.kind == PhaseKind::gated && next.kind == PhaseKind::whole && !next.norm.weight && next.x == phase.out && units % kSlices == 0 && units > step &&
         next.pieces % kSlices == 0 && next.pieces * Format::kPieceK == units * (Ring::kOutputs / 2) && next.n / Ring::kOutputs <= step;
}

/// Divides what lies before the rings. `early`: phases that may, begin early, and have a row of their own for it.
template <class Format>
void arrange_chain(ChainParams& p, int blocks, bool early) {
  const auto whole = [](int bytes) { return (bytes + 127) / 128 * 128; };
  int row = 0, early_row = 0;
  for (int i = 0; i < p.phases; ++i) {
    ChainPhase& phase = p.phase[i];
    phase.early = false;
    if (phase.kind == PhaseKind::attend) continue;
    if (early && i > 0 && may_begin_early<Format>(p.phase[i - 1], phase, blocks)) phase.early = p.phase[i - 1].early = true;
    int& own = phase.early && phase.kind != PhaseKind::gated ? early_row : row;
    own = std::max(own, phase.pieces * Format::kPieceK * 2);
  }
  for (int i = 0; i < p.phases; ++i) p.phase[i].row_at = p.phase[i].early && p.phase[i].kind != PhaseKind::gated ? whole(row) : 0;
  const int attention = p.dim == 0 ? 0 : static_cast<int>(p.dim == 64 ? sizeof(RowAttention<64>) : sizeof(RowAttention<128>));
  p.scratch_bytes = whole(std::max(whole(row) + early_row, attention) + (p.dim ? static_cast<int>(sizeof(RowContext)) : 0));
}

/// Blocks for each kv head from which on those that attend are left out of the product before.
inline constexpr int kLeastBlocksAHead = 4;

/// Whole layers in one launch where a block has room for it.
template <class Format>
cudaError_t launch_chain(ChainParams& p, const LaunchSite& site) {
  using Ring = ChainRing<Format>;
  int most_units = p.dim ? p.attend.kv_heads : 1;
  for (int i = 0; i < p.phases; ++i)
    if (p.phase[i].kind != PhaseKind::attend) most_units = std::max(most_units, p.phase[i].n / Ring::kOutputs);
  const int blocks = std::min({most_units, site.multiprocessors, kMostBlocks});
  for (int i = 0, products = 0; i < p.phases; ++i) {
    ChainPhase& phase = p.phase[i];
    if (phase.kind == PhaseKind::attend) {
      phase.turn.slices = 1;
      continue;
    }
    phase.first_group = static_cast<uint8_t>(products++ % 2 * (Ring::kGroups / 2));
    phase.blocks = phase.kind == PhaseKind::partial && blocks >= kLeastBlocksAHead * p.attend.kv_heads ? blocks - p.attend.kv_heads : blocks;
    if (phase.kind == PhaseKind::partial) phase.kind = PhaseKind::whole;  // the slices of a unit meet in one block
  }
  if (p.phases == 1) return launch_phases<Format>(p, site);
  const auto stages = [&] { return (site.shared_bytes - Ring::kStaticBytes - format_static_bytes<Format>() - p.scratch_bytes) / Ring::bytes(1); };
  arrange_chain<Format>(p, blocks, false);
  const int most = stages();
  arrange_chain<Format>(p, blocks, true);
  if (stages() < std::min(most, 4)) arrange_chain<Format>(p, blocks, false);  // a shorter ring costs more
  if (stages() < 2) return launch_phases<Format>(p, site);
  if (stages() >= 4) return launch_chain<Format, 4>(p, static_cast<unsigned>(blocks), site);
  return stages() == 3 ? launch_chain<Format, 3>(p, static_cast<unsigned>(blocks), site) : launch_chain<Format, 2>(p, static_cast<unsigned>(blocks), site);
}

inline constexpr bool kChainsOutliers = false;

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
