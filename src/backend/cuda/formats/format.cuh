// What every format tells the product kernels, and helpers that they share.
//
// Packed weights lie in panels of 64 outputs: [n / 64][k / kPieceK][4 pieces][kPieceBytes]. A piece is 16 outputs by
// kPieceK inputs, its numbers in the order in which a warp's lanes feed mma.m16n8k16 as operand A, followed by the
// scales of its 16 rows. Rows and inputs beyond the matrix are zero numbers with zero scales.
//
// A format F gives:
//   kPieceK, kPieceBytes      inputs and bytes of a piece
//   kGroupSteps               k16 steps that share a scale; 0: the numbers are the weights themselves
//   kUnit, kScaleK            where they are given: the numbers, scaled already when they are unpacked, are the weights divided by a
//                             unit, this power of two or, of a weight whose scales are too large for that, a larger one; products
//                             multiply their sums by it. kScaleK inputs share a scale
//   kHasMin                   w = scale * q - minimum (a minimum a group)
//   Regs, load(), fragment()  a lane's numbers of a piece, and those of one k16 step as four half2
//   scale(), minimum()        FP32 values of a group of a row
//   Store                     single numbers into a piece and back
//   value()                   the weight (over the unit), by the operations of the scalar codec in their order
//   kStaticBytes, prepare()   optional: shared memory of its own, and what fills it at the start of a kernel; FewRows: the same format for the
//                             kernel of few rows, with kDynamicBytes of its dynamic shared memory
//
// What is laid out so may come from blocks of several file formats (pack.cuh). A struct for each, often F itself, gives:
//   kFileBlockK, kFileBlockBytes   the block of the model file
//   file_number()                  number i of a block, as Store takes it; with kHasGrid, by a grid; of single values (kFileBlockK = 1),
//                                  by the piece and row
//   pack_scales()                  its scales into a piece; `first` is where in the block the piece begins. Formats whose rows have
//                                  a scale (kRowScaled) are told it. False: NaN or Inf. Those with a unit are told it, and return
//                                  a PackFault
//   pack_row()                     the same for a row of single values
//   good_number()                  optional: whether a number is finite
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "backend/cuda/formats/pack_fault.h"

namespace quintet::cuda {

/// Lane `lane` of a warp holds, of a k16 step, the numbers (row, k) with row = lane / 4 (+ 8) and
/// k = 2 (lane % 4) (+ 1) (+ 8). Number index 0..7: bit 0 is k's lowest bit, bit 1 is row + 8, bit 2 is k + 8:
/// the order of the registers a[0..3] of the instruction, two halves each.
__host__ __device__ constexpr int fragment_row(int lane, int index) { return lane / 4 + ((index >> 1) & 1) * 8; }
__host__ __device__ constexpr int fragment_k(int lane, int index) {
  return 2 * (lane % 4) + (index & 1) + ((index >> 2) & 1) * 8;
}

template <class Format>
constexpr int format_static_bytes() {
  if constexpr (requires { Format::kStaticBytes; }) return Format::kStaticBytes;
  return 0;
}
/// What prepare_format() fills of a kernel's dynamic shared memory, from its beginning on.
template <class Format>
constexpr int format_dynamic_bytes() {
  if constexpr (requires { Format::kDynamicBytes; }) return Format::kDynamicBytes;
  return 0;
}
/// By all `threads` threads of a block that call fragment(), of which this one is `thread`; whole warps.
template <class Format>
__device__ __forceinline__ void prepare_format(int thread, int threads) {
  if constexpr (requires { Format::prepare(thread, threads); }) {
    Format::prepare(thread, threads);
    asm volatile("bar.sync 15,%0;" ::"r"(threads) : "memory");
  }
}

/// Half2 arithmetic on raw registers.
__device__ __forceinline__ uint32_t half2_sub(uint32_t a, uint32_t b) {
  half2 r = __hsub2(*reinterpret_cast<half2*>(&a), *reinterpret_cast<half2*>(&b));
  return *reinterpret_cast<uint32_t*>(&r);
}
__device__ __forceinline__ uint32_t half2_fma(uint32_t a, half2 b, half2 c) {
  half2 r = __hfma2(*reinterpret_cast<half2*>(&a), b, c);
  return *reinterpret_cast<uint32_t*>(&r);
}
/// (a & b) | c in one instruction.
__device__ __forceinline__ uint32_t and_or(uint32_t a, uint32_t b, uint32_t c) {
  uint32_t r;
  asm("lop3.b32 %0,%1,%2,%3,0xea;" : "=r"(r) : "r"(a), "r"(b), "r"(c));
  return r;
}

/// Eight nibbles of a k16 step, number index i at bit kNibbleBit[i], to four half2 of (nibble - kZero), exact: a nibble
/// under the exponent of 1024 (0x6400) is 1024 + nibble; sixteen times a nibble is undone by one fused multiply-add.
__host__ __device__ constexpr int nibble_bit(int index) {
  return (index & 1) * 16 + ((index >> 2) & 1) * 8 + ((index >> 1) & 1) * 4;
}
template <int kZero>
__device__ __forceinline__ void nibbles_to_half(uint32_t v, uint32_t (&a)[4]) {
  constexpr uint32_t kLow = 0x000f000f, kHigh = 0x00f000f0, kExponent = 0x64006400;
  const half2 low_offset = __half2half2(__float2half_rn(1024.f + kZero));
  const half2 sixteenth = __half2half2(__float2half_rn(1.f / 16));
  const half2 high_offset = __half2half2(__float2half_rn(-64.f - kZero));
  const uint32_t offset = *reinterpret_cast<const uint32_t*>(&low_offset);
  const uint32_t next = v >> 8;
  a[0] = half2_sub(and_or(v, kLow, kExponent), offset);
  a[1] = half2_fma(and_or(v, kHigh, kExponent), sixteenth, high_offset);
  a[2] = half2_sub(and_or(next, kLow, kExponent), offset);
  a[3] = half2_fma(and_or(next, kHigh, kExponent), sixteenth, high_offset);
}

__device__ __forceinline__ float half_at(const uint8_t* bytes, int index) {
  return __half2float(reinterpret_cast<const __half*>(bytes)[index]);
}
/// Half `index` (a constant of the unrolled loop) of a row's four, which lie together: one load for all of them.
__device__ __forceinline__ float half_of_four(const uint8_t* bytes, int index, int row) {
  const uint2 four = reinterpret_cast<const uint2*>(bytes)[row];
  const uint32_t pair = index / 2 ? four.y : four.x;
  return __half2float(__ushort_as_half(static_cast<unsigned short>(index % 2 ? pair >> 16 : pair)));
}
/// kCount (2, 4 or 8) halves that lie together, number `index` of such: one load.
template <int kCount>
struct HalvesOf {
  half2 pairs[kCount / 2];

  __device__ __forceinline__ void load(const uint8_t* bytes, int index) {
    struct alignas(kCount * 2) Halves {
      half2 pair[kCount / 2];
    };
    const Halves halves = reinterpret_cast<const Halves*>(bytes)[index];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) pairs[i] = halves.pair[i];
  }
  /// Half `index`, a constant of the unrolled loop, twice. The instructions take either half of a register for both.
  __device__ __forceinline__ half2 both(int index) const { return index % 2 ? __high2half2(pairs[index / 2]) : __low2half2(pairs[index / 2]); }
};
/// A half that lies unaligned in a file's block.
__device__ __forceinline__ __half file_half(const uint8_t* bytes) {
  return __ushort_as_half(static_cast<unsigned short>(bytes[0] | bytes[1] << 8));
}

__device__ __forceinline__ bool is_finite(float value) { return isfinite(value); }
__device__ __forceinline__ bool is_finite(__half value) { return (__half_as_ushort(value) & 0x7c00) != 0x7c00; }

/// Four-bit numbers of a piece of 128 inputs: 2 x 32 lanes x 16 bytes, a lane's four k16 steps in each 16 bytes.
struct NibbleRegs {
  uint4 v[2];
  __device__ __forceinline__ void load(const uint8_t* piece, int lane) {
    v[0] = reinterpret_cast<const uint4*>(piece)[lane];
    v[1] = reinterpret_cast<const uint4*>(piece)[32 + lane];
  }
  __device__ __forceinline__ uint32_t step(int s) const {
    const uint4& q = v[s / 4];
    return s % 4 == 0 ? q.x : s % 4 == 1 ? q.y : s % 4 == 2 ? q.z : q.w;
  }
};

/// Single four-bit numbers; `put` is called once for each of a lane's 8 numbers of a step, the piece zeroed before.
struct NibbleStore {
  __device__ static uint32_t& word(uint8_t* piece, int lane, int step) {
    return reinterpret_cast<uint32_t*>(piece)[(step / 4 * 32 + lane) * 4 + step % 4];
  }
  __device__ static void put(uint8_t* piece, int lane, int step, int index, int number) {
    word(piece, lane, step) |= static_cast<uint32_t>(number) << nibble_bit(index);
  }
  __device__ static int get(const uint8_t* piece, int lane, int step, int index) {
    return (word(const_cast<uint8_t*>(piece), lane, step) >> nibble_bit(index)) & 15;
  }
};

/// The same, each word turned two bits to the left.
struct RotatedNibbleStore {
  __device__ static void put(uint8_t* piece, int lane, int step, int index, int number) {
    const uint32_t nibble = static_cast<uint32_t>(number) << nibble_bit(index);
    NibbleStore::word(piece, lane, step) |= __funnelshift_l(nibble, nibble, 2);
  }
  __device__ static int get(const uint8_t* piece, int lane, int step, int index) {
    const uint32_t word = NibbleStore::word(const_cast<uint8_t*>(piece), lane, step);
    return (__funnelshift_r(word, word, 2) >> nibble_bit(index)) & 15;
  }
};

}  // namespace quintet::cuda
