// A chain of products and attentions of one row in one launch: whole layers. Weights keep streaming through a ring of bulk
// copies while the blocks wait for each other between phases, so that memory is busy throughout.
//
// A product: a block works on four slices of 64 outputs at a time, four warps a slice. One more warp keeps the ring full; two
// add the slices up, write them and tell the other blocks, so that the others go on at once. The numbers are those of every
// other product kernel (piece_product.cuh): four warps form one slice of 64 outputs by wgmma (row_wgmma.cuh), or each a slice of 16
// where groups are scaled, and the slices meet in order. Attention: one block a kv head (attend_row.cuh), while the others' rings fill.
#pragma once

#include <cuda_fp16.h>

#include <cstddef>

#include "backend/cuda/kernels/activation_function.cuh"
#include "backend/cuda/kernels/attend_row.cuh"
#include "backend/cuda/kernels/grid_progress.cuh"
#include "backend/cuda/kernels/outlier_sum.cuh"
#include "backend/cuda/kernels/params.h"
#include "backend/cuda/kernels/path.h"
#include "backend/cuda/kernels/piece_product.cuh"
#include "backend/cuda/kernels/ptx.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/row_norm.cuh"
#include "backend/cuda/kernels/row_wgmma.cuh"

namespace quintet::cuda::QUINTET_CUDA_PATH {

inline constexpr int kRowItems = kRowWarps * 16 / kPanel;  ///< slices in work at a time
inline constexpr int kRowMostStages = 24, kFillWarps = 2;  ///< kFillWarps: of the warpgroup beside; two more add slices up

/// A stage has kDepth pieces of K of a panel for each slice in work.
template <class Format>
struct RowRing {
  static constexpr int kDepth = Format::kPieceBytes <= 1536 ? 2 : 1;
  static constexpr int kPieceGroups = Format::kHasMin ? Format::kPieceK / 16 / Format::kGroupSteps : 0;  ///< whose inputs' sums are needed
  static constexpr int kPanelBytes = kPanel / 16 * Format::kPieceBytes, kSliceBytes = kDepth * kPanelBytes, kStageBytes = kRowItems * kSliceBytes;
  __host__ __device__ static constexpr int sums_at(int pieces) { return pieces * Format::kPieceK * 2; }  ///< behind the row, rounded up to 8 groups
  static constexpr int row_bytes(int pieces) { return sums_at(pieces) + (pieces * kPieceGroups + 7) / 8 * 8 * 4; }
  __device__ static constexpr int steps(int pieces) { return (longest_slice(pieces) + kDepth - 1) / kDepth; }  ///< stages that four items take
};

/// Formats whose products begin while the phase before ends: their row lies in shared memory as in global memory.
template <class Format>
inline constexpr bool kBeginsEarly = kByWgmma<Format> && !Format::kHasMin;

/// Barriers of a block. One address reaches all of them, since registers are few.
struct ChainBarriers {
  uint64_t full[kRowMostStages], empty[kRowMostStages];  ///< of the ring
  uint64_t met_full[2], met_free[2];                     ///< of the slices of two rounds
  /// Of the row of a product with outliers, whose inputs those who add slices up read too: it is there; they have read it. And of one of
  /// which this block has no share: else it could tell the others, and the last clear the counters, before its own warps have seen them.
  uint64_t row_made, row_read;
  uint64_t early_made, late_made;  ///< early and late inputs of a product that begins early
  uint32_t arrived, early;         ///< what *p.progress is to become before they are copied: of one thread of those who add slices up
};
/// Where they are from the first of them on.
inline constexpr uint32_t kFull = offsetof(ChainBarriers, full), kEmpty = offsetof(ChainBarriers, empty), kMetFull = offsetof(ChainBarriers, met_full),
                          kMetFree = offsetof(ChainBarriers, met_free), kRowMade = offsetof(ChainBarriers, row_made), kRowRead = offsetof(ChainBarriers, row_read),
                          kEarlyMade = offsetof(ChainBarriers, early_made), kLateMade = offsetof(ChainBarriers, late_made);

/// Work is cut into items of one slice of one panel; a block takes a run of them. Whole panels, unless that would leave some
/// blocks more than `kWorthSharing` bytes behind: then the block with a panel's first slice adds what others hand over.
/// Before attention slices stay apart, and the blocks that will attend take whole rounds only, so that they are done before the others.
///
/// What the next product reads is told of in two parts, so that it begins without a pause: each block's last panel is late, the others are
/// early. Panels are taken in an order (place()) in which the early ones are the first inputs of each of the next product's slices.
struct RowShare {
  static constexpr int kWorthSharing = 48 * 1024;
  int begin, end, items;
  bool ordered;  ///< early panels first

  /// Quotients by one multiplication each (ChainParams): divisions, by every warp in every phase, took a microsecond.
  __device__ __forceinline__ RowShare(const ChainParams& p, PhaseKind kind, bool early, int panels, int slice_bytes)
      : items(panels * kSlices), ordered(early && kind == PhaseKind::gated) {
    const auto over = [](int x, uint32_t inverse) { return inverse ? static_cast<int>(__umulhi(x, inverse)) : x; };
    const int blocks = gridDim.x, block = blockIdx.x, attending = p.attend.kv_heads;
    if (kind == PhaseKind::partial && attending < blocks) {
      const int even = over(items, p.grid_inverse), own = even >= kRowItems ? even - even % kRowItems : even, others = items - attending * own;
      const auto first = [&](int b) { return b <= attending ? b * own : attending * own + over(others * (b - attending), p.others_inverse); };
      begin = first(block), end = first(block + 1);
      return;
    }
    const int most = over(panels + blocks - 1, p.grid_inverse) * kSlices, least = over(items + blocks - 1, p.grid_inverse);
    const bool shared = (most - least) * static_cast<int64_t>(slice_bytes) > kWorthSharing;
    const int units = shared ? items : panels, unit = shared ? 1 : kSlices;
    begin = over(units * block, p.grid_inverse) * unit, end = over(units * (block + 1), p.grid_inverse) * unit;
  }
  /// Whether a stage holds two steps of the one or two items that there are: else half of the ring would lie empty.
  template <class Ring>
  __device__ __forceinline__ bool paired() const { return Ring::kDepth == 1 && end - begin <= kRowItems / 2; }
  /// Nothing but the row holds this block back.
  __device__ __forceinline__ bool empty() const { return begin == end; }
  /// The panel of the matrix that is taken as number `panel`.
  __device__ __forceinline__ int place(int panel) const {
    if (!ordered) return panel;
    int block;
    asm volatile("mov.u32 %0,%%ctaid.x;" : "=r"(block));  // here each time: what follows from it would be kept in registers, of which there are too few
    const int panels = items / kSlices, late = panels - gridDim.x + block;
    const int number = panel * kSlices < begin ? late - 1 : is_last(panel) ? late : panel - block;
    return number % kSlices * (panels / kSlices) + number / kSlices;
  }
  /// Whether no further panel begins in this block's share.
  __device__ __forceinline__ bool is_last(int panel) const { return (panel + 1) * kSlices >= end; }
  /// The block that has an item of a shared panel.
  __device__ int block_of(int item) const { return ((item + 1) * gridDim.x - 1) / items; }
};

/// By one thread of each block once it has told the others all it will, and by one of each block that attends last: the last
/// clears the counters for the next launch.
__device__ __forceinline__ void leave_chain(const ChainParams& p) {
  const uint32_t leaving = gridDim.x + (p.phase[p.phases - 1].kind == PhaseKind::attend ? p.attend.kv_heads : 0);
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  if (atomicAdd(&p.progress->left, 1) + 1 != leaving) return;
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
  for (int i = 0; i < static_cast<int>(gridDim.x); ++i) p.progress->shared[i] = 0;
  p.progress->arrived = p.progress->early = p.progress->left = 0;
}

/// Attention of the kv head that is this block's; progress->arrived is `target` once q, K and V are there.
template <int kDim>
__device__ __forceinline__ void chain_attend(const ChainParams& p, const ChainPhase& phase, const RowContext& context, uint8_t* memory, uint32_t target, bool is_last) {
  static_assert(kRowAttendWarps == kRowWarps);
  attend_row<kDim>(p.attend, phase.turn, context, static_cast<int>(blockIdx.x), phase.window, [&] { wait_for(&p.progress->arrived, target); },
                   *reinterpret_cast<RowAttention<kDim>*>(memory));
  if (threadIdx.x != 0) return;
  publish(&p.progress->arrived);
  if (is_last) leave_chain(p);
}

#if __CUDA_ARCH__ >= 900
/// Bytes that a block asks for at a time. More keep memory no busier, but what the blocks tell each other meanwhile queues
/// behind them: three microseconds instead of one.
inline constexpr int kRowWindowBytes = 68 * 1024;

/// What a phase's copies are told; no pieces: none. Asked for two phases ahead: parameters that are met the first time take microseconds,
/// and memory would idle meanwhile.
struct ChainWeights {
  const uint8_t* panels = nullptr;
  int n = 0, pieces = 0;
  bool early = false;
  PhaseKind kind = PhaseKind::attend;
};
__device__ __forceinline__ ChainWeights weights_of(const ChainParams& p, int number) {
  ChainWeights weights;
  if (number < p.phases && p.phase[number].kind != PhaseKind::attend) weights = {.panels = p.phase[number].weights, .n = p.phase[number].n, .pieces = p.phase[number].pieces, .early = p.phase[number].early, .kind = p.phase[number].kind};
  return weights;
}

/// Fills the ring for all phases: a lane for each item in work.
template <class Format>
__device__ __forceinline__ void fill_chain(const ChainParams& p, const ChainBarriers& barriers, uint8_t* ring, int which) {
  using Ring = RowRing<Format>;
  RingFiller filler(barriers.full, barriers.empty, ring + which * Ring::kSliceBytes, p.stages, Ring::kStageBytes);
  ChainWeights phase = weights_of(p, 0), next = weights_of(p, 1), after = weights_of(p, 2);
  for (int i = 0; i < p.phases; ++i, phase = next, next = after, after = weights_of(p, i + 2)) {
    if (phase.pieces == 0) continue;
    const RowShare share(p, phase.kind, phase.early, phase.n / kPanel, phase.pieces / kSlices * Ring::kPanelBytes);
    const bool paired = share.template paired<Ring>();
    const int stride = paired ? 2 : 1, steps = (Ring::steps(phase.pieces) + stride - 1) / stride, first_step = paired ? which / 2 : 0;
    for (int round = share.begin; round < share.end; round += kRowItems) {
      const int item = round + (paired ? which % 2 : which), slice = item % kSlices, first = slice_begin(phase.pieces, slice);
      const int count = item < share.end ? slice_begin(phase.pieces, slice + 1) - first : 0;
      const uint8_t* from = phase.panels + (static_cast<size_t>(share.place(item / kSlices)) * phase.pieces + first) * Ring::kPanelBytes + first_step * Ring::kSliceBytes;
      const int window = max(2, kRowWindowBytes / (min(kRowItems, (share.end - round) * stride) * Ring::kSliceBytes));
      for (int i = 0, step = first_step; i < steps; ++i, step += stride, from += stride * Ring::kSliceBytes) {
        filler.keep_within(window);
        filler.put<true>(from, max(0, min(Ring::kDepth, count - step * Ring::kDepth)) * Ring::kPanelBytes);
      }
    }
  }
}

/// Whether a phase is such a product.
__device__ __forceinline__ bool begins_early(const ChainPhase& phase) { return phase.early && phase.kind != PhaseKind::gated; }
inline constexpr uint32_t kEarlyRow = 1u << 31;  ///< of a number of rows: the parity of those that began early

/// The first inputs of each slice of such a product, which early panels are: 32 a panel.
template <class Format>
__device__ __forceinline__ int early_inputs(int pieces) {
  const int panels = pieces * Format::kPieceK / (kPanel / 2);
  return (panels - static_cast<int>(gridDim.x)) / kSlices * (kPanel / 2);
}

/// By one thread: inputs [begin, end) of each slice of `phase`, in bytes, into `memory`.
__device__ __forceinline__ void copy_inputs(const ChainPhase& phase, uint8_t* memory, int slice, int begin, int end, uint32_t barrier) {
  asm volatile("fence.proxy.async;" ::: "memory");
  barrier_expect(barrier, kSlices * (end - begin));
#pragma unroll 1
  for (int s = 0; s < kSlices; ++s)
    bulk_copy(shared_address(memory + phase.row_at) + s * slice + begin, reinterpret_cast<const uint8_t*>(phase.x) + s * slice + begin, end - begin, barrier);
}

/// The inputs of a product into `row`: a norm, or what lies ready, once *arrived is `target`. `then` runs as soon as all threads are past
/// what came before; another barrier follows it.
template <class Format, class Then>
__device__ __forceinline__ void make_row(const ChainPhase& phase, const uint32_t* arrived, uint32_t target, uint8_t* row, Then then) {
  const auto wait = [&] {
    if (threadIdx.x == 0) wait_for(arrived, target);
    named_barrier<1, kRowThreads>();
    then();
  };
  if (phase.norm.weight) {
    const RowNorm norm = phase.norm;
    NormedRow normed;
    normed.load_early(norm);  // the residual stream is two phases old
    wait();
    normed.make<kByWgmma<Format>>(norm, reinterpret_cast<__half*>(row), phase.pieces * Format::kPieceK, blockIdx.x == 0);
    return;
  }
  const uint4* from = phase.x + threadIdx.x;
  const int count = (phase.pieces * Format::kPieceK / 8 - static_cast<int>(threadIdx.x) + kRowThreads - 1) / kRowThreads;
  wait();
  constexpr int kAtOnce = 8;
  for (int i = 0; i < count; i += kAtOnce) {
    uint4 v[kAtOnce] = {};
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (i + j < count) v[j] = load_l2(from + (i + j) * kRowThreads);
#pragma unroll
    for (int j = 0; j < kAtOnce; ++j)
      if (i + j < count) store_inputs<kByWgmma<Format>>(row, (threadIdx.x + (i + j) * kRowThreads) * 8, v[j]);
  }
  if constexpr (kByWgmma<Format>) fence_row();
  named_barrier<1, kRowThreads>();
}
#endif

/// Slices of two rounds in turn.
using MetSlices = float[2][kRowItems][kPanel];

#if __CUDA_ARCH__ >= 900
/// One of the kPanel threads that add slices up: number `t`, its output of each panel.
struct Finisher {
  const ChainParams& p;
  int t;
  float part[kSlices] = {};  ///< slices of the panel in work
  float outliers = 0;        ///< what its outliers add

  __device__ __forceinline__ void sync() const { named_barrier<2, kPanel>(); }

  /// The panel's items [first, last) are this block's. Hands them over if another block began the panel, else completes it.
  /// `unit` and `out`: the phase's, in registers.
  __device__ __forceinline__ void finish(const ChainPhase& phase, float unit, void* out, int number, const RowShare& share, int panel, int first, int last) {
    float* shared = p.shared_sums + static_cast<size_t>(panel) * kSlices * kPanel + t;
    const int begin = first - panel * kSlices, end = last - panel * kSlices, place = share.place(panel);
    if (phase.kind == PhaseKind::partial) {
      float* to = static_cast<float*>(out) + place * kPanel + t;
#pragma unroll
      for (int s = 0; s < kSlices; ++s)
        if (s >= begin && s < end) to[s * phase.n] = part[s] * unit;
      if (begin == 0 && phase.outliers.begin) to[kSlices * phase.n] = outliers;
      return;
    }
    if (begin > 0) {
#pragma unroll
      for (int s = 1; s < kSlices; ++s)
        if (s >= begin && s < end) shared[s * kPanel] = part[s];
      sync();
      if (t == 0) announce(&p.progress->shared[blockIdx.x], number + 1);
      return;
    }
    if (end < kSlices) {
      if (t == 0)
        for (int item = last; item < (panel + 1) * kSlices; ++item) wait_for(&p.progress->shared[share.block_of(item)], number + 1);
      sync();
#pragma unroll
      for (int s = 1; s < kSlices; ++s)
        if (s >= end) part[s] = load_l2(shared + s * kPanel);
    }
    const float products = (((part[0] + part[1]) + part[2]) + part[3]) * unit, total = phase.outliers.begin ? products + outliers : products;
    if (phase.kind == PhaseKind::whole) {
      static_cast<float*>(out)[place * kPanel + t] = total;
      return;
    }
    // A piece has 8 outputs of gate, then 8 of up; even lanes of gate write two neighbours.
    const float up = __shfl_down_sync(0xffffffffu, total, 8), gated = activate(phase.activation, total) * up, next = __shfl_down_sync(0xffffffffu, gated, 1);
    const ActLayout layout = {.tiles = 0};
    if (t % 16 < 8 && t % 2 == 0)
      *reinterpret_cast<half2*>(static_cast<__half*>(out) + layout.index(0, place * kPanel / 2 + t / 16 * 8 + t % 16)) = __floats2half2_rn(gated, next);
  }
};

template <class Format>
__device__ __forceinline__ void finish_chain(const ChainParams& p, ChainBarriers& told, uint8_t* row, const MetSlices& met, int t) {
  Finisher finisher = {.p = p, .t = t};
  const uint32_t barriers = shared_address(&told);
  static_assert(kRowItems == kSlices, "one panel begins in each round");
  __shared__ __align__(16) uint8_t parameters[sizeof(ChainPhase)];  // of a phase: they come slowly the first time, and registers are few
  const ChainPhase& phase = *reinterpret_cast<const ChainPhase*>(parameters);
  uint32_t round = 0, rows = 0;  // rows: as in row_chain
  for (int number = 0; number < p.phases; ++number) {
    if (t < static_cast<int>(sizeof(ChainPhase) / 16)) reinterpret_cast<uint4*>(parameters)[t] = reinterpret_cast<const uint4*>(&p.phase[number])[t];
    finisher.sync();
    if (phase.kind == PhaseKind::attend) {
      if (t == 0) told.arrived += p.attend.kv_heads;
      finisher.sync();
      continue;
    }
    const RowShare share(p, phase.kind, phase.early, phase.n / kPanel, phase.pieces / kSlices * RowRing<Format>::kPanelBytes);
    // Of one that begins early both copies: the later one may end first.
    const auto wait_for_row = [&] {
      if (begins_early(phase)) barrier_wait(barriers + kEarlyMade, rows / kEarlyRow), barrier_wait(barriers + kLateMade, rows / kEarlyRow);
      else barrier_wait(barriers + kRowMade, rows & 1);
    };
    // Once the last panel but one is done the others are told, and what they tell is copied.
    const auto tell_early = [&](int panel) {
      if (!share.ordered || share.is_last(panel) || !share.is_last(panel + 1)) return;
      finisher.sync();
      if (t != 0) return;
      told.early += gridDim.x;
      publish(&p.progress->early);
      const ChainPhase& next = p.phase[number + 1];
      const int slice = next.pieces / kSlices * Format::kPieceK * 2;
      wait_for(&p.progress->early, told.early);
      copy_inputs(next, row, slice, 0, early_inputs<Format>(next.pieces) * 2, barriers + kEarlyMade);
    };
    if (begins_early(phase) && t == 0) {
      const int slice = phase.pieces / kSlices * Format::kPieceK * 2;
      wait_for(&p.progress->arrived, told.arrived);
      copy_inputs(phase, row, slice, early_inputs<Format>(phase.pieces) * 2, slice, barriers + kLateMade);
    }
    if (t == 0) told.arrived += gridDim.x;
    for (int item = share.begin; item < share.end; item += kRowItems, ++round) {
      float outliers = 0;
      if (phase.outliers.begin) {
        // Of the panel that begins in this round, while its product is formed.
        const int panel = (item + kSlices - 1) / kSlices;
        const bool begins = panel * kSlices < share.end;
        OutlierEntries entries(phase.outliers, begins ? share.place(panel) * kPanel + t : 0);
        if (item == share.begin) wait_for_row();
        if (begins) outliers = outlier_sum<kByWgmma<Format>>(entries, reinterpret_cast<const __half*>(row + phase.row_at));
      }
      // Before the slices are there; for more of the phase there are no registers.
      const float unit = phase.unit;
      void* const out = phase.out;
      barrier_wait(barriers + kMetFull + round % 2 * 8, round / 2 & 1);
      const auto& own = met[round % 2];
      if (item % kSlices == 0 && share.end - item >= kSlices) {
#pragma unroll
        for (int j = 0; j < kSlices; ++j) finisher.part[j] = own[j][t];
        finisher.outliers = outliers;
        finisher.finish(phase, unit, out, number, share, item / kSlices, item, item + kSlices);
        tell_early(item / kSlices);
      } else {
#pragma unroll 1
        for (int i = item; i < min(share.end, item + kRowItems); ++i) {
          const int panel = i / kSlices, last = min(share.end, (panel + 1) * kSlices);
          const float v = own[i - item][t];
#pragma unroll
          for (int s = 0; s < kSlices; ++s) finisher.part[s] = i % kSlices == s ? v : finisher.part[s];
          if (i % kSlices == 0) finisher.outliers = outliers;
          if (i + 1 == last) finisher.finish(phase, unit, out, number, share, panel, max(share.begin, panel * kSlices), last), tell_early(panel);
        }
      }
      ring_release(barriers + kMetFree + round % 2 * 8, t % 32, p.arriving_lanes);
    }
    if (phase.outliers.begin || share.empty()) {
      if (share.empty()) wait_for_row();
      if (!begins_early(phase)) ring_release(barriers + kRowRead, t % 32, p.arriving_lanes), ++rows;
    }
    if (begins_early(phase)) rows ^= kEarlyRow;
    finisher.sync();
    if (t == 0) publish(&p.progress->arrived);
  }
  if (t == 0) leave_chain(p);
}
#endif

/// grid: at most as many blocks as fit on the device at once, and as progress has counters for.
template <class Format>
__global__ void __launch_bounds__(kRowThreads + 128, 1) row_chain(const __grid_constant__ ChainParams p) {
#if __CUDA_ARCH_FEAT_SM90_ALL
  using Ring = RowRing<Format>;
  extern __shared__ __align__(128) uint8_t memory[];
  __shared__ ChainBarriers own_barriers;
  __shared__ MetSlices met;
  __shared__ __align__(16) uint8_t ahead[4][sizeof(ChainPhase)];  // the next phases: parameters come slowly the first time
  uint8_t *row = memory, *ring = memory + p.scratch_bytes;
  auto& context = reinterpret_cast<RowContext*>(ring)[-1];  // where a phase attends
  const int warp = threadIdx.x / 32;
  int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    auto& b = own_barriers;
    b.arrived = b.early = 0;
    ring_init(b.full, b.empty, p.stages, kRowItems, kRowWarps * p.arriving_lanes);
    ring_init(b.met_full, b.met_free, 2, kRowWarps * p.arriving_lanes, kPanel / 32 * p.arriving_lanes);
    ring_init(&b.row_made, &b.row_read, 1, kRowWarps * p.arriving_lanes, kPanel / 32 * p.arriving_lanes);
    ring_init(&b.early_made, &b.late_made, 1, 1, 1);
    barrier_init_fence();
  }
  __syncthreads();
  launch_dependents();
  if (warp >= kRowWarps) {  // a whole warpgroup, since registers change hands by warpgroups
    asm volatile("setmaxnreg.dec.sync.aligned.u32 64;");
    if (warp < kRowWarps + kFillWarps) {
      if (lane < kRowItems / kFillWarps) fill_chain<Format>(p, own_barriers, ring, (warp - kRowWarps) * (kRowItems / kFillWarps) + lane);
    } else {
      wait_for_previous();
      finish_chain<Format>(p, own_barriers, row, met, threadIdx.x - kRowThreads - kFillWarps * 32);
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 104;");  // all threads start with 96 each
  const int which = warp / (kPanel / 16), piece_row = warp % (kPanel / 16), g = lane / 4, q = lane % 4;
  constexpr int kPieceLanes = Format::kPieceK / 32 * 4, kDepth = Ring::kDepth;  // 16 bytes each of a piece's inputs
  const uint8_t* own_ring = ring + which * Ring::kSliceBytes + piece_row * Format::kPieceBytes;
  // Numbers that the compiler cannot form anew from a special register in every stage, which takes longer than all else there.
  const auto kept = [&](uint32_t value) { return __shfl_sync(0xffffffffu, value, lane); };
  const uint32_t barriers = kept(shared_address(&own_barriers)), ring_at = kept(shared_address(own_ring));
  lane = static_cast<int>(kept(lane));
  prepare_format<Format>(threadIdx.x, kRowThreads);
  wait_for_previous();  // and with it the counters' last use
  static_assert(sizeof(ChainPhase) % 16 == 0 && sizeof(ChainPhase) / 16 <= 32);
  const auto parameters_of = [&](int number) {
    const bool own = number < p.phases && lane < static_cast<int>(sizeof(ChainPhase) / 16);
    return own ? reinterpret_cast<const uint4*>(&p.phase[number])[lane] : uint4{};
  };
  const auto keep_ahead = [&](int number, uint4 part) {
    if (lane < static_cast<int>(sizeof(ChainPhase) / 16)) reinterpret_cast<uint4*>(ahead[number % 4])[lane] = part;
  };
  if (warp < 2) keep_ahead(warp, parameters_of(warp));
  if (p.dim && static_cast<int>(blockIdx.x) < p.attend.kv_heads) context.make<kRowThreads>(p.attend, p.dim);
  named_barrier<1, kRowThreads>();
  int stage = 0;
  uint32_t parity = 0, round = 0, arrived = 0;  // arrived: of *p.progress, once the phases before are done
  uint32_t rows = 0;  // made that those who add slices up wait for, and kEarlyRow
  for (int number = 0; number < p.phases; ++number) {
    const ChainPhase& phase = *reinterpret_cast<const ChainPhase*>(ahead[number % 4]);
    if (phase.kind == PhaseKind::attend) {
      if (static_cast<int>(blockIdx.x) < p.attend.kv_heads) {
        if (rows % kEarlyRow > 0) barrier_wait(barriers + kRowRead, (rows - 1) & 1);
        if (p.dim == 64) chain_attend<64>(p, phase, context, memory, arrived, number + 1 == p.phases);
        else chain_attend<128>(p, phase, context, memory, arrived, number + 1 == p.phases);
      }
      arrived += p.attend.kv_heads;
      continue;
    }

    const RowShare share(p, phase.kind, phase.early, phase.n / kPanel, phase.pieces / kSlices * Ring::kPanelBytes);
    const bool early = kBeginsEarly<Format> && begins_early(phase);
    int late_step = -1;  // the first one that has late inputs
    if (early) {
      // What the next phases are told is there since the phase before, which looked two ahead.
      late_step = early_inputs<Format>(phase.pieces) / (kDepth * Format::kPieceK);
      barrier_wait(barriers + kEarlyMade, rows / kEarlyRow);
    } else {
      // Two warps look one and two phases ahead: attention does not.
      const int later = warp >= kRowWarps - 2 ? number + kRowWarps - warp : p.phases;
      const uint4 part = parameters_of(later);
      make_row<Format>(phase, &p.progress->arrived, arrived, row, [&] {
        if (later < p.phases) keep_ahead(later, part);
      });
    }
    if (!early && (phase.outliers.begin || share.empty())) ring_release(barriers + kRowMade, lane, p.arriving_lanes), ++rows;
    float* input_sums = reinterpret_cast<float*>(row + Ring::sums_at(phase.pieces));
    if constexpr (Format::kHasMin) {
      const int groups = phase.pieces * Ring::kPieceGroups;
      for (int first = warp * 8; first < groups; first += kRowWarps * 8) row_input_sums<Format::kGroupSteps>(row, first, groups, lane, input_sums);
      named_barrier<1, kRowThreads>();
    }
    const int steps = Ring::steps(phase.pieces);
    const bool paired = share.template paired<Ring>();
    for (int item = share.begin; item < share.end; item += kRowItems) {
      const int own = item + which, slice = own % kSlices, first = slice_begin(phase.pieces, slice);
      const int count = own < share.end ? slice_begin(phase.pieces, slice + 1) - first : 0;
      ChainSum<Format> sum = {};
      const uint4* inputs = reinterpret_cast<const uint4*>(row + phase.row_at) + first * kPieceLanes + (kByWgmma<Format> ? 0 : q);
      const float* sums = input_sums + first * Ring::kPieceGroups;
      const auto wait = [&] { barrier_wait(barriers + kFull + stage * 8, parity); };
      const auto go_on = [&] {
        ring_release(barriers + kEmpty + stage * 8, lane, p.arriving_lanes);
        if (++stage == p.stages) stage = 0, parity ^= 1;
      };
      // Stages of one piece: no branch around products that are under way, for which the assembler would let each wait for the one before.
      int left = count, step = 0;
      const int last = kDepth == 1 ? count : steps;
      // Steps whose inputs are there, then the others.
      for (int until = kDepth > 1 && early ? min(late_step, last) : last;; until = last) {
        for (; step < until; ++step) {
          uint64_t operand = 0;
          if constexpr (kByWgmma<Format>) operand = row_descriptor(inputs);
          if (kDepth == 1 && step == late_step) barrier_wait(barriers + kLateMade, rows / kEarlyRow);
          if (kDepth > 1 || !paired || step % 2 == 0) wait();
          const uint32_t second = kDepth == 1 && paired ? step % 2 * (2 * Ring::kSliceBytes) : 0;
          const auto* weights = static_cast<const uint8_t*>(__cvta_shared_to_generic(ring_at + stage * Ring::kStageBytes + second));
          const auto add = [&]<int kPieces>(int i) {
            const uint8_t* from = weights + i * Ring::kPanelBytes;
            if constexpr (kByWgmma<Format>) add_row_wgmma<Format, kPieces>(from, Ring::kPanelBytes, operand + i * (Format::kPieceK * 2 / 16), lane, sum);
            else add_row_run<Format, kPieces>(from, Ring::kPanelBytes, inputs + i * kPieceLanes, sums + i * Ring::kPieceGroups, lane, sum);
          };
          if (kDepth == 1 || left >= kDepth) {
            add.template operator()<kDepth>(0);
          } else {
            for (int i = 0; i < left; ++i) add.template operator()<1>(i);
          }
          left -= kDepth, inputs += kDepth * kPieceLanes, sums += kDepth * Ring::kPieceGroups;
          if (kDepth > 1 || !paired || step % 2 == 1 || step + 1 == last) go_on();
        }
        if (kDepth == 1 || !kBeginsEarly<Format> || until == last) break;
        barrier_wait(barriers + kLateMade, rows / kEarlyRow);
      }
      if constexpr (kDepth == 1)
        for (int i = paired ? (count + 1) / 2 : count; i < (paired ? (steps + 1) / 2 : steps); ++i) wait(), go_on();  // stages of the others' items

      if constexpr (kByWgmma<Format>) sum.settle();
      barrier_wait(barriers + kMetFree + round % 2 * 8, (round / 2 & 1) ^ 1);  // the round before the last is added up
      if (q == 0) {
        float* to = met[round % 2][which] + piece_row * 16 + g;
        to[0] = sum.of(0), to[8] = sum.of(1);
      }
      ring_release(barriers + kMetFull + round % 2 * 8, lane, p.arriving_lanes);
      ++round;
    }
    if (early) rows ^= kEarlyRow;
    arrived += gridDim.x;
  }
#endif
}

}  // namespace quintet::cuda::QUINTET_CUDA_PATH
