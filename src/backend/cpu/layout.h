// How the CPU backend lays weights out: tiles of 16 rows, interleaved so that one vector holds one pair of
// inputs of all 16, and panels, the form into which a tile is unpacked where many rows of activations use it.
#pragma once

#include <cstdint>

namespace quintet::cpu {

inline constexpr int kTileRows = 16;  ///< outputs that are computed together
inline constexpr int kBlock = 32;     ///< inputs that share one scale of the activations
inline constexpr int kPairs = kBlock / 2;

/// What a tile's bytes mean. A tile is K / unit_k units one after the other; the records are in
/// simd/formats-inl.h.
enum class Layout : uint8_t {
  f32,
  f16,
  bf16,
  q4_0,
  q4_1,
  q5_0,
  q5_1,
  q8_0,
  q8_1,  ///< bytes of 0 to 255 under a scale and a minimum
  q2_k,
  q3_k,
  q4_k,
  q5_k,
  q6_k,
  i8,
  w8,   ///< signed bytes under a float a row
  nf4,  ///< indices into the codebook under a float a row and block
  f8,   ///< floats E4M3 under a float a row
  count_
};

struct LayoutInfo {
  int unit_k;       ///< inputs of one unit
  int unit_bytes;   ///< of 16 rows
  bool integer;     ///< codes and scales; otherwise floats
  int scale_every;  ///< inputs that share a scale of the weights: 32 or 16
  bool minimum;     ///< weight = scale * code + minimum
};

constexpr LayoutInfo layout_info(Layout layout) {
  switch (layout) {
    case Layout::f32: return {1, 64, false, 0, false};
    case Layout::f16: return {1, 32, false, 0, false};
    case Layout::bf16: return {1, 32, false, 0, false};
    case Layout::q4_0: return {32, 256 + 32, true, 32, false};
    case Layout::q4_1: return {32, 256 + 64, true, 32, true};
    case Layout::q5_0: return {32, 256 + 64 + 32, true, 32, false};
    case Layout::q5_1: return {32, 256 + 64 + 64, true, 32, true};
    case Layout::q8_0: return {32, 512 + 32, true, 32, false};
    case Layout::q8_1: return {32, 512 + 64, true, 32, true};
    case Layout::q2_k: return {256, 8 * 128 + 64 + 256, true, 16, true};
    case Layout::q3_k: return {256, 8 * (128 + 64) + 32 + 256, true, 16, false};
    case Layout::q4_k: return {256, 8 * 256 + 64 + 256, true, 32, true};
    case Layout::q5_k: return {256, 8 * (256 + 64) + 64 + 256, true, 32, true};
    case Layout::q6_k: return {256, 8 * (256 + 128) + 32 + 256, true, 16, false};
    case Layout::i8: return {32, 512 + 128, true, 16, false};
    case Layout::w8: return {32, 512 + 64, true, 32, false};
    case Layout::nf4: return {64, 512 + 64, false, 0, false};
    case Layout::f8: return {32, 512 + 64, false, 0, false};
    case Layout::count_: break;
  }
  return {1, 0, false, 0, false};
}

/// Whether a tile is nothing but its values, input after input.
constexpr bool is_dense(Layout layout) { return layout_info(layout).unit_k == 1; }

constexpr int64_t tile_bytes(Layout layout, int64_t k) {
  return k / layout_info(layout).unit_k * layout_info(layout).unit_bytes;
}

/// Blocks of a panel: K is walked in chunks of at most this many blocks, so that codes stay in the L2 cache.
inline constexpr int kPanelBlocks = 64;

/// A tile, or a stretch of it along K, unpacked: 16-bit codes and float scales.
struct Panel {
  alignas(64) int16_t codes[kPanelBlocks * kPairs * kTileRows * 2];  ///< [pair of k][row][2]
  alignas(64) float scale[kPanelBlocks * 2 * kTileRows];             ///< [scale group][row]
  alignas(64) float minimum[kPanelBlocks * 2 * kTileRows];           ///< [scale group][row]
};

/// Activations of `rows` rows, packed for the products of one weight: the values of one k (or pair of k) side
/// by side.
struct RowGroup {
  int rows = 0;
  const int32_t* pairs = nullptr;  ///< [k / 2][rows] two int16 each
  const float* scale = nullptr;    ///< [k / 32][rows]
  const float* sum = nullptr;      ///< [k / 32][rows] scale * sum of the codes
  const float* sum16 = nullptr;    ///< [k / 16][rows] the same for 16 inputs
  const float* values = nullptr;   ///< [k][rows] for float weights
};

}  // namespace quintet::cpu
