// The inner step of the wgmma products: pieces of 16 outputs a warp by all rows of a tile, one piece of K further. The numeric rule
// is that of piece_product.cuh.
#pragma once

#include "backend/cuda/formats/format.cuh"
#include "backend/cuda/kernels/ring.cuh"
#include "backend/cuda/kernels/wgmma.cuh"

namespace quintet::cuda {

/// A piece's operand B at `act` in shared memory: k64 tiles of `rows` rows by 128 bytes; a k16 step is 32 bytes of each row.
struct WgmmaOperand {
  uint64_t first;
  int rows;
  __device__ __forceinline__ uint64_t step(int s) const { return first + static_cast<uint64_t>(s / 4 * (rows * 128 >> 4) + s % 4 * 2); }
};

/// The same, known to be one for all lanes: its descriptors are formed in uniform registers. Else each takes four instructions more, a third of a
/// step. The shuffle that says so takes its time: call this before what is waited for anyway.
struct UniformOperand {
  uint32_t first;
  int rows;
  __device__ __forceinline__ UniformOperand(uint32_t shared, int rows_of_tile)
      : first(__shfl_sync(0xffffffffu, static_cast<uint32_t>(wgmma_descriptor(shared)), 0)), rows(rows_of_tile) {}
  __device__ __forceinline__ uint64_t step(int s) const {
    constexpr uint64_t kUpperHalf = wgmma_descriptor(0) >> 32 << 32;
    return kUpperHalf | (first + static_cast<uint32_t>(s / 4 * (rows * 128 >> 4) + s % 4 * 2));
  }
};

/// Keeps reads and writes of d on this side of a wait.
template <int kSums>
__device__ __forceinline__ void hold(float (&d)[kSums]) {
#pragma unroll
  for (int i = 0; i < kSums; ++i) asm volatile("" : "+f"(d[i])::"memory");
}

/// The stage of a ring that products under way still read.
struct FlowingStage {
  uint32_t empty;  ///< shared address of the stages' barriers
  int lane, arriving_lanes, stage = -1;

  /// Once they have ended.
  __device__ __forceinline__ void drain() {
    if (stage >= 0) ring_release(empty + stage * 8, lane, arriving_lanes);
    stage = -1;
  }
  /// Waits for all products; then their sums may be read.
  template <int kSums>
  __device__ __forceinline__ void settle(float (&sum)[kSums]) {
    wgmma_wait<0>();
    hold(sum);
    drain();
  }
};

/// Formats without groups: sum += piece . inputs. The products of the piece before may be under way still, and those of this one are when
/// it returns: FlowingStage::settle() comes before sum is read. Products begin kTogether at a time, 4 steps are under way at most; `before`
/// is drained on the way, and becomes `stage`, this piece's.
template <class Format, int kTogether, class Operand, int kSums>
__device__ __forceinline__ void flow_piece(const typename Format::Regs& regs, const Operand& b, uint32_t (&a)[4][4], float (&sum)[kSums], FlowingStage& before, int stage) {
  constexpr int kSteps = Format::kPieceK / 16;
  static_assert(Format::kGroupSteps == 0 && kSteps % 4 == 0 && 4 % kTogether == 0);
#pragma unroll
  for (int step = 0; step < kSteps; step += kTogether) {
#pragma unroll
    for (int i = 0; i < kTogether; ++i) Format::fragment(regs, step + i, a[(step + i) % 4]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kTogether; ++i) wgmma_f16(sum, a[(step + i) % 4], b.step(step + i), 1);
    wgmma_commit();
    wgmma_wait<4 / kTogether - 1>();
    if (step + kTogether == 4) before.drain();
  }
  before.stage = stage;
}

/// Formats with groups: the group's products in a fresh accumulator, all ended when it returns.
template <class Format, class Operand, int kSums>
__device__ __forceinline__ void multiply_group(const typename Format::Regs& regs, const Operand& b, int group, float (&fresh)[kSums]) {
  constexpr int kGroup = Format::kGroupSteps;
  uint32_t a[4][4];
  Format::fragment(regs, group * kGroup, a[0]);
  if (kGroup > 1) Format::fragment(regs, group * kGroup + 1, a[1]);
  wgmma_fence();
#pragma unroll
  for (int step = 0; step < kGroup; ++step) {  // two dequantized fragments ahead of the one that is read
    wgmma_f16(fresh, a[step & 3], b.step(group * kGroup + step), step > 0);
    wgmma_commit();
    if (step + 2 < kGroup) {
      if (step > 1) wgmma_wait<2>();
      Format::fragment(regs, group * kGroup + step + 2, a[(step + 2) & 3]);
      wgmma_fence();
    }
  }
  wgmma_wait<0>();
}

/// sum += scale x fresh - minimum x inputs of a group. `inputs`: the sums of the rows' inputs, from this lane's first row on.
template <class Format, int kSums>
__device__ __forceinline__ void add_group(const uint8_t* piece, int group, int g, const float* inputs, const float (&fresh)[kSums], float (&sum)[kSums]) {
  const float s0 = Format::scale(piece, group, g), s1 = Format::scale(piece, group, g + 8);
#pragma unroll
  for (int i = 0; i < kSums; i += 4) {
    sum[i] = fmaf(fresh[i], s0, sum[i]);
    sum[i + 1] = fmaf(fresh[i + 1], s0, sum[i + 1]);
    sum[i + 2] = fmaf(fresh[i + 2], s1, sum[i + 2]);
    sum[i + 3] = fmaf(fresh[i + 3], s1, sum[i + 3]);
  }
  if constexpr (Format::kHasMin) {
    const float m0 = Format::minimum(piece, group, g), m1 = Format::minimum(piece, group, g + 8);
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      const float2 of = *reinterpret_cast<const float2*>(inputs + i * 2);
      sum[i] = fmaf(of.x, -m0, sum[i]);
      sum[i + 1] = fmaf(of.y, -m0, sum[i + 1]);
      sum[i + 2] = fmaf(of.x, -m1, sum[i + 2]);
      sum[i + 3] = fmaf(of.y, -m1, sum[i + 3]);
    }
  }
}

}  // namespace quintet::cuda
