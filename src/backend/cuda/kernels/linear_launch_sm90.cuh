// Chooses the Hopper product kernel's variant for a format: rows -> tiles, product's shape -> warps and blocks. The choice
// changes speed only, never bits.
#pragma once

#include <algorithm>

#include "backend/cuda/kernels/launch_input_sums.cuh"
#include "backend/cuda/kernels/launch_kernel.cuh"
#include "backend/cuda/kernels/linear_mid_sm90.cuh"
#include "backend/cuda/kernels/linear_prompt_sm90.cuh"
#include "backend/cuda/kernels/linear_shared_sm90.cuh"
#include "backend/cuda/kernels/row_chain_sm90.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

template <class Format, int kTiles, int kWarps, int kPieces, int kStages, Epilogue kEpilogue, int kBlocksPerSm>
cudaError_t launch_shared(const ProductParams& p, const LaunchSite& site) {
  constexpr auto kKernel = linear_shared<Format, kTiles, kWarps, kPieces, kStages, kEpilogue, kBlocksPerSm>;
  constexpr int kStageBytes = SharedStage<Format, kTiles, kWarps * kPieces>::kBytes;
  static_assert((kStages * kStageBytes + format_static_bytes<Format>()) * kBlocksPerSm <= 226 * 1024, "the ring does not fit");
  const int units = p.n / (kWarps * kPieces * 16) * (kEpilogue == Epilogue::partial ? kSlices : 1);
  if (const cudaError_t code = allow_shared<ProductParams>(kKernel, kStages * kStageBytes); code != cudaSuccess) return code;
  return launch_kernel<ProductParams>(kKernel, p,
                                      {.grid = dim3(std::min(units, site.multiprocessors * kBlocksPerSm)),
                                       .block = dim3(kWarps * 32 + 64), .shared_bytes = kStages * kStageBytes}, site);
}

/// Deepest ring of at most 12 stages that fits `blocks` on a multiprocessor.
template <class Format, int kTiles, int kUnitPieces, int kBlocks>
constexpr int kRing = std::min(12, (226 * 1024 / kBlocks - format_static_bytes<Format>()) / SharedStage<Format, kTiles, kUnitPieces>::kBytes);

/// Up to 16 rows, weights in groups: two blocks of 8 warps on a multiprocessor (docs/performance.md).
template <class Format, int kTiles>
cudaError_t launch_tiles(const ProductParams& p, Epilogue epilogue, const LaunchSite& site) {
  if constexpr (Format::kHasMin)
    if (const cudaError_t code = launch_input_sums<Format>(p, kTiles * 8, site); code != cudaSuccess) return code;
  constexpr int kStages = kRing<Format, kTiles, 8, 2>;
  if (epilogue == Epilogue::partial) return launch_shared<Format, kTiles, 8, 1, kStages, Epilogue::partial, 2>(p, site);
  if (epilogue == Epilogue::whole) return launch_shared<Format, kTiles, 8, 1, kStages, Epilogue::whole, 2>(p, site);
  return cudaErrorInvalidValue;
}

/// Whether `next` may begin before all of `phase` is done (RowShare): its inputs are all that `phase` makes, both can be cut into the
/// same slices, and each of the blocks has panels that are early.
template <class Format>
bool may_begin_early(const ChainPhase& phase, const ChainPhase& next, int blocks) {
  const int panels = phase.n / kPanel;
  return phase.kind == PhaseKind::gated && next.kind == PhaseKind::whole && !next.norm.weight && next.x == phase.out && panels % kSlices == 0 &&
         next.pieces % kSlices == 0 && next.pieces * Format::kPieceK == panels * (kPanel / 2) && panels >= 3 * blocks;
}

/// Divides a block's shared memory. `early`: phases that may, begin early, and have a row of their own for it.
template <class Format>
void arrange_chain(ChainParams& p, int blocks, bool early) {
  using Ring = RowRing<Format>;
  const auto whole = [](int bytes) { return (bytes + 127) / 128 * 128; };
  int row = 0, early_row = 0, attention = 0;
  for (int i = 0; i < p.phases; ++i) {
    ChainPhase& phase = p.phase[i];
    phase.early = false;
    if (phase.kind == PhaseKind::attend) {
      attention = static_cast<int>(p.dim == 64 ? sizeof(RowAttention<64>) : sizeof(RowAttention<128>));
      continue;
    }
    if (early && i > 0 && may_begin_early<Format>(p.phase[i - 1], phase, blocks)) phase.early = p.phase[i - 1].early = true;
    int& own = phase.early ? early_row : row;
    own = std::max(own, Ring::row_bytes(phase.pieces));
  }
  for (int i = 0; i < p.phases; ++i) p.phase[i].row_at = p.phase[i].early && p.phase[i].kind != PhaseKind::gated ? whole(row) : 0;
  p.scratch_bytes = whole(std::max(whole(row) + early_row, attention) + (p.dim ? static_cast<int>(sizeof(RowContext)) : 0));
  p.stages = std::min(kRowMostStages, (kRowSharedBytes - format_static_bytes<Format>() - p.scratch_bytes) / Ring::kStageBytes);
}

template <class Format>
cudaError_t launch_chain(ChainParams& p, const LaunchSite& site) {
  using Ring = RowRing<Format>;
  constexpr auto kKernel = row_chain<Format>;
  int most_blocks = 1;
  for (int i = 0; i < p.phases; ++i) most_blocks = std::max(most_blocks, p.phase[i].kind == PhaseKind::attend ? p.attend.kv_heads : p.phase[i].n / kPanel * kSlices);
  const int blocks = std::min({most_blocks, site.multiprocessors, kMostBlocks});
  arrange_chain<Format>(p, blocks, false);
  const int stages = p.stages;
  if (stages < 2) return cudaErrorInvalidValue;
  if (kBeginsEarly<Format>) arrange_chain<Format>(p, blocks, true);
  if (p.stages < stages) arrange_chain<Format>(p, blocks, false);  // a shorter ring costs more
  const size_t bytes = static_cast<size_t>(p.stages * Ring::kStageBytes + p.scratch_bytes);
  if (const cudaError_t code = allow_shared<ChainParams>(kKernel, bytes); code != cudaSuccess) return code;
  const auto inverse = [](int count) { return count <= 1 ? 0 : 0xffffffffu / static_cast<uint32_t>(count) + 1; };
  p.grid_inverse = inverse(blocks);
  p.others_inverse = inverse(blocks - (p.dim ? p.attend.kv_heads : 0));
  return launch_kernel<ChainParams>(kKernel, p, {.grid = dim3(static_cast<unsigned>(blocks)), .block = dim3(kRowThreads + 128), .shared_bytes = bytes}, site);
}

template <class Format, int kRows, Epilogue kEpilogue>
cudaError_t launch_mid(const ProductParams& p, const LaunchSite& site) {
  constexpr auto kKernel = linear_mid<Format, kRows, kEpilogue>;
  constexpr size_t kBytes = MidRing<Format, kRows, kEpilogue>::kSharedBytes;
  if (const cudaError_t code = allow_shared<ProductParams>(kKernel, kBytes); code != cudaSuccess) return code;
  const int units = p.n / kMidOutputs * (kEpilogue == Epilogue::partial ? kSlices : 1);
  return launch_kernel<ProductParams>(kKernel, p, {.grid = dim3(static_cast<unsigned>(std::min(units, site.multiprocessors))),
                                                   .block = dim3(kMidThreads), .shared_bytes = kBytes}, site);
}

template <class Format, int kRows>
cudaError_t launch_mid_rows(const ProductParams& p, Epilogue epilogue, const LaunchSite& site) {
  if (epilogue == Epilogue::partial) return launch_mid<Format, kRows, Epilogue::partial>(p, site);
  if (epilogue == Epilogue::whole) return launch_mid<Format, kRows, Epilogue::whole>(p, site);
  return cudaErrorInvalidValue;
}

template <class Format>
cudaError_t launch_prompt(ProductParams p, Epilogue epilogue, const LaunchSite& site) {
  if (epilogue == Epilogue::partial) return cudaErrorInvalidValue;
  p.gated = epilogue == Epilogue::gated;
  constexpr auto kKernel = linear_prompt<Format>;
  constexpr size_t kBytes = PromptRing<Format>::kSharedBytes;
  if (const cudaError_t code = allow_shared<ProductParams>(kKernel, kBytes); code != cudaSuccess) return code;
  const int tiles = p.n / kPromptOutputs * ((p.rows + kPromptRows - 1) / kPromptRows);
  return launch_kernel<ProductParams>(kKernel, p, {.grid = dim3(static_cast<unsigned>(std::min(tiles, site.multiprocessors))),
                                                   .block = dim3(kPromptThreads), .shared_bytes = kBytes}, site);
}

template <class Format>
cudaError_t launch_wide(const ProductParams& p, int tiles, Epilogue epilogue, const LaunchSite& site) {
  if constexpr (Format::kHasMin)
    if (const cudaError_t code = launch_input_sums<Format>(p, tiles, site); code != cudaSuccess) return code;
  if (tiles == 32) return launch_mid_rows<Format, 32>(p, epilogue, site);
  if (tiles == 64) return launch_mid_rows<Format, 64>(p, epilogue, site);
  return launch_prompt<Format>(p, epilogue, site);
}

/// Up to 16 rows go by the kernel of wgmma where that is faster (docs/performance.md): not where each group's sum has to be waited for, unless
/// it has what is FewRows of the format.
template <class Format>
inline constexpr bool kFewByMid = Format::kGroupSteps == 0 || requires { typename Format::FewRows; };

template <class Format, int kTiles>
cudaError_t launch_few(const ProductParams& p, Epilogue epilogue, const LaunchSite& site) {
  if constexpr (!kFewByMid<Format>) return launch_tiles<Format, kTiles>(p, epilogue, site);
  else if constexpr (requires { typename Format::FewRows; }) return launch_mid_rows<typename Format::FewRows, kTiles * 8>(p, epilogue, site);
  else return launch_mid_rows<Format, kTiles * 8>(p, epilogue, site);
}

/// More than one row: one row goes through launch_chain.
template <class Format>
cudaError_t launch_product(const ProductParams& p, int tiles, Epilogue epilogue, const LaunchSite& site) {
  switch (tiles) {
    case 8: return launch_few<Format, 1>(p, epilogue, site);
    case 16: return launch_few<Format, 2>(p, epilogue, site);
    case 32: case 64: case kPromptRows: return launch_wide<Format>(p, tiles, epilogue, site);
  }
  return cudaErrorInvalidValue;
}

/// Rows up to which partial products add what outliers do themselves.
template <class Format>
inline constexpr int kOutlierRows = kFewByMid<Format> ? kBesideRows : 0;

inline constexpr bool kChainsOutliers = true;

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
