// The inner step of the mma.sync products: pieces of weights by tiles of rows, one piece of K further.
//
// One numeric rule with every other product kernel (docs/design.md, "Numbers"): a group's sum is formed by k16 steps in
// ascending order in a fresh FP32 accumulator and scaled once into its slice; a group's minimum meets the sum of its inputs,
// formed the same way (input_sums.cuh, or in the kernels of one row).
#pragma once

#include "backend/cuda/formats/format.cuh"
#include "backend/cuda/kernels/ptx.cuh"

namespace quintet::cuda {

/// Groups of a piece whose inputs' sums are needed.
template <class Format>
constexpr int input_groups() {
  if constexpr (!Format::kHasMin) return 0;
  else return Format::kPieceK / 16 / Format::kGroupSteps;
}

/// A lane's operand B of two k16 steps and kTiles tiles of 8 rows, where inputs lie as fragments, [k / 32][kTiles][32 lanes].
template <int kTiles>
struct FragmentInputs {
  const uint4* x;  ///< this lane's of the piece
  __device__ __forceinline__ void load(int pair, uint4 (&b)[kTiles]) const {
#pragma unroll
    for (int t = 0; t < kTiles; ++t) b[t] = x[(pair * kTiles + t) * 32];
  }
};

/// The same where they lie swizzled, [k / 64][8 kTiles rows][128 bytes].
template <int kTiles>
class SwizzledInputs {
 public:
  __device__ explicit SwizzledInputs(int lane) {
    // Lanes 8 i to 8 i + 7 give the addresses of matrix i: rows of one of two tiles, or of the second of two steps; one of the two halves of a step.
    const int matrix = lane / 8, row = lane % 8 + (kTiles == 2 ? matrix / 2 * 8 : 0), chunk = kTiles == 2 ? matrix % 2 : matrix;
#pragma unroll
    for (int i = 0; i < kOffsets; ++i) {
      offset_[i] = row * 128 + ((chunk + i * (8 / kOffsets)) ^ row % 8) * 16;
      keep(offset_[i]);
    }
  }
  /// A piece's inputs begin at `shared`.
  __device__ __forceinline__ void begin(uint32_t shared) { shared_ = shared; }
  __device__ __forceinline__ void load(int pair, uint4 (&b)[kTiles]) const {
    const uint32_t tile = shared_ + pair / 2 * kTiles * 1024;
    if constexpr (kTiles == 1) {
      load_matrix_x4(tile + offset_[pair % 2], b[0].x, b[0].y, b[0].z, b[0].w);
    } else {
      load_matrix_x4(tile + offset_[pair % 2 * 2], b[0].x, b[0].y, b[1].x, b[1].y);
      load_matrix_x4(tile + offset_[pair % 2 * 2 + 1], b[0].z, b[0].w, b[1].z, b[1].w);
    }
  }

 private:
  static constexpr int kOffsets = 2 * kTiles;
  uint32_t offset_[kOffsets], shared_ = 0;
};

/// sum[piece][tile] += `kPieces` pieces that lie side by side at `weights` . `inputs`. Formats with minima: input_sums [groups][8 kTiles] of
/// the same inputs.
template <class Format, int kPieces, int kTiles, class Inputs>
__device__ __forceinline__ void add_pieces(const uint8_t* weights, const Inputs& x, const float* input_sums, int lane, float (&sum)[kPieces][kTiles][4]) {
  constexpr int kSteps = Format::kPieceK / 16, kGroup = Format::kGroupSteps ? Format::kGroupSteps : kSteps;
  const int g = lane / 4;
  typename Format::Regs regs[kPieces];
#pragma unroll
  for (int o = 0; o < kPieces; ++o) regs[o].load(weights + o * Format::kPieceBytes, lane);
  uint4 b[kTiles];
#pragma unroll
  for (int group = 0; group < kSteps / kGroup; ++group) {
    float d[kPieces][kTiles][4];
#pragma unroll
    for (int t = 0; t < kTiles; ++t)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int o = 0; o < kPieces; ++o) d[o][t][i] = Format::kGroupSteps ? 0 : sum[o][t][i];
#pragma unroll
    for (int within = 0; within < kGroup; ++within) {
      const int step = group * kGroup + within, half = step % 2;
      if (half == 0) x.load(step / 2, b);
#pragma unroll
      for (int o = 0; o < kPieces; ++o) {
        uint32_t a[4];
        Format::fragment(regs[o], step, a);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) mma_f16(d[o][t], a, half ? b[t].z : b[t].x, half ? b[t].w : b[t].y);
      }
    }
#pragma unroll
    for (int o = 0; o < kPieces; ++o) {
      if constexpr (Format::kGroupSteps == 0) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t)
#pragma unroll
          for (int i = 0; i < 4; ++i) sum[o][t][i] = d[o][t][i];
        continue;
      }
      const uint8_t* own = weights + o * Format::kPieceBytes;
      const float s0 = Format::scale(own, group, g), s1 = Format::scale(own, group, g + 8);
#pragma unroll
      for (int t = 0; t < kTiles; ++t) {
        sum[o][t][0] = fmaf(d[o][t][0], s0, sum[o][t][0]);
        sum[o][t][1] = fmaf(d[o][t][1], s0, sum[o][t][1]);
        sum[o][t][2] = fmaf(d[o][t][2], s1, sum[o][t][2]);
        sum[o][t][3] = fmaf(d[o][t][3], s1, sum[o][t][3]);
      }
      if constexpr (Format::kHasMin) {
        const float m0 = Format::minimum(own, group, g), m1 = Format::minimum(own, group, g + 8);
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          const float2 inputs = *reinterpret_cast<const float2*>(input_sums + (group * kTiles + t) * 8 + lane % 4 * 2);
          sum[o][t][0] = fmaf(inputs.x, -m0, sum[o][t][0]);
          sum[o][t][1] = fmaf(inputs.y, -m0, sum[o][t][1]);
          sum[o][t][2] = fmaf(inputs.x, -m1, sum[o][t][2]);
          sum[o][t][3] = fmaf(inputs.y, -m1, sum[o][t][3]);
        }
      }
    }
  }
}

/// Makes b defined, without an instruction.
__device__ __forceinline__ void any_value(uint4& b) { asm volatile("" : "=r"(b.x), "=r"(b.y), "=r"(b.z), "=r"(b.w)); }

/// 16 bytes of shared memory into b, by the lanes with `active` alone; the others keep what they have.
__device__ __forceinline__ void load_if(bool active, const uint4* from, uint4& b) {
  asm volatile("{.reg .pred p; setp.ne.b32 p,%5,0; @p ld.shared.v4.u32 {%0,%1,%2,%3},[%4];}"
               : "+r"(b.x), "+r"(b.y), "+r"(b.z), "+r"(b.w) : "r"(shared_address(from)), "r"(static_cast<int>(active)));
}

/// The sums of one row by a piece: outputs g and g + 8 in lanes with q = 0. Where numbers are the weights themselves, all that the
/// instruction adds to: what lanes without inputs bring meets other columns, and is never read.
template <class Format>
struct RowSum {
  static constexpr int kKept = Format::kGroupSteps == 0 ? 4 : 2;
  float v[kKept];
  __device__ __forceinline__ float of(int upper) const { return v[upper * (kKept / 2)]; }
};

/// One row alone, one piece of outputs and kPieces pieces of K that follow each other, `stride` bytes apart. The row is column 0 of
/// operand B: four lanes hold it, x points to this lane's 16 bytes [k / 32][4]. What counts is the number of instructions: an
/// mma.sync takes the scheduler six cycles, each other one a cycle.
///
/// Where the numbers are the weights themselves: all steps of all pieces into one sum.
template <class Format, int kPieces>
__device__ __forceinline__ void add_row_flow(const uint8_t* weights, int stride, const uint4* x, int lane, RowSum<Format>& sum) {
  constexpr int kSteps = Format::kPieceK / 16, kPairs = kPieces * kSteps / 2;
  const bool holds_row = lane < 4;
  typename Format::Regs regs[kPieces];
#pragma unroll
  for (int i = 0; i < kPieces; ++i) regs[i].load(weights + i * stride, lane);
  uint4 b[2];  // in turn: inputs are asked for two steps before their use
  any_value(b[0]), any_value(b[1]);
  load_if(holds_row, x, b[0]);
#pragma unroll
  for (int pair = 0; pair < kPairs; ++pair) {
    if (pair + 1 < kPairs) load_if(holds_row, x + (pair + 1) * 4, b[(pair + 1) % 2]);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint4& own = b[pair % 2];
      uint32_t a[4];
      Format::fragment(regs[pair / (kSteps / 2)], pair % (kSteps / 2) * 2 + half, a);
      mma_f16(sum.v, a, half ? own.z : own.x, half ? own.w : own.y);
    }
  }
}

/// Where groups are scaled: the pieces are added one after the other; their groups' sums are chains of their own and run side by side.
/// Formats with minima: `input_sums` are the sums of the inputs' groups (row_input_sums).
template <class Format, int kPieces>
__device__ __forceinline__ void add_row_groups(const uint8_t* weights, int stride, const uint4* x, const float* input_sums, int lane, RowSum<Format>& row_sum) {
  constexpr int kSteps = Format::kPieceK / 16, kGroup = Format::kGroupSteps;
  constexpr int kTogether = kGroup == kSteps ? kPieces : 1;  // pieces whose chains alternate in the source
  const int g = lane / 4;
  const bool holds_row = lane < 4;
  auto& sum = row_sum.v;
#pragma unroll
  for (int first = 0; first < kPieces; first += kTogether) {
    const uint8_t* own[kTogether];
    typename Format::Regs regs[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) {
      own[i] = weights + (first + i) * stride;
      regs[i].load(own[i], lane);
    }
    uint4 b[kTogether];
#pragma unroll
    for (int i = 0; i < kTogether; ++i) any_value(b[i]);
#pragma unroll
    for (int group = 0; group < kSteps / kGroup; ++group) {
      float d[kTogether][4] = {};
#pragma unroll
      for (int within = 0; within < kGroup; ++within) {
        const int step = group * kGroup + within, half = step % 2;
#pragma unroll
        for (int i = 0; i < kTogether; ++i) {
          if (half == 0) load_if(holds_row, x + ((first + i) * (kSteps / 2) + step / 2) * 4, b[i]);
          uint32_t a[4];
          Format::fragment(regs[i], step, a);
          mma_f16(d[i], a, half ? b[i].z : b[i].x, half ? b[i].w : b[i].y);
        }
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        sum[0] = fmaf(d[i][0], Format::scale(own[i], group, g), sum[0]);
        sum[1] = fmaf(d[i][2], Format::scale(own[i], group, g + 8), sum[1]);
        if constexpr (Format::kHasMin) {
          const float inputs = input_sums[(first + i) * (kSteps / kGroup) + group];
          sum[0] = fmaf(inputs, -Format::minimum(own[i], group, g), sum[0]);
          sum[1] = fmaf(inputs, -Format::minimum(own[i], group, g + 8), sum[1]);
        }
      }
    }
  }
}

/// Either.
template <class Format, int kPieces>
__device__ __forceinline__ void add_row_run(const uint8_t* weights, int stride, const uint4* x, const float* input_sums, int lane, RowSum<Format>& sum) {
  if constexpr (Format::kGroupSteps == 0) add_row_flow<Format, kPieces>(weights, stride, x, lane, sum);
  else add_row_groups<Format, kPieces>(weights, stride, x, input_sums, lane, sum);
}

/// One row alone, kSide pieces of outputs side by side, one piece of K further: chains of their own, which share the inputs. As add_row_run(),
/// but the sums of inputs are formed here. loaded() runs once the first loads are on their way.
template <class Format, int kSide, class Loaded>
__device__ __forceinline__ void add_row_beside(const uint8_t* weights, const uint4* x, int lane, RowSum<Format> (&row_sum)[kSide], Loaded loaded) {
  constexpr int kSteps = Format::kPieceK / 16, kGroup = Format::kGroupSteps ? Format::kGroupSteps : kSteps;
  const int g = lane / 4;
  const bool holds_row = lane < 4;
  typename Format::Regs regs[kSide];
#pragma unroll
  for (int o = 0; o < kSide; ++o) regs[o].load(weights + o * Format::kPieceBytes, lane);
  uint4 b[2];  // in turn: inputs are asked for two steps before their use
  any_value(b[0]), any_value(b[1]);
  load_if(holds_row, x, b[0]);
  loaded();
#pragma unroll
  for (int group = 0; group < kSteps / kGroup; ++group) {
    float fresh[kSide][4] = {}, ones[4] = {};
#pragma unroll
    for (int within = 0; within < kGroup; ++within) {
      const int step = group * kGroup + within, half = step % 2;
      if (half == 0 && step + 2 < kSteps) load_if(holds_row, x + (step / 2 + 1) * 4, b[(step / 2 + 1) % 2]);
      const uint4& own = b[step / 2 % 2];
#pragma unroll
      for (int o = 0; o < kSide; ++o) {
        uint32_t a[4];
        Format::fragment(regs[o], step, a);
        if constexpr (Format::kGroupSteps == 0) mma_f16(row_sum[o].v, a, half ? own.z : own.x, half ? own.w : own.y);
        else mma_f16(fresh[o], a, half ? own.z : own.x, half ? own.w : own.y);
      }
      if constexpr (Format::kHasMin) {
        constexpr uint32_t kOnes = 0x3c003c00;
        const uint32_t one[4] = {kOnes, kOnes, kOnes, kOnes};
        mma_f16(ones, one, half ? own.z : own.x, half ? own.w : own.y);
      }
    }
    if constexpr (Format::kGroupSteps > 0) {
#pragma unroll
      for (int o = 0; o < kSide; ++o) {
        auto& sum = row_sum[o].v;
        const uint8_t* own = weights + o * Format::kPieceBytes;
        sum[0] = fmaf(fresh[o][0], Format::scale(own, group, g), sum[0]);
        sum[1] = fmaf(fresh[o][2], Format::scale(own, group, g + 8), sum[1]);
        if constexpr (Format::kHasMin) {
          sum[0] = fmaf(ones[0], -Format::minimum(own, group, g), sum[0]);
          sum[1] = fmaf(ones[0], -Format::minimum(own, group, g + 8), sum[1]);
        }
      }
    }
  }
}

/// The sums of groups [first, first + 8) of a row's `groups` groups of inputs (operand B of one row) into `sums`, by a warp; each is
/// formed like a group's product, with ones. Past the last group it writes anything.
template <int kGroupSteps>
__device__ __forceinline__ void row_input_sums(const uint8_t* row, int first, int groups, int lane, float* sums) {
  const int g = lane / 4, q = lane % 4;
  float sum[4] = {};
#pragma unroll
  for (int within = 0; within < kGroupSteps; ++within) {
    const int step = min(first + g, groups - 1) * kGroupSteps + within;
    const uint2 b = *reinterpret_cast<const uint2*>(row + (step / 2 * 4 + q) * 16 + step % 2 * 8);
    constexpr uint32_t kOnes = 0x3c003c00;
    const uint32_t ones[4] = {kOnes, kOnes, kOnes, kOnes};
    mma_f16(sum, ones, b.x, b.y);
  }
  if (lane < 4) *reinterpret_cast<float2*>(sums + first + q * 2) = make_float2(sum[0], sum[1]);
}

}  // namespace quintet::cuda
