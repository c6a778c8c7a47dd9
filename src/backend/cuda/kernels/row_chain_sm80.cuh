// A chain of products and attentions of one row in one launch, by what sm_80 has: whole layers. Each warp keeps a ring of its own full by
// cp.async, and what it asks for runs on over the phases, so that memory works while the blocks wait for each other.
//
// A product: four warps form the four slices of 32 outputs and meet at the end (linear_row_sm80.cuh). Attention: one block a kv head
// (attend_row.cuh), of those with the fewest units of the product behind it.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>

#include "backend/cuda/kernels/activation_function.cuh"
#include "backend/cuda/kernels/attend_row.cuh"
#include "backend/cuda/kernels/grid_progress.cuh"
#include "backend/cuda/kernels/linear_row_sm80.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/row_norm.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

/// Phases whose parameters lie in shared memory, and how far ahead they are asked for: they come slowly the first time, also those that
/// loops read where they are (ChainCursor).
inline constexpr int kPhasesKept = 8, kPhasesAhead = 4;

/// The rings of a block's warps, and the groups of warps that a unit of kOutputs outputs takes one of.
template <class Format>
struct ChainRing {
  static constexpr int kOutputs = RowStage<Format>::kSide * 16, kGroups = kRowWarps / kSlices;
  __host__ __device__ static constexpr int bytes(int stages) { return kRowWarps * stages * RowStage<Format>::kBytes; }
  static constexpr int kStaticBytes = kGroups * 2 * kSlices * kOutputs * 4 + kPhasesKept * static_cast<int>(sizeof(ChainPhase)) + 1024;
};

/// A phase's units, in turns of the groups of warps of its blocks. The blocks that attend take none of the product before it, so that they
/// have all but q, K and V when these are there.
///
/// What the next product reads is told of in two parts, so that it begins without a pause: the units of the last turn are late, the others early.
/// They are taken in an order (place()) in which the early ones are the first inputs of each of the next product's slices.
template <class Format>
struct ChainUnits {
  int count, step;
  bool ordered;  ///< early units first

  __device__ __forceinline__ explicit ChainUnits(const ChainPhase& phase)
      : count(phase.n / ChainRing<Format>::kOutputs), step(phase.blocks * ChainRing<Format>::kGroups), ordered(phase.early && phase.kind == PhaseKind::gated) {}
  /// Of a group. The groups that have one unit more alternate from one product to the next, so that the others ask for the next one's weights
  /// meanwhile.
  __device__ __forceinline__ int first(const ChainPhase& phase, int group) const {
    return static_cast<int>(blockIdx.x) < phase.blocks ? turned(phase, group) * phase.blocks + blockIdx.x : count;
  }
  __device__ __forceinline__ static int turned(const ChainPhase& phase, int group) { return (group + phase.first_group) % ChainRing<Format>::kGroups; }
  /// Units that are early.
  __host__ __device__ __forceinline__ static int early(int count, int step) { return (count - 1) / step * step; }
  /// The unit of the matrix that is taken as number `unit`.
  __device__ __forceinline__ int place(int unit) const { return ordered ? unit % kSlices * (count / kSlices) + unit / kSlices : unit; }
};
/// Whether a phase is a product that begins while the one before it ends.
__device__ __forceinline__ bool begins_early(const ChainPhase& phase) { return phase.early && phase.kind != PhaseKind::gated; }

/// Bytes [begin, end) of each of kSlices slices of `slice` bytes, by `threads` threads, of which this one is `index`.
__device__ __forceinline__ void copy_row(uint8_t* to, const uint4* from, int slice, int begin, int end, int index, int threads) {
  const int each = threads / kSlices, at = index / each * slice + begin + index % each * 16, count = (end - begin - index % each * 16 + each * 16 - 1) / (each * 16);
  const uint8_t* own = reinterpret_cast<const uint8_t*>(from) + at;
  to += at;
  constexpr int kAtOnce = 8;
  for (int i = 0; i < count; i += kAtOnce) {
    uint4 v[kAtOnce] = {};
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (i + j < count) v[j] = load_l2(reinterpret_cast<const uint4*>(own + (i + j) * each * 16));
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (i + j < count) *reinterpret_cast<uint4*>(to + (i + j) * each * 16) = v[j];
  }
}

/// The weights that a warp asks for, stage after stage, over units and phases. What loops depend on is read from the parameters, which the
/// compiler knows to be the same in all lanes; else each stage has tests for divergence.
template <class Format>
struct ChainCursor {
  static constexpr int kPanelBytes = kPanel / 16 * Format::kPieceBytes, kPanelUnits = kPanel / ChainRing<Format>::kOutputs;
  using Units = ChainUnits<Format>;
  const uint8_t* from;  ///< this lane's next 16 bytes
  int left = 0;         ///< stages of the unit; 0: there are no more
  int unit = -1, phase = 0;

  /// The first unit of this warp from `unit` of `phase` on; -1: the phase's first.
  __device__ __forceinline__ void find(const ChainParams& p, int group, int slice, int lane) {
    for (; phase < p.phases; ++phase, unit = -1) {
      const ChainPhase& own = p.phase[phase];
      if (own.kind == PhaseKind::attend) continue;
      const Units units(own);
      if (unit < 0) unit = units.first(own, group);
      if (unit >= units.count) continue;
      const int first = slice_begin(own.pieces, slice);
      left = slice_begin(own.pieces, slice + 1) - first;
      if (left == 0) continue;
      const int place = units.place(unit);
      from = own.weights + (static_cast<size_t>(place / kPanelUnits) * own.pieces + first) * kPanelBytes + place % kPanelUnits * RowStage<Format>::kBytes + lane * 16;
      return;
    }
  }
};

/// grid: at most as many blocks as fit on the device at once. Dynamic memory: p.scratch_bytes and the rings.
template <class Format, int kStages>
__global__ void __launch_bounds__(kRowThreads, 1) row_chain(const __grid_constant__ ChainParams p) {
  using Ring = ChainRing<Format>;
  using Stage = RowStage<Format>;
  constexpr int kPieceLanes = Format::kPieceK / 32 * 4;  // 16 bytes each of a piece's inputs
  extern __shared__ __align__(128) uint8_t memory[];  // the row, or what attention needs; RowContext; the rings
  __shared__ float met[Ring::kGroups][2][kSlices][Ring::kOutputs];  // slices of a group's two units in turn
  __shared__ __align__(16) uint8_t kept[kPhasesKept][sizeof(ChainPhase)];
  auto& context = reinterpret_cast<RowContext*>(memory + p.scratch_bytes)[-1];
  const int warp = warp_index(), group = warp / kSlices, slice = warp % kSlices;
  const int lane = static_cast<int>(__shfl_sync(0xffffffffu, threadIdx.x % 32, threadIdx.x % 32));
  const int kv_head = gridDim.x - 1 - blockIdx.x;
  const bool attends = p.dim && kv_head < p.attend.kv_heads;
  WarpRing<Format, kStages> ring(memory + p.scratch_bytes + warp * (kStages * Stage::kBytes));
  const auto keep_parameters = [&](int number) {
    if (number < p.phases && lane < static_cast<int>(sizeof(ChainPhase) / 16))
      reinterpret_cast<uint4*>(kept[number % kPhasesKept])[lane] = reinterpret_cast<const uint4*>(&p.phase[number])[lane];
  };
  prepare_format<Format>(threadIdx.x, kRowThreads);
  if (warp < kPhasesAhead) keep_parameters(warp);
  if (attends) context.make<kRowThreads>(p.attend, p.dim);
  __syncthreads();

  ChainCursor<Format> cursor;
  cursor.from = memory;
  cursor.find(p, group, slice, lane);
  const auto ask = [&](const uint8_t* to) {
    if (cursor.left > 0) {
      copy_warp<Stage::kBytes>(shared_address(to) + lane * 16, cursor.from, lane);
      cursor.from += ChainCursor<Format>::kPanelBytes;
      if (--cursor.left == 0) {
        cursor.unit += ChainUnits<Format>(p.phase[cursor.phase]).step;
        cursor.find(p, group, slice, lane);
      }
    }
    copy_async_commit();  // groups are counted, empty or not
  };
  ring.begin(ask);
  const auto meet_group = [&] { asm volatile("bar.sync %0,%1;" ::"r"(group + 2), "n"(kSlices * 32) : "memory"); };
  uint32_t arrived = 0, early = 0;
  int turn = 0;
#pragma unroll 1
  for (int number = 0; number < p.phases; ++number) {
    const ChainPhase& phase = *reinterpret_cast<const ChainPhase*>(kept[number % kPhasesKept]);
    if (warp == kRowWarps - 1) keep_parameters(number + kPhasesAhead);
    if (p.phase[number].kind == PhaseKind::attend) {
      if (attends) {
        const auto wait = [&] { wait_for(&p.progress->arrived, arrived); };
        if (p.dim == 64) attend_row<64>(p.attend, phase.turn, context, kv_head, phase.window, wait, *reinterpret_cast<RowAttention<64>*>(memory));
        else attend_row<128>(p.attend, phase.turn, context, kv_head, phase.window, wait, *reinterpret_cast<RowAttention<128>*>(memory));
        if (threadIdx.x == 0) publish(&p.progress->arrived);
      }
      arrived += p.attend.kv_heads;
      continue;
    }

    const ChainPhase& told = p.phase[number];  // what loops depend on
    const ChainUnits<Format> units(told);
    const int pieces = told.pieces, first = slice_begin(pieces, slice), count = slice_begin(pieces, slice + 1) - first, first_unit = units.first(told, group);
    uint8_t* const row = memory + told.row_at;
    // Groups of this block that take part, and this thread among theirs, of a product that begins early.
    const int members = (units.count - static_cast<int>(blockIdx.x) + told.blocks - 1) / told.blocks, index = units.turned(told, group) * (kSlices * 32) + threadIdx.x % (kSlices * 32);
    const auto meet = [&] { asm volatile("bar.sync %0,%1;" ::"n"(2 + Ring::kGroups), "r"(members * (kSlices * 32)) : "memory"); };
    const int slice_bytes = pieces / kSlices * Format::kPieceK * 2;
    const auto wait = [&] {
      if (threadIdx.x == 0) wait_for(&p.progress->arrived, arrived);
      __syncthreads();  // all are done with the row before, too
    };
    int until = count;  // steps whose inputs are there
    if (begins_early(told)) {
      if (first_unit < units.count) {
        const ChainUnits<Format> before(p.phase[number - 1]);
        until = ChainUnits<Format>::early(before.count, before.step) / kSlices * (Ring::kOutputs / 2) / Format::kPieceK;
        if (index == 0) wait_for(&p.progress->early, early);
        meet();
        copy_row(row, phase.x, slice_bytes, 0, until * Format::kPieceK * 2, index, members * (kSlices * 32));
        meet();
      } else {
        // For what the next phase loads early. By the group: after a wait by each warp the compiler tests each stage below for divergence.
        if (threadIdx.x % (kSlices * 32) == 0) wait_for(&p.progress->early, early);
        meet_group();
      }
    } else if (static_cast<int>(blockIdx.x) < min(units.count, told.blocks)) {
      if (phase.norm.weight) {
        const RowNorm norm = phase.norm;
        NormedRow normed;
        normed.load_early(norm);  // the residual stream is two phases old
        wait();
        normed.template make<false>(norm, reinterpret_cast<__half*>(row), pieces * Format::kPieceK,
                                    static_cast<int>(blockIdx.x) + 1 == min(units.count, told.blocks));  // a block with the fewest units
      } else {
        const uint4* from = phase.x;
        wait();
        copy_row(row, from, pieces * Format::kPieceK * 2 / kSlices, 0, pieces * Format::kPieceK * 2 / kSlices, threadIdx.x, kRowThreads);
        __syncthreads();
      }
    } else {
      wait();
    }
#pragma unroll 1
    for (int unit = first_unit; unit < units.count; unit += units.step) {
      RowSum<Format> sum[Stage::kSide] = {};
      const uint4* x = reinterpret_cast<const uint4*>(row) + first * kPieceLanes + lane % 4;
      int i = 0;
#pragma unroll 1
      for (;;) {
#pragma unroll 1
        for (; i < until; ++i, x += kPieceLanes) ring.step(ask, x, lane, sum);
        if (until == count) break;
        if (index == 0) wait_for(&p.progress->arrived, arrived);
        meet();
        copy_row(row, phase.x, slice_bytes, until * Format::kPieceK * 2, slice_bytes, index, members * (kSlices * 32));
        meet();
        until = count;
      }
      auto& slices = met[group][turn];
      store_sums<Format>(sum, slices[slice], 0, lane);
      // One barrier of the group a unit: whoever writes this half again has passed the next one, which the readers here reach first.
      meet_group();
      if (slice == 0) {
        const int place = units.place(unit);
        const float total = lane < Ring::kOutputs ? sum_of_slices(slices, lane) * phase.unit : 0;
        if (told.kind == PhaseKind::gated) {
          const float up = __shfl_down_sync(0xffffffffu, total, 8), gated = activate(phase.activation, total) * up;
          const ActLayout layout = {.tiles = 0};
          if (lane % 16 < 8 && lane < Ring::kOutputs)
            static_cast<__half*>(phase.out)[layout.index(0, place * (Ring::kOutputs / 2) + lane / 16 * 8 + lane % 8)] = __float2half_rn(gated);
        } else if (lane < Ring::kOutputs) {
          static_cast<float*>(phase.out)[place * Ring::kOutputs + lane] = total;
        }
        __syncwarp();
        if (lane == 0) {
          const int all_early = units.early(units.count, units.step);
          if (units.ordered && unit < all_early && unit + units.step >= all_early) publish(&p.progress->early);
          if (unit + units.step >= units.count) publish(&p.progress->arrived);
        }
      }
      turn ^= 1;
    }
    if (units.ordered) early += units.step;
    arrived += min(units.count, units.step);
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  // The last block clears the counters for the next launch.
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  if (atomicAdd(&p.progress->left, 1) + 1 != gridDim.x) return;
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  p.progress->arrived = p.progress->early = p.progress->left = 0;
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
