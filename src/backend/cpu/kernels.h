// The table of kernels that exist once for each SIMD target, and the choice of one at run time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cpu/cpu.h"
#include "backend/cpu/layout.h"

namespace quintet::cpu {

/// One row of activations on its way into a RowGroup at `index`.
struct PackRow {
  const float* x = nullptr;  ///< [k]
  int64_t k = 0;
  const float* norm = nullptr;  ///< [k] or null
  float eps = 0;
  const int32_t* in_perm = nullptr;  ///< [k] or null: input i of the weight is x[in_perm[i]]
  int index = 0;
  int rows = 0;              ///< of the group
  float* work = nullptr;     ///< [k] scratch
  int32_t* pairs = nullptr;  ///< the arrays of the RowGroup; null: not wanted
  float* scale = nullptr;
  float* sum = nullptr;
  float* sum16 = nullptr;
  float* values = nullptr;
};

/// acc[row][16] += tile . activations over `blocks` blocks of 32 inputs (`count` inputs for float layouts).
struct TileProduct {
  Layout layout = Layout::f32;
  const uint8_t* tile = nullptr;  ///< the tile's start
  const Panel* panel = nullptr;   ///< where it was unpacked
  int first = 0;                  ///< first block (float layouts: input)
  int count = 0;                  ///< blocks (float layouts: inputs)
  RowGroup x;                     ///< from the tile's start
  float* acc = nullptr;           ///< [rows][16]
};

/// Query vectors of one sequence and one KV head against a range of positions.
struct AttendBlock {
  int vectors = 0;  ///< query vectors, at most Kernels::max_queries
  int head_dim = 0;
  int padded_dim = 0;  ///< head_dim rounded up to 16
  const float* q =
      nullptr;  ///< [padded_dim][max_queries] scaled by nothing; entries beyond are anything finite
  const int32_t* first = nullptr;  ///< [max_queries] first position that a vector sees
  const int32_t* last = nullptr;   ///< [max_queries] last position that it sees
  float scale = 0;
  const uint16_t* const* k_groups =
      nullptr;  ///< f16 [padded_dim][16] of each 16 positions, from position `begin` on
  const uint16_t* const* v_groups = nullptr;  ///< f16 [16][padded_dim]
  int groups = 0;     ///< entries of k_groups and v_groups: those beyond `end` may be asked for ahead of time
  int32_t begin = 0;  ///< first position, a multiple of kAttendTile
  int32_t end = 0;    ///< one past the last
  float* scores = nullptr;  ///< [max_queries][kAttendTile] scratch
  float* out = nullptr;     ///< [max_queries][padded_dim]: sum of weights * V
  float* max = nullptr;     ///< [16] largest score; -Inf where a vector saw nothing
  float* total = nullptr;   ///< [16] sum of the weights
};

inline constexpr int kAttendTile = 64;  ///< positions of one softmax step; starts are absolute
inline constexpr int kAttendSplit =
    256;  ///< positions whose partial result is computed on its own; starts are absolute

enum class GateKind : uint8_t { silu, gelu_tanh };

struct Kernels {
  const char* name;
  bool fused_multiply_add;
  const int* group_sizes;  ///< rows of the groups that exist, falling, ending in 1, 0
  int direct_rows;  ///< groups of up to so many rows unpack weights as they go, larger ones use a panel
  int max_queries;  ///< query vectors of an AttendBlock

  void (*pack_row)(const PackRow& args);
  void (*norm_row)(const float* x, int64_t cols, const float* weight, float eps, float* out);
  void (*unpack_panel)(Layout layout, const uint8_t* tile, int first_block, int blocks, Panel* panel);
  void (*product)(const TileProduct& args);
  /// out[i] = activation(gate[i]) * up[i]
  void (*gate)(GateKind kind, const float* gate, const float* up, int64_t count, float* out);
  /// out[i] += x[i]
  void (*add)(const float* x, int64_t count, float* out);
  void (*attend)(const AttendBlock& args);
  /// Adds a split's partial results to the running ones: max and total [16], out [queries][padded_dim].
  void (*merge)(int queries, int padded_dim, const float* split_max, const float* split_total,
                const float* split_out, float* max, float* total, float* out);
  /// f32 to f16 to nearest even, saturating at the largest half; `nan_to_zero` for values.
  void (*to_f16)(const float* x, int64_t count, bool nan_to_zero, uint16_t* out);
};

/// The kernels for an instruction set that this machine runs.
const Kernels& kernels_of(CpuSimd simd);

}  // namespace quintet::cpu
